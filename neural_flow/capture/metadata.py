"""The metadata pass: run the model once and return what ran, on what shapes, and where every value came from."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

from torch import nn

from neural_flow.capture._tracer import Tracer
from neural_flow.capture.dataflow import DataflowTracer
from neural_flow.capture.session import Session
from neural_flow.errors import TopologyFallbackWarning
from neural_flow.records import Trace

_TRACERS: dict[str, type[Tracer]] = {"function": DataflowTracer, "none": Tracer}


def run_metadata_pass(
    model: nn.Module,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    train: bool | None = False,
    seed: int | None = None,
    grad: bool = False,
    tracer: str = "function",
    model_name: str | None = None,
) -> Trace:
    """Run ``model`` once inside a session of its own and return its trace.

    If the model raises, the trace holds all that ran before and ``failure`` says where it stopped. If the tracer
    itself cannot follow, the model is run again without it from the restored state: the trace then has module calls
    only (``has_dataflow`` is False).

    Args:
        model: any module; it is left as it was.
        args: positional arguments; tensors are cloned.
        kwargs: keyword arguments; tensors are cloned.
        train: as in Session.
        seed: as in Session.
        grad: as in Session.
        tracer: ``function`` (a torch function mode) or ``dispatch`` (a torch dispatch mode).
        model_name: name of the model in the records; by default its class.

    Warns:
        TopologyFallbackWarning: the tracer could not follow this model.
    """

    def run(kind: type[Tracer]) -> tuple[Trace, Tracer]:
        with Session(model, args, kwargs, train=train, seed=seed, grad=grad) as session:
            follower = kind(model)
            follower.on_param_write = session.save_param
            return follower.run(session.args, session.kwargs), follower

    trace, follower = run(_TRACERS[tracer])
    reason = "" if follower.error is None else f"{type(follower.error).__name__}: {follower.error}"
    if trace.failure is not None:
        plain, _ = run(Tracer)
        if plain.failure is None or plain.failure.type != trace.failure.type:
            reason, trace = f"{trace.failure.type}: {trace.failure.message}", plain
    elif reason:
        trace, _ = run(Tracer)
    if reason:
        warnings.warn(
            f"the dataflow of {trace.class_name} could not be traced ({reason}); using execution order instead",
            TopologyFallbackWarning,
            stacklevel=2,
        )
        trace = dataclasses.replace(trace, has_dataflow=False, notes=(*trace.notes, f"dataflow not traced: {reason}"))
    return trace if model_name is None else dataclasses.replace(trace, model_name=model_name)
