"""What a module call hands to its caller where its output holds tensors that it did not make itself.

The caller must get another tensor object than the one that went in, or else its later reads of the original would
pass for reads of the call's output. Only objects that nobody else can hold are changed.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from neural_flow.module_calls import CallFrame, ModuleCallStack
from neural_flow.torch_private import no_torch_function


def fresh_alias(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return another object with the same bytes, version counter and gradient; None where there can be none."""
    if type(tensor) is not torch.Tensor and not (type(tensor) is nn.Parameter and not torch.is_grad_enabled()):
        return None
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        return None
    try:
        alias = tensor.view_as(tensor) if tensor.requires_grad and torch.is_grad_enabled() else tensor.detach()
    except (RuntimeError, NotImplementedError):
        return None
    if vars(tensor):
        vars(alias).update(vars(tensor))
    return alias


def replaceable_leaves(output: Any, *, is_ours: bool) -> list[torch.Tensor]:
    """Return the tensors in ``output`` that can be exchanged without touching what somebody else may hold.

    Args:
        output: what a call returned.
        is_ours: whether nobody but the call machinery holds ``output``, so that it may be changed in place.
    """
    found: list[torch.Tensor] = []
    if isinstance(output, torch.Tensor):
        found.append(output)
    elif isinstance(output, tuple):
        for item in output:
            found += replaceable_leaves(item, is_ours=False)
    elif is_ours:
        found += [item for _, item in _items(output) if isinstance(item, torch.Tensor)]
    return found


def replaced(output: Any, replacements: dict[int, torch.Tensor]) -> Any:
    """Return ``output`` with tensors exchanged: tuples are rebuilt, other containers changed in place.

    Args:
        output: what a call returned.
        replacements: the new tensor for the identity of each old one.
    """
    if isinstance(output, torch.Tensor):
        return replacements.get(id(output), output)
    if isinstance(output, tuple):
        items = [replaced(item, replacements) if isinstance(item, torch.Tensor | tuple) else item for item in output]
        if all(new is old for new, old in zip(items, output, strict=True)):
            return output
        return type(output)(*items) if hasattr(output, "_fields") else type(output)(items)
    for key, item in _items(output):
        if isinstance(item, torch.Tensor) and replacements.get(id(item), item) is not item:
            _set_item(output, key, replacements[id(item)])
    return output


def _items(container: Any) -> list[tuple[Any, Any]]:
    if isinstance(container, Mapping):
        return list(container.items())
    if isinstance(container, list):
        return list(enumerate(container))
    if dataclasses.is_dataclass(container):
        return [(field.name, getattr(container, field.name, None)) for field in dataclasses.fields(container)]
    if isinstance(container, nn.Module | type) or callable(container):
        return []
    return list(getattr(container, "__dict__", {}).items())


def _set_item(container: Any, key: Any, item: torch.Tensor) -> None:
    if isinstance(container, Mapping | list):
        container[key] = item  # type: ignore[index]  # a mapping that cannot be written raises, and stays as it is
    else:
        object.__setattr__(container, key, item)  # frozen dataclasses refuse setattr


@functools.cache
def unheld_refcount() -> int:
    """Return how many references an output has, seen from the exit callback, that only the call machinery holds."""
    counts: list[int] = []

    class _Fresh(nn.Module):
        def forward(self) -> dict[str, int]:
            return {}

    def look(_frame: CallFrame, _args: tuple[Any, ...], _kwargs: dict[str, Any], output: Any) -> None:
        counts.append(sys.getrefcount(output))

    model = _Fresh()
    with no_torch_function(), ModuleCallStack(model, on_exit=look):
        model()
    return counts[0]
