"""A siamese network: one encoder sees two pictures, and a small head judges how far apart they are."""

from __future__ import annotations

import torch
from _pictures import draw_cells
from torch import Tensor, nn


class ConvBlock(nn.Sequential):
    """A 3×3 convolution that halves the size."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, stride=2, padding=1),
            nn.GroupNorm(4, out_channels),
            nn.ReLU(),
        )


class Encoder(nn.Module):
    """Three convolutions, each at half the size of the one before."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = ConvBlock(1, width)
        self.conv2 = ConvBlock(width, 2 * width)
        self.conv3 = ConvBlock(2 * width, 4 * width)

    def forward(self, image: Tensor) -> Tensor:
        return self.conv3(self.conv2(self.conv1(image)))  # [N, 4 width, H/8, W/8]


class Siamese(nn.Module):
    """The same weights look at both pictures; only the difference of what they say is judged."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.encoder = Encoder(width)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.compare = nn.Linear(4 * width, 32)
        self.judge = nn.Linear(32, 1)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        apart = (self.encoder(left) - self.encoder(right)).abs()  # [N, 64, H/8, W/8]
        x = torch.relu(self.compare(self.pool(apart).flatten(1)))  # [N, 32]
        return self.judge(x)  # [N, 1]


def neural_flow_model() -> Siamese:
    return Siamese()


def neural_flow_inputs() -> dict[str, Tensor]:
    return {"left": _picture(seed=11), "right": _picture(seed=12)}


def _picture(seed: int) -> Tensor:
    image, _ = draw_cells(seed=seed, size=96, num_cells=18)
    return torch.stack([image])
