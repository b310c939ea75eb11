"""What the dataflow tracers share: module calls, model inputs and outputs, and the records at the end.

A subclass adds the mode that intercepts tensor functions and hands each call to the recorder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import torch
from torch import nn

from neural_flow.capture._frames import is_library_file
from neural_flow.capture._metas import RawMeta, finished_meta, raw_meta
from neural_flow.capture._model_info import class_name, model_parts, module_infos, param_infos
from neural_flow.capture._names import input_leaves, output_leaves
from neural_flow.capture._recorder import Recorder
from neural_flow.capture._storage_log import Refs
from neural_flow.capture._values import ValueTable
from neural_flow.module_calls import CallFrame, ModuleCallStack, module_paths
from neural_flow.nested import tensor_leaves
from neural_flow.records import Failure, Leaf, ModuleCall, ProbeEmit, Trace
from neural_flow.torch_private import no_torch_function


@dataclass(slots=True, eq=False)
class _Call:
    """One module call while it is being followed."""

    frame: CallFrame
    parent_id: int | None
    first_op_id: int = 0
    end_op_id: int | None = None
    has_kwargs: bool = True
    inputs: list[RawMeta] = field(default_factory=list)
    input_refs: list[Refs] = field(default_factory=list)
    outputs: list[RawMeta] = field(default_factory=list)
    output_refs: list[Refs] = field(default_factory=list)
    has_returned: bool = False


class Tracer:
    """Follow module calls and record where values come from; the base of the tracers.

    A context manager; it does not nest with itself, and records one run. Nothing is written onto tensors or modules.

    Args:
        model: its calls are followed, in the thread that enters the context.

    Attributes:
        trace: the records, from the moment the context is left.
        error: what went wrong in the tracer itself, or None; the model is not disturbed by it.
    """

    name = "none"

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.error: Exception | None = None
        self.on_param_write: Callable[[torch.Tensor], None] | None = None
        self._paths = module_paths(model)
        self._stack = ModuleCallStack(
            model, on_enter=self._on_enter, on_exit=self._on_exit, on_raise=self._on_raise, paths=self._paths
        )
        self._calls: list[_Call] = []
        self._emits: list[ProbeEmit] = []
        self._inputs: list[tuple[str, RawMeta, Refs]] = []
        self._outputs: list[tuple[str, RawMeta, Refs]] = []
        self._raised: list[tuple[BaseException, int]] = []
        self._recorder: Recorder | None = None
        self._trace: Trace | None = None

    @property
    def trace(self) -> Trace:
        """The records of the run.

        Raises:
            RuntimeError: the context has not been left yet.
        """
        if self._trace is None:
            raise RuntimeError("the trace is ready when the tracer's context has been left")
        return self._trace

    def __enter__(self) -> Self:
        if self._recorder is not None:
            raise RuntimeError(f"a {type(self).__name__} records one run; make a new one for another")
        self._parts = model_parts(self._paths)
        self._recorder = Recorder(ValueTable(self._parts.params, self._parts.constants))
        self._stack.__enter__()
        try:
            self._enter_mode()
        except BaseException:
            self._stack.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._exit_mode()
        finally:
            self._stack.__exit__(kind, error, trace)
        with no_torch_function():
            self._trace = self._finished_trace(error if isinstance(error, Exception) else None)
        self._raised.clear()
        self._recorder = None

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trace:
        """Run the model inside this context; an exception that the model raises ends up in the trace."""
        try:
            with self:
                self.model(*args, **kwargs)
        except Exception:
            if self._trace is None:
                raise
        return self.trace

    def _enter_mode(self) -> None:
        """Start intercepting tensor functions."""

    def _exit_mode(self) -> None:
        """Stop intercepting tensor functions."""

    # -- module calls ----------------------------------------------------------------------------------------------

    def _on_enter(self, frame: CallFrame, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
        parent = frame.parent
        call = _Call(frame, None if parent is None else parent.call_id, has_kwargs=kwargs is not None)
        self._calls.append(call)
        with no_torch_function():
            try:
                self._read_inputs(call, args, kwargs or {})
            except Exception as error:  # a fault of the tracer must not become one of the model
                self.error = self.error or error
        recorder = self._recorder
        assert recorder is not None
        call.first_op_id = len(recorder.ops)
        recorder.call_id = frame.call_id

    def _read_inputs(self, call: _Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        recorder = self._recorder
        assert recorder is not None
        if call.parent_id is None:
            self._tag_inputs(call.frame.module, args, kwargs)
        for leaf in _leaves((*args, *kwargs.values())):
            call.inputs.append(raw_meta(leaf))
            call.input_refs.append(recorder.read(leaf))

    def _tag_inputs(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Make a source of every tensor that the model is called with; a tensor given twice is two sources."""
        recorder = self._recorder
        assert recorder is not None
        is_root = module is self.model or self._paths.get(module) == ""
        tagged: dict[int, Refs] = {}
        for name, leaf in input_leaves(module, args, kwargs):
            if not is_root and recorder.values.is_tagged(leaf):
                continue
            refs = recorder.add_source(leaf, "input", name)
            self._inputs.append((name, raw_meta(leaf), refs))
            tagged[id(leaf)] = (*tagged.get(id(leaf), ()), *refs)
            recorder.values.tag(leaf, tagged[id(leaf)], refs[0][0])

    def _on_exit(self, frame: CallFrame, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        call = self._calls[frame.call_id]
        recorder = self._recorder
        assert recorder is not None
        replaced = output
        with no_torch_function():
            try:
                if not call.has_kwargs and kwargs:
                    self._read_inputs(call, (), kwargs)
                replaced = self._read_outputs(call, args, kwargs, output)
            except Exception as error:  # as above
                self.error = self.error or error
        call.has_returned = True
        self._leave(call)
        return None if replaced is output else replaced

    def _read_outputs(self, call: _Call, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        recorder = self._recorder
        assert recorder is not None
        leaves = _leaves((output,))
        replaceable = {id(leaf) for leaf in _leaves_in_tuples(output, [])}
        replacements: dict[int, torch.Tensor] = {}
        for leaf in leaves:
            call.outputs.append(raw_meta(leaf))
            if id(leaf) not in replacements:
                replacements[id(leaf)] = recorder.hand_on(
                    leaf, call.first_op_id, lambda: _leaves((args, kwargs)), can_replace=id(leaf) in replaceable
                )
            call.output_refs.append(recorder.read(replacements[id(leaf)]))
        if call.parent_id is None:
            names = [name for name, _ in output_leaves(output)]
            self._outputs = list(zip(names, call.outputs, call.output_refs, strict=True))
        return _replaced_in_tuples(output, replacements)

    def _on_raise(
        self, frame: CallFrame, args: tuple[Any, ...], kwargs: dict[str, Any], error: BaseException | None
    ) -> None:
        self._leave(self._calls[frame.call_id])
        if error is not None and not any(error is known for known, _ in self._raised):
            self._raised.append((error, frame.call_id))

    def _leave(self, call: _Call) -> None:
        recorder = self._recorder
        assert recorder is not None
        call.end_op_id = len(recorder.ops)
        recorder.call_id = call.parent_id

    def record_emit(self, name: str, value: Any) -> None:
        """Note that the model emitted ``value``, a nest of tensors, to the probe called ``name``."""
        recorder = self._recorder
        if recorder is None:
            return
        with no_torch_function():
            for suffix, leaf in tensor_leaves(value):
                emit = ProbeEmit(
                    name=name + suffix,
                    call_id=recorder.call_id,
                    meta=finished_meta(raw_meta(leaf)),
                    refs=recorder.read(leaf),
                )
                self._emits.append(emit)

    # -- records ---------------------------------------------------------------------------------------------------

    def _finished_trace(self, error: Exception | None) -> Trace:
        recorder = self._recorder
        assert recorder is not None
        params = param_infos(self._parts)
        return Trace(
            model_name=class_name(self.model),
            class_name=class_name(self.model),
            params=params,
            modules=module_infos(self._paths, self._parts, params),
            calls=tuple(self._finished_call(call) for call in self._calls),
            ops=recorder.finished_ops(),
            inputs=tuple(Leaf(name=name, meta=finished_meta(raw), refs=refs) for name, raw, refs in self._inputs),
            outputs=tuple(Leaf(name=name, meta=finished_meta(raw), refs=refs) for name, raw, refs in self._outputs),
            emits=tuple(self._emits),
            has_dataflow=self.error is None and self.name != "none",
            tracer=self.name,
            failure=None if error is None else self._failure(error),
        )

    def _finished_call(self, call: _Call) -> ModuleCall:
        recorder = self._recorder
        assert recorder is not None
        return ModuleCall(
            call_id=call.frame.call_id,
            path=call.frame.path,
            call_index=call.frame.call_index,
            class_name=class_name(call.frame.module),
            parent_id=call.parent_id,
            inputs=tuple([finished_meta(raw) for raw in call.inputs]),
            outputs=tuple([finished_meta(raw) for raw in call.outputs]),
            input_refs=tuple(call.input_refs),
            output_refs=tuple(call.output_refs),
            first_op_id=call.first_op_id,
            end_op_id=len(recorder.ops) if call.end_op_id is None else call.end_op_id,
            has_returned=call.has_returned,
        )

    def _failure(self, error: BaseException) -> Failure:
        """Return where the model raised: the innermost call that ``error``, or what it was raised from, came through."""
        chain = _causes(error)
        found = next((call_id for raised, call_id in self._raised if any(raised is one for one in chain)), None)
        call = self._calls[found] if found is not None else (self._calls[0] if self._calls else None)
        return Failure(
            module="" if call is None else call.frame.path,
            call=0 if call is None else call.frame.call_index,
            call_id=None if call is None else call.frame.call_id,
            type=type(error).__name__,
            message=str(error),
            inputs=() if call is None else tuple(finished_meta(raw) for raw in call.inputs),
            location=_raised_at(error),
        )


def _leaves(values: tuple[Any, ...]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif value is not None:
            found += [leaf for _, leaf in tensor_leaves(value)]
    return found


def _leaves_in_tuples(value: Any, found: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors that can be exchanged without touching an object that somebody else may hold."""
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, tuple):
        for item in value:
            _leaves_in_tuples(item, found)
    return found


def _replaced_in_tuples(value: Any, replacements: dict[int, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return replacements.get(id(value), value)
    if not isinstance(value, tuple):
        return value
    items = [_replaced_in_tuples(item, replacements) for item in value]
    if all(new is old for new, old in zip(items, value, strict=True)):
        return value
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def _causes(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and not any(following is one for one in chain):
        chain.append(following)
        following = following.__cause__ or following.__context__
    return chain


def _raised_at(error: BaseException) -> str | None:
    place = None
    trace = error.__traceback__
    while trace is not None:
        if not is_library_file(trace.tb_frame.f_code.co_filename):
            place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
