"""A small convolutional classifier, trained on the handwritten digits that scikit-learn ships.

``train_digits.py`` makes the weights that lie beside this file.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

WEIGHTS = Path(__file__).with_suffix(".safetensors")

HELD_OUT_DIGIT = """
 0  0  5 14 15  7  0  0
 0  3 15 10 10 16  2  0
 0  1  6  0  3 16  4  0
 0  0  0  3 13 12  0  0
 0  0  0  4 12 15  4  0
 0  0  1  0  0 10 14  0
 0  0 12  6  4 11 15  0
 0  0  6 14 16 11  3  0
"""


class ConvBlock(nn.Sequential):
    """3×3 convolution, batch normalisation, ReLU; the size stays."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
        )


class DigitClassifier(nn.Module):
    """Two convolutions see strokes, two more see how strokes meet, and a linear map names the digit."""

    def __init__(self, width: int = 16, num_classes: int = 10) -> None:
        super().__init__()
        self.strokes1 = ConvBlock(1, width)
        self.strokes2 = ConvBlock(width, width)
        self.joints1 = ConvBlock(width, width * 2)
        self.joints2 = ConvBlock(width * 2, width * 2)
        self.pool = nn.MaxPool2d(2)
        self.name = nn.Linear(width * 2 * 4, num_classes)

    def forward(self, digit: Tensor) -> Tensor:
        x = self.pool(self.strokes2(self.strokes1(digit)))  # [N, width, 4, 4]
        x = self.pool(self.joints2(self.joints1(x)))  # [N, 2 width, 2, 2]
        return self.name(x.flatten(1))  # [N, num_classes]


neural_flow_labels = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def neural_flow_model() -> DigitClassifier:
    model = DigitClassifier()
    model.load_state_dict(load_file(WEIGHTS))
    return model


def neural_flow_inputs() -> Tensor:
    """Return a digit that training never saw, float32 ``[1, 1, 8, 8]`` in 0-1."""
    rows = [[float(value) for value in line.split()] for line in HELD_OUT_DIGIT.strip().splitlines()]
    return torch.tensor(rows)[None, None] / 16
