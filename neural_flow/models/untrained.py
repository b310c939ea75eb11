"""Whether a model still has the weights that it was made with."""

from __future__ import annotations

from math import prod, sqrt

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

_SLACK = 1 + 1e-3
_BOUNDED = (
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d
)  # fmt: skip


def is_untrained(model: nn.Module) -> bool:
    """Return whether every weight that could tell is as initialisers leave it.

    Scales and shifts of normalisations are made constant, and stay so only until the first step of an optimizer; they
    decide alone where there are any. Without them every bias must be constant, as libraries make them, or the layer
    must lie inside the bound that torch draws it from. What only the first run makes has not been trained. A model in
    which nothing can tell is not called untrained.
    """
    norms, biases, drawn = list[bool](), list[bool](), list[bool]()
    with torch.no_grad():
        for module in model.modules():
            drawn += [True for value in module._parameters.values() if value is not None and is_lazy(value)]
            own = {name: value for name, value in module.named_parameters(recurse=False) if _can_be_read(value)}
            weight, bias = own.get("weight"), own.get("bias")
            if weight is not None and weight.dim() == 1:
                norms += [_is_constant(value) for value in (weight, bias) if value is not None]
            elif weight is not None and weight.dim() > 1 and not isinstance(module, nn.Embedding | nn.EmbeddingBag):
                bound = _SLACK / sqrt(max(prod(weight.shape[1:]), 1))
                if bias is not None and _is_constant(bias):
                    biases.append(True)
                elif isinstance(module, _BOUNDED):
                    drawn.append(_is_within(weight, bound) and (bias is None or _is_within(bias, bound)))
                elif bias is not None:
                    biases.append(False)
            if not all(norms[-2:]):
                return False
    told = norms or [*biases, *drawn]
    return bool(told) and all(told)


def _can_be_read(value: Tensor) -> bool:
    if is_lazy(value):
        return False  # it has no values before the first run
    return not value.is_meta and value.is_floating_point() and value.numel() > 0 and value.layout == torch.strided


def _is_constant(value: Tensor) -> bool:
    low, high = torch.aminmax(value.float())
    return bool(low == high)


def _is_within(value: Tensor, bound: float) -> bool:
    return bool(value.float().abs().max() <= bound)
