"""Run a model in the lower precision that autocast picks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from contextlib import AbstractContextManager

import torch
from torch import nn

from neural_flow.errors import UsageError


def autocast_as_asked(
    model: nn.Module, tensors: Iterable[torch.Tensor] = (), *, is_on: bool
) -> AbstractContextManager[object]:
    """Return ``torch.autocast`` for the kind of device that ``model`` is on; where it is not asked for, nothing.

    Each pass enters a new one: copies of weights that autocast keeps would outlive a weight that the model writes.

    Args:
        model: what will run; a model without parameters and buffers runs where its inputs are.
        tensors: the inputs.
        is_on: whether autocast is asked for.

    Raises:
        UsageError: autocast knows no such device.
    """
    if not is_on:
        return contextlib.nullcontext()
    kind = next((tensor.device.type for tensor in (*model.parameters(), *model.buffers(), *tensors)), "cpu")
    if not torch.amp.is_autocast_available(kind):
        raise UsageError(f"there is no autocast on {kind}", hint="leave --autocast out, or choose another --device")
    return torch.autocast(kind)
