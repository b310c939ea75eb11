"""A small transformer that was trained to write a word backwards: its attention runs along the other diagonal.

``train_reverse.py`` makes the weights that lie beside this file.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

WEIGHTS = Path(__file__).with_suffix(".safetensors")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORD = "neuralflow"
LENGTH = len(WORD)


class Reverser(nn.Module):
    """One transformer block between an embedding and a head; every place answers with one letter."""

    def __init__(self, width: int = 64, num_heads: int = 2, length: int = LENGTH, num_letters: int = 26) -> None:
        super().__init__()
        self.letter = nn.Embedding(num_letters, width)
        self.place = nn.Embedding(length, width)
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, num_heads, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.norm3 = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_letters)

    def forward(self, word: Tensor) -> Tensor:
        x = self.letter(word) + self.place(torch.arange(word.shape[1], device=word.device))  # [N, T, width]
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.mlp(self.norm2(x))
        return self.head(self.norm3(x))  # [N, T, num_letters]


neural_flow_labels = list(LETTERS)


def neural_flow_model() -> Reverser:
    model = Reverser()
    model.load_state_dict(load_file(WEIGHTS))
    return model


def neural_flow_inputs() -> Tensor:
    return torch.tensor([[LETTERS.index(letter) for letter in WORD]])


def neural_flow_tokens() -> list[str]:
    return list(WORD)
