"""The metadata pass: run the model once and return what ran, on what shapes, and where every value came from."""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from neural_flow.capture._stand_ins import FakeStandIns, MetaStandIns, StandIns
from neural_flow.capture._tracer import Tracer
from neural_flow.capture.dataflow import DataflowTracer
from neural_flow.capture.dispatch import DispatchTracer
from neural_flow.capture.session import Session
from neural_flow.errors import TopologyFallbackWarning, UnknownNameError
from neural_flow.records import Trace


def run_metadata_pass(
    model: nn.Module,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    train: bool | None = False,
    seed: int | None = None,
    grad: bool = False,
    device: torch.device | str | None = None,
    tracer: str = "function",
    fake: bool = False,
    model_name: str | None = None,
    on_raise: Callable[[Exception], None] | None = None,
) -> Trace:
    """Run ``model`` once inside a session of its own and return its trace.

    If the model raises, the trace holds all that ran before and ``failure`` says where it stopped. If the tracer
    itself cannot follow, the model is run again without it from the restored state: the trace then has module calls
    only (``has_dataflow`` is False). If values came from code that a function mode does not see into, the model is
    run again under a dispatch mode, and the trace that knows more is returned.

    Args:
        model: any module; it is left as it was.
        args: positional arguments; tensors are cloned.
        kwargs: keyword arguments; tensors are cloned.
        train: as in Session.
        seed: as in Session.
        grad: as in Session.
        device: as in Session.
        tracer: ``function`` (a torch function mode) or ``dispatch`` (a torch dispatch mode).
        fake: run on fake tensors, or on the meta device where these do not serve: shapes only, no memory.
        model_name: name of the model in the records; by default its class.
        on_raise: told the exception that the model raised, where it did; the trace itself holds its text only.

    Raises:
        UnknownNameError: there is no such tracer.

    Warns:
        TopologyFallbackWarning: the tracer could not follow this model.
    """
    if tracer not in TRACERS:
        raise UnknownNameError("tracer", tracer, TRACERS)
    run = _Run(model, args, dict(kwargs or {}), {"train": train, "seed": seed, "grad": grad, "device": device})
    trace = run.on_stand_ins(TRACERS[tracer]) if fake else run.checked(TRACERS[tracer])
    if on_raise is not None and trace.failure is not None and run.raised is not None:
        on_raise(run.raised)
    return trace if model_name is None else dataclasses.replace(trace, model_name=model_name)


TRACERS: Mapping[str, type[Tracer]] = MappingProxyType({"function": DataflowTracer, "dispatch": DispatchTracer})


@dataclasses.dataclass(slots=True)
class _Run:
    """The same run of a model as often as it takes, each time from the same state."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: dict[str, Any]
    written: Iterable[torch.Tensor] = ()
    raised: Exception | None = None

    def once(self, kind: type[Tracer], stand_ins: StandIns | None = None) -> tuple[Trace, Tracer]:
        """Run once under a tracer of the given kind."""
        options: dict[str, Any] = {
            **self.options,
            "stand_ins": stand_ins,
            "written_params": () if stand_ins else self.written,
        }
        with Session(self.model, self.args, self.kwargs, **options) as session:
            follower = kind(self.model, session.tree)
            follower.on_param_write = session.save_param
            trace = follower.run(session.args, session.kwargs)
        self.raised, follower.raised = follower.raised or self.raised, None
        if stand_ins is None:
            self.written = {id(param): param for param in (*self.written, *follower.written_params())}.values()
        return (_with_constants(trace, follower) if follower.error is None else trace), follower

    def checked(self, kind: type[Tracer], stand_ins: StandIns | None = None) -> Trace:
        """Run, find out whether an exception is the model's or the tracer's, and fall back where it is the tracer's."""
        had_dynamo = "torch._dynamo" in sys.modules
        trace, follower = self.once(kind, stand_ins)
        if (trace.failure or follower.error) and not had_dynamo and "torch._dynamo" in sys.modules:
            # the model began to compile while it was traced; now that Dynamo is there, a session runs it eagerly
            trace, follower = self.once(kind, stand_ins)
        reason = "" if follower.error is None else f"{type(follower.error).__name__}: {follower.error}"
        if reason:
            trace, _ = self.once(Tracer, stand_ins)
        elif trace.failure is not None:
            plain, _ = self.once(Tracer, stand_ins)
            if plain.failure is None or plain.failure.type != trace.failure.type:
                reason, trace = f"{trace.failure.type}: {trace.failure.message}", plain
        elif follower.num_blind and kind is DataflowTracer:
            return self._seen_deeper(trace, follower, stand_ins)
        if not reason:
            return trace
        warnings.warn(
            f"the dataflow of {trace.class_name} could not be traced ({reason}); using execution order instead",
            TopologyFallbackWarning,
            stacklevel=4,
        )
        return dataclasses.replace(trace, has_dataflow=False, notes=(*trace.notes, f"dataflow not traced: {reason}"))

    def _seen_deeper(self, trace: Trace, follower: Tracer, stand_ins: StandIns | None) -> Trace:
        """Return what a dispatch mode sees, if it loses track of fewer values than the function mode did."""
        deeper, deep_follower = self.once(DispatchTracer, stand_ins)
        if deeper.failure is not None or deep_follower.error is not None:
            return trace
        return deeper if deep_follower.num_blind < follower.num_blind else trace

    def on_stand_ins(self, kind: type[Tracer]) -> Trace:
        """Run on fake tensors; where the model raises on them, on the meta device."""
        tensors = (*self.model.parameters(), *self.model.buffers())
        trace = self.checked(kind, FakeStandIns(tensors))
        if trace.failure is None:
            return dataclasses.replace(trace, notes=(*trace.notes, "run on fake tensors"))
        on_meta = self.checked(kind, MetaStandIns())
        if on_meta.failure is None:
            return dataclasses.replace(on_meta, notes=(*on_meta.notes, "run on the meta device"))
        return trace


def _with_constants(trace: Trace, follower: Tracer) -> Trace:
    """Return ``trace`` with tensors that outlive the run taken for constants of the user's program.

    What a run makes is gone once the run is over and its session has put the modules back; a tensor of unknown
    origin that is still there has been there before.
    """
    alive = follower.lasting_unknown()
    if not alive:
        return trace
    ops = list(trace.ops)
    for op_id in alive:
        ops[op_id] = dataclasses.replace(ops[op_id], role="op", target="constant")
    return dataclasses.replace(trace, ops=tuple(ops))
