"""Layers of every make that the tests of the wrapper share, and what is compared of them."""

from __future__ import annotations

import torch
from torch import nn

from neural_flow.hooks import with_hooks


class Scale(nn.Module):
    """A layer with everything a state dict can hold."""

    _version = 3

    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))
        self.register_buffer("offset", torch.tensor(1.0))
        self.register_buffer("cache", torch.tensor(0.0), persistent=False)
        self.inner = nn.ModuleDict({"norm": nn.BatchNorm1d(3), "act": nn.ReLU()})
        self.note = "as made"

    @property
    def twice(self) -> float:
        return 2 * self.factor.item()

    def freeze(self) -> int:
        self.factor.requires_grad_(False)
        return 7

    def get_extra_state(self):
        return {"note": self.note}

    def set_extra_state(self, state):
        self.note = state["note"]

    def forward(self, x: torch.Tensor, scale: float = 1.0, *, bias: torch.Tensor | None = None) -> torch.Tensor:
        y = self.inner["act"](self.inner["norm"](x * self.factor + self.offset)) * scale
        return y if bias is None else y + bias


def nest(layer, depth):
    for _ in range(depth):
        layer, _hooks = with_hooks(layer)
    return layer


def describe(module):
    state = module.state_dict()
    return {
        "keys": list(state),
        "metadata": state._metadata,
        "parameters": [(name, id(parameter)) for name, parameter in module.named_parameters()],
        "buffers": [(name, id(buffer)) for name, buffer in module.named_buffers()],
        "modules": [name for name, _ in module.named_modules()],
        "children": [name for name, _ in module.named_children()],
    }


LAYERS = {
    "linear": lambda: nn.Linear(3, 3),
    "batch norm": lambda: nn.BatchNorm1d(3),
    "sequential": lambda: nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 3))),
    "attention": lambda: nn.MultiheadAttention(4, 2),
    "recurrent": lambda: nn.LSTM(3, 2),
    "own": Scale,
    "parametrized": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)),
    "identity": nn.Identity,
}
