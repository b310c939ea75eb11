"""What the dataflow tracers share: module calls, model inputs and outputs, and the records at the end.

A subclass adds the mode that intercepts tensor functions and hands each call to the recorder.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol, Self

import torch
from torch import nn

from neural_flow.capture._calls import FollowedCall, failure_of, tensors_in
from neural_flow.capture._frames import starts_a_run
from neural_flow.capture._handover import fresh_alias, replaceable_leaves, replaced, unheld_refcount
from neural_flow.capture._metas import RawMeta, finished_meta, raw_meta
from neural_flow.capture._model_info import class_name, model_parts, module_infos, own_tensors, param_infos
from neural_flow.capture._names import input_leaves, output_leaves
from neural_flow.capture._recorder import Recorder
from neural_flow.capture._storage_log import Refs
from neural_flow.capture._values import ValueTable
from neural_flow.module_calls import CallFrame, ModuleCallStack, ModuleTree, module_tree
from neural_flow.nested import every_tensor, tensor_leaves
from neural_flow.probe import ObserverHandle, Probe, observe_every_emit
from neural_flow.records import Leaf, ProbeEmit, Trace
from neural_flow.torch_private import no_torch_function


class RecordingMode(Protocol):
    """A mode of torch that hands what it intercepts to a recorder, while it has one."""

    recorder: Recorder | None

    def __enter__(self) -> object: ...

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> object: ...


class Tracer:
    """Follow module calls and record where values come from; the base of the tracers.

    A context manager; it does not nest with itself, and records one run. Nothing is written onto tensors or modules.

    Args:
        model: its calls are followed, in the thread that enters the context.
        tree: its modules, where they are known already.

    Attributes:
        trace: the records, from the moment the context is left.
        on_param_write: called with a parameter before something writes it.
        error: what went wrong in the tracer itself, or None; the model is not disturbed by it.
        raised: what the model raised in ``run``, or None.
        num_blind: how many values came from where the tracer does not see, but other code of the model may.
    """

    name = "none"
    is_following = False

    def __init__(self, model: nn.Module, tree: ModuleTree | None = None) -> None:
        self.model = model
        self.error: Exception | None = None
        self.raised: Exception | None = None
        self.on_param_write: Callable[[torch.Tensor], None] | None = None
        self._tree = module_tree(model) if tree is None else tree
        self._paths = self._tree.paths
        self._stack = ModuleCallStack(
            model,
            on_enter=self._on_enter,
            on_exit=self._on_exit,
            on_raise=self._on_raise,
            on_foreign=self._on_foreign,
            paths=self._paths,
        )
        self._foreign: set[nn.Module] = set()
        self._calls: list[FollowedCall] = []
        self._emits: list[ProbeEmit] = []
        self._emit_watch: ObserverHandle | None = None
        self._thread_id = threading.get_ident()
        self._inputs: list[tuple[str, RawMeta, Refs]] = []
        self._outputs: list[tuple[str, RawMeta, Refs]] = []
        self._raised: list[tuple[BaseException, int]] = []
        self._recorder: Recorder | None = None
        self._mode: RecordingMode | None = None
        self._trace: Trace | None = None
        self._unknown: list[tuple[int, weakref.ref[torch.Tensor]]] = []
        self.num_blind = 0

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
        if self._recorder is not None or self._trace is not None:
            raise RuntimeError(f"a {type(self).__name__} records one run; make a new one for another")
        unheld_refcount()  # measured before any mode is on
        self._parts = model_parts(self._tree)
        self._recorder = Recorder(ValueTable(self._parts.params, self._parts.constants, self._parts.packed))
        self._stack.__enter__()
        try:
            self._enter_mode()
        except BaseException:
            self._stack.__exit__(None, None, None)
            raise
        self._emit_watch = observe_every_emit(self._on_emit)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._emit_watch is not None:
            self._emit_watch.remove()
        try:
            self._exit_mode()
        finally:
            self._stack.__exit__(kind, error, trace)
        with self._quiet():
            self._trace = self._finished_trace(error if isinstance(error, Exception) else None)
        if self._recorder is not None:
            self._unknown = self._recorder.unknown
            self.num_blind = len(self._unknown) + self._recorder.num_opaque_joins
        self._raised.clear()
        self._parts.constants.clear()  # clones of buffers, which nobody else holds any more
        self._recorder = None

    @starts_a_run
    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trace:
        """Run the model inside this context; an exception that the model raises ends up in the trace."""
        try:
            with self:
                self.model(*args, **kwargs)
        except Exception as error:
            if self._trace is None:
                raise
            self.raised = error
        return self.trace

    def save_params_under(self, tensors: list[torch.Tensor]) -> None:
        """Tell ``on_param_write`` of each parameter whose bytes are about to be written through one of ``tensors``."""
        recorder = self._recorder
        if self.on_param_write is None or recorder is None:
            return
        for tensor in tensors:
            param = recorder.values.param_under(tensor)
            if param is not None:
                self.on_param_write(param)

    def written_params(self) -> list[torch.Tensor]:
        """Return the parameters that the run wrote."""
        return [self._parts.params[param_id] for param_id in self.trace.written_param_ids]

    def lasting_unknown(self) -> list[int]:
        """Return the ops that stand for tensors of unknown origin that are still alive, and stop counting these."""
        if any(tensor() is not None for _, tensor in self._unknown):
            gc.collect()  # what the run made may hang in reference cycles
        alive = [op_id for op_id, tensor in self._unknown if tensor() is not None]
        self.num_blind -= len(alive)
        self._unknown = []
        return alive

    def _enter_mode(self) -> None:
        """Start intercepting tensor functions."""
        if self._mode is not None:
            self._mode.recorder = self._recorder
            self._mode.__enter__()

    def _exit_mode(self) -> None:
        """Stop intercepting tensor functions."""
        if self._mode is not None:
            self._mode.__exit__(None, None, None)
            self._mode.recorder = None

    _quiet: Callable[[], AbstractContextManager[object]] = no_torch_function
    """Returns a context in which the tracer's own work with tensors is not traced."""

    def _on_enter(self, frame: CallFrame, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
        call = FollowedCall(frame, has_kwargs=kwargs is not None)
        self._calls.append(call)
        recorder = self._recorder
        assert recorder is not None
        with self._quiet():
            try:
                if self.is_following and call.parent_id is None:
                    self._tag_inputs(frame.module, args, kwargs or {})
                self._read_inputs(call, tensors_in((*args, *kwargs.values()) if kwargs else args))
            except Exception as error:  # a fault of the tracer must not become one of the model
                self.error = self.error or error
        call.first_op_id = len(recorder.ops)
        recorder.call_id = frame.call_id

    def _read_inputs(self, call: FollowedCall, leaves: list[torch.Tensor]) -> None:
        recorder = self._recorder
        assert recorder is not None
        for leaf in leaves:
            refs = recorder.read(leaf) if self.is_following else ()
            call.inputs.append(recorder.meta_of(leaf, refs))
            call.input_refs.append(refs)

    def _tag_inputs(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Make a source of every tensor that the model is called with; one given twice gets two."""
        recorder = self._recorder
        assert recorder is not None
        is_root = module is self.model or self._paths.get(module) == ""
        recorder.values.add_constants(every_tensor((args, kwargs)))  # what lies too deep to be an input
        tagged: dict[int, Refs] = {}
        for name, leaf in input_leaves(module, args, kwargs):
            if not is_root and recorder.values.is_made(leaf):
                continue
            refs = recorder.add_source(leaf, "input", name)
            self._inputs.append((name, raw_meta(leaf), refs))
            if id(leaf) in tagged:
                recorder.values.join(leaf, tagged[id(leaf)], refs[0][0])
            tagged[id(leaf)] = (*tagged.get(id(leaf), ()), *refs)

    def _on_exit(self, frame: CallFrame, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        call = self._calls[frame.call_id]
        recorder = self._recorder
        assert recorder is not None
        held = sys.getrefcount(output)
        handed = output
        with self._quiet():
            try:
                if not call.has_kwargs and kwargs:
                    self._read_inputs(call, tensors_in(tuple(kwargs.values())))
                handed = self._read_outputs(call, args, kwargs, output, held)
            except Exception as error:  # as above
                self.error = self.error or error
        call.has_returned = True
        self._leave(call)
        return None if handed is output else handed

    def _read_outputs(
        self, call: FollowedCall, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, held: int
    ) -> Any:
        recorder = self._recorder
        assert recorder is not None
        if self.is_following and call.parent_id is not None and isinstance(output, torch.Tensor):
            refs = recorder.values.read(output)
            if refs and refs[-1][0] >= call.first_op_id:  # by far the most calls: one tensor, made inside
                call.outputs.append(recorder.meta_of(output, refs))
                call.output_refs.append(refs)
                return output
        can_replace = {id(leaf) for leaf in replaceable_leaves(output, is_ours=held <= unheld_refcount())}
        replacements: dict[int, torch.Tensor] = {}
        for leaf in tensors_in((output,)):
            call.outputs.append(raw_meta(leaf))
            if self.is_following and id(leaf) not in replacements:
                replacements[id(leaf)] = self._hand_on(call, leaf, args, kwargs, can_replace=id(leaf) in can_replace)
            call.output_refs.append(recorder.read(replacements[id(leaf)]) if self.is_following else ())
        if call.parent_id is None:
            names = [name for name, _ in output_leaves(output)]
            self._outputs = list(zip(names, call.outputs, call.output_refs, strict=True))
        return replaced(output, replacements)

    def _hand_on(
        self,
        call: FollowedCall,
        leaf: torch.Tensor,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        can_replace: bool,
    ) -> torch.Tensor:
        """Return the tensor that the caller gets for an output leaf: an alias of it if the call only passed it on."""
        recorder = self._recorder
        assert recorder is not None
        op_id = recorder.add_output(leaf, call.first_op_id, lambda: tensors_in((*args, *kwargs.values())))
        if op_id is None:
            return leaf
        handed = fresh_alias(leaf) if can_replace else None
        if handed is None:
            handed = leaf
            if not recorder.values.read(leaf):  # a parameter or constant stays one for those who read it elsewhere
                return leaf
        recorder.values.tag(handed, ((op_id, 0),), op_id)
        return handed

    def _on_raise(
        self, frame: CallFrame, args: tuple[Any, ...], kwargs: dict[str, Any], error: BaseException | None
    ) -> None:
        self._leave(self._calls[frame.call_id])
        if error is not None and not any(error is known for known, _ in self._raised):
            self._raised.append((error, frame.call_id))

    def _on_foreign(self, module: nn.Module) -> None:
        """Take the parameters of a module that the model reaches by a global or a closure for constants."""
        if self._recorder is not None and module not in self._foreign:
            self._foreign.add(module)
            with self._quiet():
                self._recorder.values.add_constants(own_tensors(module))

    def _leave(self, call: FollowedCall) -> None:
        recorder = self._recorder
        assert recorder is not None
        call.end_op_id = len(recorder.ops)
        recorder.call_id = call.parent_id

    def _on_emit(self, probe: Probe, value: Any) -> None:
        if threading.get_ident() == self._thread_id:
            self.record_emit(probe.name or "probe", value)

    def record_emit(self, name: str, value: Any) -> None:
        """Note that the model emitted ``value``, a nest of tensors, to the probe called ``name``."""
        recorder = self._recorder
        if recorder is None:
            return
        with self._quiet():
            try:
                for suffix, leaf in tensor_leaves(value):
                    meta = finished_meta(raw_meta(leaf))
                    refs = recorder.read(leaf) if self.is_following else ()
                    self._emits.append(ProbeEmit(name=name + suffix, call_id=recorder.call_id, meta=meta, refs=refs))
            except Exception as error:  # as above
                self.error = self.error or error

    def _finished_trace(self, error: Exception | None) -> Trace:
        recorder = self._recorder
        assert recorder is not None
        params = param_infos(self._parts)
        root = next((module for module, path in self._paths.items() if not path), self.model)  # inside its wrappers
        return Trace(
            model_name=class_name(root),
            class_name=class_name(root),
            params=params,
            modules=module_infos(self._tree, self._parts, params),
            calls=tuple(call.finished(len(recorder.ops)) for call in self._calls),
            ops=recorder.finished_ops(),
            inputs=tuple(Leaf(name=name, meta=finished_meta(raw), refs=refs) for name, raw, refs in self._inputs),
            outputs=tuple(Leaf(name=name, meta=finished_meta(raw), refs=refs) for name, raw, refs in self._outputs),
            emits=tuple(self._emits),
            written_param_ids=tuple(sorted(recorder.values.written_param_ids())),
            has_dataflow=self.error is None and self.is_following,
            tracer=self.name,
            failure=None if error is None else failure_of(error, self._raised, self._calls),
        )
