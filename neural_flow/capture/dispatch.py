"""DispatchTracer: the same records as DataflowTracer, seen below autograd by a dispatch mode.

It sees into scripted modules, function transforms and nested tensors, where a function mode does not, at several
times the cost; ops have their decomposed names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from neural_flow.capture._functions import short_name
from neural_flow.capture._recorder import Recorder
from neural_flow.capture._tracer import Tracer
from neural_flow.capture._writes import OpCall, Tensors, collect_tensors, is_among
from neural_flow.module_calls import ModuleTree
from neural_flow.torch_private import no_torch_function

_WRITES: dict[Any, tuple[tuple[int, ...], tuple[str, ...]]] = {}


class DispatchTracer(Tracer):
    """Record every dispatched op of one run of ``model``; used like DataflowTracer.

    A context manager; it does not nest with itself and records one run, in the thread that enters it.

    Args:
        model: its calls are followed.
        tree: its modules, where they are known already.

    Attributes:
        trace: the records, from the moment the context is left.
    """

    name = "dispatch"
    is_following = True

    def __init__(self, model: nn.Module, tree: ModuleTree | None = None) -> None:
        super().__init__(model, tree)
        self._mode = _DispatchMode(self)
        self._quiet = self._mode.paused


class _DispatchMode(TorchDispatchMode):
    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer
        self.recorder: Recorder | None = None
        self._is_paused = False

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        """Let what the tracer does with tensors itself pass unseen."""
        self._is_paused = True
        try:
            with no_torch_function():
                yield
        finally:
            self._is_paused = False

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        recorder = self.recorder
        if recorder is None or self._is_paused:
            return func(*args, **kwargs)
        written = _written_by_schema(func, args, kwargs)
        if written:
            with self.paused():
                self.tracer.save_params_under(written)
        result = func(*args, **kwargs)
        if self.tracer.error is not None:
            return result
        try:
            with self.paused():
                leaves = collect_tensors((*args, *kwargs.values()), [])
                recorder.record(OpCall(func, short_name(func), args, kwargs, leaves, written, result))
        except Exception as error:  # a fault of the tracer must not become one of the model
            self.tracer.error = error
        return result


def _written_by_schema(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensors:
    """Return which arguments an op writes, by its schema."""
    if func not in _WRITES:
        arguments = list(func._schema.arguments) if hasattr(func, "_schema") else []
        written = [
            (index, one.name) for index, one in enumerate(arguments) if one.alias_info and one.alias_info.is_write
        ]
        _WRITES[func] = (tuple([index for index, _ in written]), tuple([name for _, name in written]))
    positions, names = _WRITES[func]
    if not positions:
        return []
    values = [args[index] for index in positions if index < len(args)]
    values += [kwargs[name] for name in names if name in kwargs]
    unique: Tensors = []
    for tensor in collect_tensors(values, []):
        if isinstance(tensor, torch.Tensor) and not is_among(tensor, unique):
            unique.append(tensor)
    return unique
