"""Wall-clock time of a forward by stage."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter_ns
from typing import Any

import torch
from torch import nn

from neural_flow.capture.measure._base import (
    DEFAULTS,
    MEASUREMENTS,
    MeasureOptions,
    Meter,
    result,
    run_metered,
)
from neural_flow.records import Measurements, Stage, Topology

NUM_RUNS = 3


@MEASUREMENTS.register("time")
def measure_time(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    topology: Topology,
    options: MeasureOptions = DEFAULTS,
) -> Measurements:
    """Return seconds by stage: the shortest of three runs after one to warm up, accelerators waited for."""
    best: dict[int, float] = {}
    for run in range(NUM_RUNS + 1):
        meter = _TimeMeter(_accelerators(model))
        run_metered(model, args, kwargs, topology, options, meter)
        if run:
            best = {key: min(value, best.get(key, value)) for key, value in meter.by_stage.items()}
    return result("time", "s", best, caption="time of forward")


class _TimeMeter(Meter):
    def __init__(self, accelerators: list[torch.device]) -> None:
        super().__init__()
        self._accelerators = accelerators
        self._start = 0

    def start(self, stage: Stage) -> None:
        self._wait()
        self._start = perf_counter_ns()

    def end(self, stage: Stage, output: Any, inputs: Any, module: nn.Module | None) -> None:
        self._wait()
        self.add(stage, (perf_counter_ns() - self._start) / 1e9)

    def _wait(self) -> None:
        for device in self._accelerators:
            torch.accelerator.synchronize(device)


def _accelerators(model: nn.Module) -> list[torch.device]:
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    return sorted((device for device in devices if device.type not in ("cpu", "meta")), key=str)
