"""A 3-D U-Net (Çiçek et al., 2016): the same shape as the flat one, over a volume of cells."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DoubleConv(nn.Sequential):
    """Two 3×3×3 convolutions, each followed by instance normalisation and a leaky ReLU; the size stays."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(
            nn.Conv3d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.InstanceNorm3d(out_channels, affine=True),
            nn.LeakyReLU(0.01, inplace=True),
            nn.Conv3d(out_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.InstanceNorm3d(out_channels, affine=True),
            nn.LeakyReLU(0.01, inplace=True),
        )


class Up(nn.Module):
    """Double the size by a transposed convolution, put the skip beside it, and mix."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose3d(in_channels, out_channels, kernel_size=2, stride=2)
        self.conv = DoubleConv(2 * out_channels, out_channels)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        return self.conv(torch.cat([skip, self.up(x)], dim=1))


class VolumeUNet(nn.Module):
    """Three levels and a bottom; depth is halved with height and width."""

    def __init__(self, num_classes: int = 2, width: int = 8) -> None:
        super().__init__()
        self.down0 = DoubleConv(1, width)
        self.down1 = DoubleConv(width, 2 * width)
        self.down2 = DoubleConv(2 * width, 4 * width)
        self.mid = DoubleConv(4 * width, 8 * width)
        self.up2 = Up(8 * width, 4 * width)
        self.up1 = Up(4 * width, 2 * width)
        self.up0 = Up(2 * width, width)
        self.pool = nn.MaxPool3d(2)
        self.head = nn.Conv3d(width, num_classes, kernel_size=1)

    def forward(self, volume: Tensor) -> Tensor:
        down0 = self.down0(volume)  # [N, 8, D, H, W]
        down1 = self.down1(self.pool(down0))  # [N, 16, D/2, H/2, W/2]
        down2 = self.down2(self.pool(down1))  # [N, 32, D/4, H/4, W/4]
        x = self.mid(self.pool(down2))  # [N, 64, D/8, H/8, W/8]
        x = self.up2(x, down2)
        x = self.up1(x, down1)
        x = self.up0(x, down0)
        return self.head(x)  # [N, num_classes, D, H, W]


def neural_flow_model() -> VolumeUNet:
    return VolumeUNet()


def neural_flow_inputs() -> Tensor:
    return draw_volume(seed=0)[None, None]


def draw_volume(*, seed: int, depth: int = 32, size: int = 64, num_cells: int = 18) -> Tensor:
    """Draw bright balls in the dark, float32 ``[depth, size, size]`` in 0-1."""
    random = torch.Generator().manual_seed(seed)
    extent = torch.tensor([depth, size, size])
    grid = torch.stack(torch.meshgrid(*(torch.arange(length) for length in extent.tolist()), indexing="ij"), dim=-1)
    volume = torch.full((depth, size, size), 0.08)
    for _ in range(num_cells):
        centre = extent * (0.1 + 0.8 * torch.rand(3, generator=random))
        radii = 3 + 5 * torch.rand(3, generator=random)
        light = 0.5 + 0.4 * torch.rand(1, generator=random)
        distance = ((grid - centre) / radii).norm(dim=-1)
        volume = torch.maximum(volume, light * torch.sigmoid((1 - distance) * 6) * (1.1 - 0.4 * distance))
    return (volume + 0.03 * torch.randn(volume.shape, generator=random)).clamp(0, 1)
