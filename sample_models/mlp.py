"""A perceptron with two hidden layers that tells wave forms apart."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Perceptron(nn.Module):
    """Three linear maps with a bend after the first two."""

    def __init__(self, num_samples: int = 64, width: int = 96, num_classes: int = 4) -> None:
        super().__init__()
        self.hidden1 = nn.Linear(num_samples, width)
        self.hidden2 = nn.Linear(width, width // 2)
        self.classify = nn.Linear(width // 2, num_classes)

    def forward(self, wave: Tensor) -> Tensor:
        x = torch.relu(self.hidden1(wave))  # [N, 96]
        x = torch.relu(self.hidden2(x))  # [N, 48]
        return self.classify(x)  # [N, num_classes]


neural_flow_labels = ["sine", "square", "triangle", "saw"]


def neural_flow_model() -> Perceptron:
    return Perceptron()


def neural_flow_inputs() -> Tensor:
    """Return one wave of each class, as ``[4, 64]``."""
    phase = torch.linspace(0, 3, 64)
    sine = torch.sin(2 * torch.pi * phase)
    saw = 2 * (phase % 1) - 1
    return torch.stack([sine, sine.sign(), 2 * saw.abs() - 1, saw])
