"""Emissions of code that runs as a graph: an operation that a compiler keeps, and that emits when the graph runs."""

from __future__ import annotations

import ast
import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from neural_flow import torch_private

_PROBES: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_NUMBERS = itertools.count(1)
_IS_DEFINED: list[bool] = []


def register(probe: Any) -> int:
    """Return the number by which graphs know ``probe``."""
    token = next(_NUMBERS)
    _PROBES[token] = probe
    return token


def define_operation() -> None:
    """Define the operation, once a process."""
    if not _IS_DEFINED:
        torch_private.define_effect("neural_flow::emit", _run)
        _IS_DEFINED.append(True)


def emit(token: int, value: Any) -> None:
    """Put an emission into the graph that is being compiled; runs while the compiler traces this code."""
    if not _IS_DEFINED:
        return  # compiled while nobody could collect from graphs; defining the operation compiles anew
    leaves: list[torch.Tensor] = []
    torch.ops.neural_flow.emit(leaves, token, _written(value, leaves))


def route(token: int, value: Any) -> bool:
    """Hand tensors of a tracer to the operation, so that the graph emits when it runs; False where it cannot."""
    if not _IS_DEFINED:
        return False
    leaves: list[torch.Tensor] = []
    try:
        spec = _written(value, leaves)
    except TypeError:
        return False
    torch.ops.neural_flow.emit(leaves, token, spec)
    return True


def _run(leaves: list[torch.Tensor], token: int, spec: str) -> None:
    probe = _PROBES.get(token)
    if probe is not None:
        probe.emit(_read(ast.literal_eval(spec), iter(leaves)))


def _written(value: Any, leaves: list[torch.Tensor]) -> str:
    """Append the tensors of a nest to ``leaves`` and return its structure as a Python literal, ``0`` for a tensor."""
    if isinstance(value, torch.Tensor):
        leaves.append(value)
        return "0"
    if isinstance(value, dict):
        return "{" + ",".join([repr(key) + ":" + _written(part, leaves) for key, part in value.items()]) + "}"
    if type(value) in (list, tuple):
        inside = "".join([_written(part, leaves) + "," for part in value])
        return "[" + inside + "]" if isinstance(value, list) else "(" + inside + ")"
    raise TypeError(
        f"inside a compiled function a probe takes tensors in tuples, lists and dicts, not {type(value).__name__}"
    )


def _read(spec: Any, leaves: Iterator[torch.Tensor]) -> Any:
    if isinstance(spec, dict):
        return {key: _read(part, leaves) for key, part in spec.items()}
    if isinstance(spec, list | tuple):
        return type(spec)(_read(part, leaves) for part in spec)
    return next(leaves)
