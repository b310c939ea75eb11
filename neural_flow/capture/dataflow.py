"""DataflowTracer: which values every op reads, seen by a function mode while the model really runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from neural_flow.capture._functions import ARRAY_ESCAPES, is_writing_by, traits_of
from neural_flow.capture._recorder import Recorder
from neural_flow.capture._tracer import Tracer
from neural_flow.capture._writes import OpCall, Tensors, collect_tensors, versions_of, written_by_name
from neural_flow.module_calls import ModuleTree
from neural_flow.torch_private import no_subclass_function

_PLAIN = frozenset({torch.Tensor, nn.Parameter})
_NO_TENSORS = (torch.Size, int, float, bool, str, torch.dtype, torch.device, torch.layout)


class DataflowTracer(Tracer):
    """Record every op of one run of ``model`` and where its inputs came from.

    ::

        with DataflowTracer(model) as tracer:
            model(x)
        tracer.trace

    A context manager; it does not nest with itself and records one run, in the thread that enters it. Nothing is
    written onto tensors or modules, and no tensor is kept. A module that returns what it was given hands on a fresh
    alias of it, equal bit for bit. Code that no function mode sees into (scripted modules, numpy, other threads)
    becomes one opaque op at the boundary of its module.

    Args:
        model: its calls are followed.
        tree: its modules, where they are known already.

    Attributes:
        trace: the records, from the moment the context is left.
    """

    name = "function"
    is_following = True

    def __init__(self, model: nn.Module, tree: ModuleTree | None = None) -> None:
        super().__init__(model, tree)
        self._mode = _FunctionMode(self)


class _FunctionMode(TorchFunctionMode):
    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer
        self.recorder: Recorder | None = None

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        recorder = self.recorder
        if recorder is None or self.tracer.error is not None:
            return func(*args, **kwargs)
        name, is_plain, is_writing, is_update = traits_of(func)
        leaves: Tensors = []
        versions: list[int] | None = None
        if name == "__get__":
            result = func(*args, **kwargs)
            if not isinstance(result, torch.Tensor):
                return result
            leaves.append(args[0])
        else:
            if name == "__set__" and not (name := _setter_name(func)):
                return func(*args, **kwargs)
            collect_tensors(args, leaves)
            if kwargs:
                collect_tensors(kwargs.values(), leaves)
            if is_writing or (kwargs and is_writing_by(kwargs)):
                is_update = is_update or (is_plain and kwargs.get("inplace") is True)
                is_plain = False
                self.tracer.save_params_under(leaves)
            versions = versions_of(leaves)
            result = func(*args, **kwargs)
            if type(result) is not torch.Tensor and isinstance(result, _NO_TENSORS) and name not in ARRAY_ESCAPES:
                return result
        try:
            if not _are_plain(leaves):
                with no_subclass_function():
                    self._record(func, name, args, kwargs, leaves, versions, result)
            elif (
                is_plain
                and type(result) is torch.Tensor
                and versions is not None
                and versions_of(leaves) == versions
                and not recorder.values.packed
            ):
                recorder.record_plain(func, leaves, result)
            elif is_update and args and result is args[0] is leaves[0] and _is_first_written(leaves, versions):
                recorder.record_update(func, leaves)
            else:
                self._record(func, name, args, kwargs, leaves, versions, result)
        except Exception as error:  # a fault of the tracer must not become one of the model
            self.tracer.error = error
        return result

    def _record(
        self,
        func: Callable[..., Any],
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: Tensors,
        versions: list[int] | None,
        result: Any,
    ) -> None:
        recorder = self.recorder
        assert recorder is not None
        if name in ARRAY_ESCAPES:
            recorder.escape(leaves[0])
            return
        if name == "backward":
            recorder.record_backward(leaves)
            return
        written = written_by_name(name, args, kwargs, leaves, versions) if leaves else []
        recorder.record(OpCall(func, name, args, kwargs, leaves, written, result))


def _are_plain(leaves: Tensors) -> bool:
    return _PLAIN.issuperset(map(type, leaves))


def _is_first_written(leaves: Tensors, versions: list[int] | None) -> bool:
    """Return whether the first of ``leaves``, and none of the others, was written since they had these versions."""
    new = versions_of(leaves)
    return new is not None and versions is not None and new[0] != versions[0] and new[1:] == versions[1:]


def _setter_name(func: Callable[..., Any]) -> str:
    """Return as which function setting an attribute of a tensor counts; empty where it changes no values."""
    attribute = getattr(getattr(func, "__self__", None), "__name__", "")
    return {"data": "__set__", "real": "real_", "imag": "imag_"}.get(attribute, "")
