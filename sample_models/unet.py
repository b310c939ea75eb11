"""U-Net (Ronneberger et al., 2015), small, trained to find cells in a microscope image.

``train_unet.py`` makes the weights that lie beside this file.
"""

from __future__ import annotations

from pathlib import Path

import torch
from _pictures import draw_cells
from safetensors.torch import load_file
from torch import Tensor, nn

WEIGHTS = Path(__file__).with_suffix(".safetensors")
HELD_OUT_SEED = 1_000_007  # training draws from small seeds and never meets this one


class DoubleConv(nn.Sequential):
    """Two 3×3 convolutions, each followed by batch normalisation and ReLU; the size stays."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, padding_mode="reflect", bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, padding_mode="reflect", bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    """A contracting path that sees context, an expanding path that finds the rim, and skips between equals."""

    def __init__(self, in_channels: int = 1, num_classes: int = 2, width: int = 16) -> None:
        super().__init__()
        self.encoder = nn.ModuleDict(
            {
                "down0": DoubleConv(in_channels, width),
                "down1": DoubleConv(width, width * 2),
                "down2": DoubleConv(width * 2, width * 4),
            }
        )
        self.pool = nn.MaxPool2d(2)
        self.mid = DoubleConv(width * 4, width * 8)
        self.up = nn.Upsample(scale_factor=2, mode="bilinear")
        self.decoder = nn.ModuleDict(
            {
                "up2": DoubleConv(width * 8 + width * 4, width * 4),
                "up1": DoubleConv(width * 4 + width * 2, width * 2),
                "up0": DoubleConv(width * 2 + width, width),
            }
        )
        self.head = nn.Conv2d(width, num_classes, kernel_size=1)

    def forward(self, image: Tensor) -> Tensor:
        x = image  # [N, 1, H, W]; H and W are multiples of 8
        skips: list[Tensor] = []
        for down in self.encoder.values():
            x = down(x)
            skips.append(x)
            x = self.pool(x)
        x = self.mid(x)  # [N, 128, H/8, W/8]
        for up in self.decoder.values():
            x = up(torch.cat([skips.pop(), self.up(x)], dim=1))
        return self.head(x)  # [N, num_classes, H, W]


neural_flow_labels = ["background", "cell"]


def neural_flow_model() -> UNet:
    model = UNet()
    model.load_state_dict(load_file(WEIGHTS))  # stored as float16, copied into float32
    return model


def neural_flow_inputs() -> Tensor:
    image, _ = draw_cells(seed=HELD_OUT_SEED, num_cells=28)
    return image[None]
