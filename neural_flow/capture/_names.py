"""Names of the tensors that enter and leave a model, as users write them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from neural_flow.nested import tensor_leaves


def input_leaves(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[tuple[str, torch.Tensor]]:
    """Return (name, tensor) for each tensor leaf of a call's arguments: ``x``, ``pair[0]``, ``extra.emb``, ``rest[0]``.

    Arguments come in the order of forward's signature, ``**extra`` last in call order; where they do not fit the
    signature, positional ones are called ``args``.
    """
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        bound = {"args": args, **kwargs}
    return [leaf for name, value in bound.items() for leaf in tensor_leaves(value, name)]


def output_leaves(output: Any) -> list[tuple[str, torch.Tensor]]:
    """Return (name, tensor) for every tensor leaf of a model's output: ``output``, ``output[0]``, ``logits``."""
    return [(name.removeprefix("output."), leaf) for name, leaf in tensor_leaves(output, "output")]
