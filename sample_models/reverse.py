"""A small transformer that was trained to write a word backwards: its attention runs along the other diagonal.

``train_reverse.py`` makes the weights that lie beside this file.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

WEIGHTS = Path(__file__).with_suffix(".safetensors")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORD = "neuralflow"
LENGTH = len(WORD)


class SelfAttention(nn.Module):
    """Each place looks at every place, in several heads."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.to_qkv = nn.Linear(width, 3 * width)
        self.to_out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        N, T, D = x.shape
        q, k, v = self.to_qkv(x).view(N, T, 3, self.num_heads, D // self.num_heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)  # [N, heads, T, D / heads]
        return self.to_out(y.transpose(1, 2).reshape(N, T, D))


class Reverser(nn.Module):
    """One transformer block between an embedding and a head; every place answers with one letter."""

    def __init__(self, width: int = 64, num_heads: int = 2, length: int = LENGTH, num_letters: int = 26) -> None:
        super().__init__()
        self.letter = nn.Embedding(num_letters, width)
        self.place = nn.Embedding(length, width)
        self.norm1 = nn.LayerNorm(width)
        self.attention = SelfAttention(width, num_heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.norm3 = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_letters)

    def forward(self, word: Tensor) -> Tensor:
        x = self.letter(word) + self.place(torch.arange(word.shape[1], device=word.device))  # [N, T, width]
        x = x + self.attention(self.norm1(x))
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
