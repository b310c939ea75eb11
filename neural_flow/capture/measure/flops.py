"""Floating-point operations of a forward, counted from the shapes that every aten operator gets."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from neural_flow.capture.measure._base import (
    DEFAULTS,
    MEASUREMENTS,
    MeasureOptions,
    Meter,
    result,
    run_metered,
)
from neural_flow.records import Measurements, Stage, Topology


@MEASUREMENTS.register("flops")
def measure_flops(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    topology: Topology,
    options: MeasureOptions = DEFAULTS,
) -> Measurements:
    """Return FLOPs by stage: a multiplication and an addition are two. Elementwise work counts nothing."""
    counter = FlopCounterMode(display=False, custom_mapping=missing_formulas())
    meter = _FlopMeter(counter)
    run_metered(model, args, kwargs, topology, options, meter, counter)
    return result("flops", "FLOP", meter.by_stage, caption="FLOPs")


class _FlopMeter(Meter):
    def __init__(self, counter: FlopCounterMode) -> None:
        super().__init__()
        self._counter = counter
        self._before = 0

    def start(self, stage: Stage) -> None:
        self._before = self._counter.get_total_flops()

    def end(self, stage: Stage, output: Any, inputs: Any, module: nn.Module | None) -> None:
        self.add(stage, float(self._counter.get_total_flops() - self._before))


def missing_formulas() -> dict[Any, Any]:
    """Return formulas of operators of the CPU that torch itself does not count."""
    formulas = {"_scaled_dot_product_flash_attention_for_cpu": _attention_flops, "mkldnn_rnn_layer": _lstm_flops}
    return {
        getattr(torch.ops.aten, name): formula for name, formula in formulas.items() if hasattr(torch.ops.aten, name)
    }


def _attention_flops(
    query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...], *args: Any, **kwargs: Any
) -> int:
    # of grouped queries several heads read one head of keys, and each multiplies with it
    key, value = ((shape[0], query[1], *shape[2:]) for shape in (key, value))
    return sdpa_flop_count(query, key, value)


def _lstm_flops(
    steps: tuple[int, ...], weight: tuple[int, ...], recurrent: tuple[int, ...], *args: Any, **kwargs: Any
) -> int:
    return 2 * prod(steps[:-1]) * (prod(weight) + prod(recurrent))
