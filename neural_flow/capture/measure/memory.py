"""Memory of a forward by stage: the most that its operators hold at once."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from neural_flow.capture.measure._base import (
    DEFAULTS,
    MEASUREMENTS,
    MeasureOptions,
    Meter,
    result,
    run_metered,
)
from neural_flow.nested import tensor_leaves
from neural_flow.records import Measurements, Stage, Topology


@MEASUREMENTS.register("memory")
def measure_memory(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    topology: Topology,
    options: MeasureOptions = DEFAULTS,
) -> Measurements:
    """Return bytes by stage: the peak of all tensors made and not yet freed, above what lived when it started.

    The scratch space of single kernels is not seen. Autograd is off, as when a model predicts.
    """
    live = _LiveTensors()
    meter = _MemoryMeter(live)
    run_metered(model, args, kwargs, topology, options, meter, live)
    return result("memory", "B", meter.by_stage, caption="peak memory")


class _MemoryMeter(Meter):
    def __init__(self, live: _LiveTensors) -> None:
        super().__init__()
        self._live = live
        self._before = 0

    def start(self, stage: Stage) -> None:
        self._before = self._live.peak = self._live.nbytes

    def end(self, stage: Stage, output: Any, inputs: Any, module: nn.Module | None) -> None:
        peak = float(self._live.peak - self._before)
        self.by_stage[stage.stage_id] = max(peak, self.by_stage.get(stage.stage_id, 0.0))


class _LiveTensors(TorchDispatchMode):
    """Bytes of the storages that operators made inside this mode and that are still alive, and their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.nbytes = 0
        self.peak = 0
        self._known: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = {id(leaf.untyped_storage()) for _, leaf in tensor_leaves((args, kwargs)) if _has_storage(leaf)}
        out = func(*args, **(kwargs or {}))
        for _, leaf in tensor_leaves(out):
            if _has_storage(leaf):
                storage = leaf.untyped_storage()
                if id(storage) not in inputs:
                    self._note(storage)
        return out

    def _note(self, storage: torch.UntypedStorage) -> None:
        key, nbytes = id(storage), storage.nbytes()
        known = self._known.get(key)
        if known is not None and known() is storage:
            return

        def forget(_: Any) -> None:
            self._known.pop(key, None)
            self.nbytes -= nbytes

        self._known[key] = weakref.ref(storage, forget)
        self.nbytes += nbytes
        self.peak = max(self.peak, self.nbytes)


def _has_storage(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and not tensor.is_nested
