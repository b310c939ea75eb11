"""An image, a table row and a sentence meet in one trunk that answers two questions."""

from __future__ import annotations

import torch
from _pictures import draw_cells
from torch import Tensor, nn

NOTE = ["biopsy", "shows", "dense", "round", "cells", "with", "bright", "nuclei"]
MEASUREMENTS = {"age": 0.61, "weight": 0.43, "height": 0.55, "pulse": 0.38, "sugar": 0.72, "iron": 0.29}


class ConvBlock(nn.Sequential):
    """A 3×3 convolution that halves the size."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, stride=2, padding=1),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
        )


class ImageTower(nn.Module):
    """Three convolutions, then the mean over the picture."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = ConvBlock(1, width // 4)
        self.conv2 = ConvBlock(width // 4, width // 2)
        self.conv3 = ConvBlock(width // 2, width)

    def forward(self, image: Tensor) -> Tensor:
        return self.conv3(self.conv2(self.conv1(image))).mean(dim=(2, 3))  # [N, width]


class TableTower(nn.Module):
    """Two linear maps over the measurements."""

    def __init__(self, num_columns: int, width: int) -> None:
        super().__init__()
        self.widen = nn.Linear(num_columns, width)
        self.mix = nn.Linear(width, width)

    def forward(self, table: Tensor) -> Tensor:
        return self.mix(torch.relu(self.widen(table)))  # [N, width]


class TextTower(nn.Module):
    """Embed the words, let them attend to each other, and take the mean."""

    def __init__(self, vocab_size: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, width)
        self.attend = nn.MultiheadAttention(width, num_heads=4, batch_first=True)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words)  # [N, L, width]
        x = x + self.attend(x, x, x, need_weights=False)[0]
        return x.mean(dim=1)  # [N, width]


class MultimodalNet(nn.Module):
    """Three towers of one width, joined side by side; a trunk; a head for each question."""

    def __init__(self, vocab_size: int = 256, width: int = 64, num_classes: int = 5) -> None:
        super().__init__()
        self.image_tower = ImageTower(width)
        self.table_tower = TableTower(len(MEASUREMENTS), width)
        self.text_tower = TextTower(vocab_size, width)
        self.trunk = nn.Sequential(nn.Linear(3 * width, 2 * width), nn.LayerNorm(2 * width), nn.GELU())
        self.diagnosis = nn.Linear(2 * width, num_classes)
        self.risk = nn.Linear(2 * width, 1)

    def forward(self, image: Tensor, table: Tensor, words: Tensor) -> dict[str, Tensor]:
        joined = torch.cat([self.image_tower(image), self.table_tower(table), self.text_tower(words)], dim=1)
        x = self.trunk(joined)  # [N, 2 width]
        return {"diagnosis": self.diagnosis(x), "risk": torch.sigmoid(self.risk(x))}


neural_flow_labels = ["healthy", "inflamed", "benign", "suspect", "malignant"]


def neural_flow_model() -> MultimodalNet:
    return MultimodalNet()


def neural_flow_inputs() -> dict[str, Tensor]:
    image, _ = draw_cells(seed=31, size=96, num_cells=22)
    return {
        "image": image[None],
        "table": torch.tensor([list(MEASUREMENTS.values())]),
        "words": torch.tensor([[17 + 23 * index for index in range(len(NOTE))]]),
    }


def neural_flow_tokens() -> list[str]:
    return NOTE
