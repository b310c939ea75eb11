"""Run a model once to see whether it takes some inputs, and leave it as it was."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Generator, Mapping
from typing import Any

import torch
from torch import nn

from neural_flow.models._base import seeded
from neural_flow.models.fake import mode_of


def runs_with(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether forward takes these inputs: eval mode, no gradients, nothing printed, every state restored."""
    return failure_with(model, args, kwargs) is None


def failure_with(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Exception | None:
    """Return what forward raises with these inputs, or None; as ``runs_with``."""
    with undisturbed(model):
        try:
            model(*args, **kwargs)
        except Exception as error:  # any error of the user's code means the same here: these inputs do not fit
            return error
        return None


def embeddings_reached(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[int, int]:
    """Return, for each tensor that an embedding reads as it is, ``id(tensor)`` and the number of ids there.

    The run ends where it ends: an embedding given floats raises, which is why it was asked.
    """
    found: dict[int, int] = {}
    by_storage = {
        id(value): value.untyped_storage().data_ptr() for value in [*args, *kwargs.values()] if _is_tensor(value)
    }

    def look(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        for key, storage in by_storage.items():
            if inputs and _is_tensor(inputs[0]) and inputs[0].untyped_storage().data_ptr() == storage:
                found[key] = min(found.get(key, module.num_embeddings), module.num_embeddings)  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]

    handles = [
        module.register_forward_pre_hook(look)
        for module in model.modules()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag)
    ]
    try:
        with undisturbed(model), contextlib.suppress(Exception):
            model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return found


@contextlib.contextmanager
def undisturbed(model: nn.Module) -> Generator[None]:
    """Switch to eval mode without gradients and silence the model; restore its modes, buffers and all generators."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        with contextlib.suppress(NotImplementedError):  # exported programs have one mode
            model.eval()
        with (
            seeded(0),
            mode_of(model),
            torch.no_grad(),
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        for module, is_training in modes:
            module.training = is_training
        with torch.no_grad():
            for buffer, value in buffers:
                if buffer.shape == value.shape:
                    buffer.copy_(value)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided
