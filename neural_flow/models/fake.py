"""Build a model without memory: every tensor that its code makes is a fake one, which knows its shape and no values."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import nn

from neural_flow.models._base import describe_error
from neural_flow.torch_private import FakeTensor, FakeTensorMode


def build_fake(make: Callable[[], nn.Module]) -> tuple[nn.Module, tuple[str, ...]]:
    """Return what ``make`` builds, with fake parameters and buffers, and what was decided.

    Code that reads values while it builds (``.item()``, numpy, weights of other formats) runs again with real tensors;
    what is wrong with the code itself is raised by that second run.
    """
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            return make(), ()
    except Exception as error:  # whatever the cause is, the real run tells
        model = make()
        reason = describe_error(error.__cause__ if isinstance(error.__cause__, Exception) else error)
        return model, (f"--fake: the model is built with real tensors, since its code reads values: {reason}",)


def mode_of(model: nn.Module) -> AbstractContextManager[object]:
    """Return the context in which a model with fake parameters runs; one that does nothing for any other model."""
    tensors: list[Any] = [*model.parameters(), *model.buffers()]
    return next((tensor.fake_mode for tensor in tensors if isinstance(tensor, FakeTensor)), contextlib.nullcontext())
