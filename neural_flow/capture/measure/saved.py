"""What autograd keeps for backward, by stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from neural_flow.capture.measure._base import (
    DEFAULTS,
    MEASUREMENTS,
    MeasureOptions,
    Meter,
    measuring_session,
    metered,
    result,
)
from neural_flow.records import Measurements, Stage, Topology
from neural_flow.torch_private import storage_id


@MEASUREMENTS.register("saved")
def measure_saved(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    topology: Topology,
    options: MeasureOptions = DEFAULTS,
) -> Measurements:
    """Return bytes by stage that its operators save for backward, in training mode unless told otherwise.

    Memory that several operators save counts for the first of them. Parameters and buffers cost nothing more.
    """
    meter = SavedMeter()
    with (
        measuring_session(model, args, kwargs, options, train=True, grad=True) as session,
        metered(model, topology, options.trace, meter),
    ):
        meter.seen.update(storage_id(tensor) for tensor in (*model.parameters(), *model.buffers()))
        with torch.autograd.graph.saved_tensors_hooks(meter.pack, unpack):
            model(*session.args, **session.kwargs)
        meter.kept.clear()
    return result("saved", "B", meter.by_stage, caption="saved for backward")


class SavedMeter(Meter):
    """Counts the bytes that autograd newly keeps while a stage runs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[int | None] = set()
        self.kept: list[torch.Tensor] = []
        self._current: Stage | None = None

    def start(self, stage: Stage) -> None:
        """Count for ``stage`` from now on."""
        self._current = stage
        self.add(stage, 0.0)

    def end(self, stage: Stage, output: Any, inputs: Any, module: nn.Module | None) -> None:
        """Count for no stage any more."""
        self._current = None

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """Count a tensor that is saved, and hand on what keeps its memory without keeping its graph."""
        kept = tensor.detach()
        storage = storage_id(tensor)
        if storage is None or storage not in self.seen:
            self.seen.add(storage)
            self.kept.append(kept)  # while it lives, no other memory can have its address
            if self._current is not None:
                self.add(self._current, float(_nbytes(tensor)))
        return kept


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """Return what was packed."""
    return packed


def _nbytes(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage().nbytes()
    except (RuntimeError, NotImplementedError):
        return tensor.numel() * tensor.element_size()
