"""A network whose path depends on its values: it refines until it changes little, then picks one of two heads.

No tracer that reads code without running it can draw this one.
"""

from __future__ import annotations

import torch
from _pictures import draw_cells
from torch import Tensor, nn


class Refine(nn.Module):
    """Move the features by a small convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, kernel_size=3, padding=1)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x + 0.5 * torch.tanh(self.norm(self.conv(x)))


class AdaptiveNet(nn.Module):
    """As many turns as the input needs, at most ``max_turns``; a quiet picture and a busy one leave by other doors."""

    def __init__(self, width: int = 16, max_turns: int = 8, tolerance: float = 0.5) -> None:
        super().__init__()
        self.max_turns = max_turns
        self.tolerance = tolerance
        self.stem = nn.Conv2d(1, width, kernel_size=5, stride=2, padding=2)
        self.refine = Refine(width)
        self.quiet_head = nn.Linear(width, 2)
        self.busy_head = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)  # [N, width, H/2, W/2]
        for _ in range(self.max_turns):
            before, x = x, self.refine(x)
            if (x - before).norm() < self.tolerance * before.norm():
                break
        is_busy = image.std() > 0.1
        head = self.busy_head if is_busy else self.quiet_head
        return head(x.mean(dim=(2, 3)))  # [N, 2]


neural_flow_labels = ["sparse", "dense"]


def neural_flow_model() -> AdaptiveNet:
    return AdaptiveNet()


def neural_flow_inputs() -> Tensor:
    image, _ = draw_cells(seed=21, size=96, num_cells=20)
    return torch.stack([image])
