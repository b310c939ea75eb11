"""What every module call costs, nested ones too, from one run: how far a counter went between its start and its end."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from time import perf_counter_ns
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from neural_flow.capture.measure._base import MeasureOptions, measuring_session
from neural_flow.capture.measure.flops import missing_formulas
from neural_flow.capture.measure.saved import SavedMeter, unpack
from neural_flow.module_calls import CallFrame, ModuleCallStack
from neural_flow.records import Stage
from neural_flow.torch_private import storage_id

NUM_RUNS = 3
_EVERYTHING = Stage(stage_id=0, kind="module", name="", label="")


class _Clock:
    """Nanoseconds that stand still while we ourselves work, accelerators waited for."""

    def __init__(self, model: nn.Module) -> None:
        devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
        self._accelerators = sorted((one for one in devices if one.type not in ("cpu", "meta")), key=str)
        self._lost = 0

    @contextmanager
    def stopped(self) -> Generator[float]:
        """Stand still inside; yield the time of the entry."""
        for device in self._accelerators:
            torch.accelerator.synchronize(device)
        start = perf_counter_ns()
        try:
            yield (start - self._lost) / 1e9
        finally:
            self._lost += perf_counter_ns() - start


class _CallCosts:
    """The sum by path of how far a counter went during its calls; of a module inside itself the outermost call counts.

    Args:
        read: a context that yields the counter.
    """

    def __init__(self, read: Callable[[], Any]) -> None:
        self.by_path: dict[str, float] = {}
        self._read = read
        self._starts: dict[CallFrame, float] = {}

    def enter(self, frame: CallFrame, args: Any, kwargs: Any) -> None:
        with self._read() as now:
            self._starts[frame] = now

    def leave(self, frame: CallFrame, args: Any, kwargs: Any, output: Any) -> None:
        with self._read() as now:
            cost = now - self._starts.pop(frame)
            is_inside_itself = any(other.path == frame.path for other in self._starts)
            self.by_path[frame.path] = self.by_path.get(frame.path, 0.0) + (0.0 if is_inside_itself else cost)

    def leave_raising(self, frame: CallFrame, args: Any, kwargs: Any, error: Any) -> None:
        self._starts.pop(frame, None)

    def watching(self, model: nn.Module) -> ModuleCallStack:
        """Return the context in which calls are watched."""
        return ModuleCallStack(model, on_enter=self.enter, on_exit=self.leave, on_raise=self.leave_raising)


def call_flops(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: MeasureOptions
) -> dict[str, float]:
    """Return floating-point operations by path."""
    counter = FlopCounterMode(display=False, custom_mapping=missing_formulas())

    @contextmanager
    def read() -> Generator[float]:
        yield float(counter.get_total_flops())

    costs = _CallCosts(read)
    with measuring_session(model, args, kwargs, options) as session, costs.watching(model), counter:
        model(*session.args, **session.kwargs)
    return costs.by_path


def call_saved_nbytes(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: MeasureOptions
) -> dict[str, float]:
    """Return bytes by path that autograd newly keeps for backward, in training mode unless told otherwise."""
    meter = SavedMeter()
    meter.start(_EVERYTHING)

    @contextmanager
    def read() -> Generator[float]:
        yield meter.by_stage[_EVERYTHING.stage_id]

    costs = _CallCosts(read)
    with measuring_session(model, args, kwargs, options, train=True, grad=True) as session, costs.watching(model):
        meter.seen.update(storage_id(tensor) for tensor in (*model.parameters(), *model.buffers()))
        with saved_tensors_hooks(meter.pack, unpack):
            model(*session.args, **session.kwargs)
        meter.kept.clear()
    return costs.by_path


def call_seconds(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: MeasureOptions
) -> dict[str, float]:
    """Return wall-clock time by path: the shortest of three runs after one to warm up."""
    best: dict[str, float] = {}
    for run in range(NUM_RUNS + 1):
        costs = _CallCosts(_Clock(model).stopped)
        with measuring_session(model, args, kwargs, options) as session, costs.watching(model):
            model(*session.args, **session.kwargs)
        if run:
            best = {path: min(value, best.get(path, value)) for path, value in costs.by_path.items()}
    return best


CallMeasure = Callable[[nn.Module, tuple[Any, ...], Mapping[str, Any], MeasureOptions], dict[str, float]]
CALL_MEASURES: Mapping[str, CallMeasure] = MappingProxyType(
    {"flops": call_flops, "saved": call_saved_nbytes, "time": call_seconds}
)
