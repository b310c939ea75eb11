"""What a measurement is, their registry, and how calls are told to stages while one runs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from neural_flow.capture._op_watch import OpWatch
from neural_flow.capture._plan import make_plan, written_params
from neural_flow.capture.session import Session
from neural_flow.module_calls import CallFrame, ModuleCallStack
from neural_flow.records import Measurements, Stage, Topology, Trace
from neural_flow.registry import Registry

Loss = Callable[..., torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasureOptions:
    """How to run the model for a measurement.

    Attributes:
        trace: the metadata pass, from which ops and written parameters are known.
        train: as in Session; None takes the mode that the measurement is about.
        seed: as in Session.
        device: as in Session.
        loss: the scalar behind gradients, from (output, *inputs); None takes ``.loss``, else a mean of squares.
    """

    trace: Trace | None = None
    train: bool | None = None
    seed: int | None = None
    device: str | torch.device | None = None
    loss: Loss | None = None


DEFAULTS = MeasureOptions()


class Measure(Protocol):
    """Run a model on its inputs and return one number for each stage that has one."""

    def __call__(
        self,
        model: nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        topology: Topology,
        options: MeasureOptions = DEFAULTS,
    ) -> Measurements:
        """Return the numbers; the model is left as it was.

        Raises:
            Exception: what the model raised, unchanged.
        """
        ...


MEASUREMENTS: Registry[Measure] = Registry("measurement", "neural_flow.capture.measure")


class Meter:
    """Told when a stage starts and ends; a subclass adds what happens between to ``by_stage``.

    A call may run several stages' code one after the other but never one inside another: stages do not nest.
    """

    def __init__(self) -> None:
        self.by_stage: dict[int, float] = {}

    def start(self, stage: Stage) -> None:
        """Take note that ``stage`` starts to run."""

    def end(self, stage: Stage, output: Any, inputs: Any, module: nn.Module | None) -> Any:
        """Take note that ``stage`` has run; a result that is not None replaces its output.

        Args:
            stage: what ran.
            output: what it returned, None if it raised.
            inputs: its arguments, None for an op.
            module: the module that ran, None for an op.
        """

    def add(self, stage: Stage, value: float) -> None:
        """Add to the number of ``stage``."""
        self.by_stage[stage.stage_id] = self.by_stage.get(stage.stage_id, 0.0) + value


def call_owners(topology: Topology) -> dict[int, Stage]:
    """Return the stage of each drawn call by call id: its own, the joined ones, and the marks on edges to it."""
    owners: dict[int, Stage] = {}
    for stage in topology.stages:
        if stage.kind == "module" and stage.call_id is not None:
            owners[stage.call_id] = stage
        for call_id in stage.joined:
            owners.setdefault(call_id, stage)
    for edge in topology.edges:
        for mark in edge.marks:
            owners.setdefault(mark.call_id, topology.stages[edge.target])
    return owners


@contextmanager
def metered(model: nn.Module, topology: Topology, trace: Trace | None, meter: Meter) -> Generator[None]:
    """Tell ``meter`` when stages start and end, by global module hooks and, for ops, a function mode."""
    owners = call_owners(topology)
    depth = 0  # a joined call may lie inside its card's own call

    def enter(frame: CallFrame, args: Any, kwargs: Any) -> None:
        nonlocal depth
        stage = owners.get(frame.call_id)
        if stage is not None:
            depth += 1
            if depth == 1:
                meter.start(stage)

    def leave(frame: CallFrame, args: Any, kwargs: Any, output: Any) -> Any:
        nonlocal depth
        stage = owners.get(frame.call_id)
        if stage is None:
            return None
        depth -= 1
        return meter.end(stage, output, (args, kwargs), frame.module) if depth == 0 else None

    def leave_raising(frame: CallFrame, args: Any, kwargs: Any, error: Any) -> None:
        leave(frame, args, kwargs, None)

    plan = make_plan(topology, trace)
    with ModuleCallStack(model, on_enter=enter, on_exit=leave, on_raise=leave_raising) as calls:
        if not plan.ops:
            yield
            return
        with OpWatch(calls, plan.ops, lambda stage, tensors: meter.end(stage, tuple(tensors), None, None), meter.start):
            yield


@contextmanager
def measuring_session(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: MeasureOptions,
    *,
    train: bool = False,
    grad: bool = False,
) -> Generator[Session]:
    """Enter a session as ``options`` ask; ``train`` is the mode that the measurement is about."""
    with Session(
        model,
        args,
        kwargs,
        train=train if options.train is None else options.train,
        seed=options.seed,
        grad=grad,
        device=options.device,
        written_params=written_params(model, options.trace),
    ) as session:
        yield session


def run_metered(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    topology: Topology,
    options: MeasureOptions,
    meter: Meter,
    counting: AbstractContextManager[object] | None = None,
) -> None:
    """Run the model once in a session, inside ``counting``, while ``meter`` is told when stages start and end."""
    with (
        measuring_session(model, args, kwargs, options) as session,
        metered(model, topology, options.trace, meter),
        counting or nullcontext(),
    ):
        model(*session.args, **session.kwargs)


def result(name: str, unit: str, by_stage: Mapping[int, float], *, caption: str = "", detail: str = "") -> Measurements:
    """Return the record, in the order of the stages."""
    return Measurements(name=name, unit=unit, by_stage=dict(sorted(by_stage.items())), caption=caption, detail=detail)
