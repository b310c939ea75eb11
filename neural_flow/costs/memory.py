"""The memory of a training step by stage: what autograd saves, the peak to expect, and what would lower it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import nn

from neural_flow.capture.measure._base import MeasureOptions
from neural_flow.costs._backward import Step, peak_nbytes
from neural_flow.costs._step import RecordedStep, measured_peak, record_step
from neural_flow.options import as_arguments
from neural_flow.pipeline import observe
from neural_flow.records import Stage, Topology
from neural_flow.saved_tensors.recording import OUTSIDE
from neural_flow.saved_tensors.rows import SavedTensorRow, unique_nbytes

_OWNED = ("parameter", "buffer")
MAX_REPLAYED = 1_500_000
"""How many nodes are replayed for the peaks of all checkpoints together: about a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """What one stage saves for backward.

    Attributes:
        stage_id: the stage; None for what is saved outside of all stages, such as by the loss.
        name: as the graph file names the stage; ``outside of stages`` likewise.
        class_name: class of the module, empty for ops.
        saved_nbytes: bytes of memory that it is the first to save; the rows add up to the total.
        shared_nbytes: bytes that it saves too and that an earlier row counts.
        param_nbytes: bytes of its parameters, which live anyway.
        saved_fraction: its part of the total, 0 to 1.
        num_saved: number of saved tensors, parameters and buffers left out.
    """

    stage_id: int | None
    name: str
    class_name: str = ""
    saved_nbytes: int = 0
    shared_nbytes: int = 0
    param_nbytes: int = 0
    saved_fraction: float = 0.0
    num_saved: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What would be saved, and the peak to expect, if something were done.

    Attributes:
        action: ``checkpoint`` or ``offload``.
        name: what it is done to: a stage, ``every block``, or ``from 1000 elements``.
        stage_ids: the stages that it is done to, for ``checkpoint``.
        saved_nbytes: bytes that stay in memory for backward.
        peak_nbytes: the peak to expect; None where the graph is too large to replay.
    """

    action: str
    name: str
    stage_ids: tuple[int, ...] = ()
    saved_nbytes: int
    peak_nbytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTable:
    """Memory of one step: forward, loss and backward.

    Peaks are bytes above what lives before the step: parameters, buffers and inputs are not in them.

    Attributes:
        model: its name.
        is_training: whether it ran in training mode.
        loss: which scalar was differentiated.
        rows: in execution order; what lies outside of stages is last.
        total_nbytes: bytes that saving keeps alive, each memory once: the sum of the rows.
        kept_param_nbytes: bytes of parameters and buffers among what was saved.
        param_nbytes: bytes of all parameters.
        gradient_nbytes: bytes of the gradients of those that are trained.
        predicted_peak_nbytes: from the graph alone: saved, live gradients and parameter gradients; None where the
            graph is too large to replay.
        measured_peak_nbytes: from the allocator's events of a second run; None on devices that show none.
        what_if: checkpoints, the largest gain first, and offloading.
        topology: the stages.
        notes: what could not be told, and why.
    """

    model: str
    is_training: bool
    loss: str
    rows: tuple[MemoryRow, ...]
    total_nbytes: int
    kept_param_nbytes: int
    param_nbytes: int
    gradient_nbytes: int
    predicted_peak_nbytes: int | None
    measured_peak_nbytes: int | None
    what_if: tuple[WhatIf, ...]
    topology: Topology
    notes: tuple[str, ...] = ()


def memory_table(
    model: nn.Module,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    train: bool = True,
    loss: Callable[..., torch.Tensor] | None = None,
    threshold: int = 1000,
    is_measured: bool = True,
    **options: Any,
) -> MemoryTable:
    """Return what a training step of ``model`` keeps in memory, stage by stage.

    The model runs three times, each time on clones and from the same state; it is left bit for bit as it was.

    Args:
        model: any module.
        args: a tuple of positional arguments; anything else is the one argument.
        kwargs: keyword arguments of forward.
        train: whether it runs in training mode.
        loss: the scalar to differentiate, from (output, *inputs); None takes ``.loss``, else a mean of squares.
        threshold: number of elements from which on the offload row stores a tensor.
        is_measured: whether to run a whole step to measure the peak.
        options: what ``render`` takes to choose stages: ``detail``, ``select``, ``seed``, ...

    Raises:
        ForwardError: the model raised.
        ValueError: the loss depends on nothing that requires a gradient.
    """
    call = (as_arguments(args), dict(kwargs or {}))
    found, topology = observe(model, *call, train=train, **options)
    asked = MeasureOptions(trace=found, train=train, seed=options.get("seed"), loss=loss)
    step = record_step(model, *call, topology, asked)
    rows = _rows(step.rows, topology)
    num_stages = sum(stage.kind == "module" for stage in topology.stages)
    has_peaks = step.step is not None and len(step.step.nodes) * num_stages <= MAX_REPLAYED
    notes = [f"no peak is predicted: {step.unread}"] if step.unread else []
    if step.step is not None and not has_peaks:
        notes.append(f"no peak is predicted for checkpoints: the graph has {len(step.step.nodes):,} nodes")
    return MemoryTable(
        model=topology.model.name,
        is_training=train,
        loss=step.loss,
        rows=rows,
        total_nbytes=unique_nbytes(row for row in step.rows if row.kind not in _OWNED),
        kept_param_nbytes=unique_nbytes(row for row in step.rows if row.kind in _OWNED),
        param_nbytes=topology.model.param_nbytes,
        gradient_nbytes=sum(
            param.numel() * param.element_size() for param in model.parameters() if param.requires_grad
        ),
        predicted_peak_nbytes=None if step.step is None else peak_nbytes(step.step),
        measured_peak_nbytes=measured_peak(model, *call, asked) if is_measured else None,
        what_if=(*_checkpoints(step, topology, has_peaks=has_peaks), _offload(step, threshold)),
        topology=topology,
        notes=tuple(notes),
    )


def _rows(saved: tuple[SavedTensorRow, ...], topology: Topology) -> tuple[MemoryRow, ...]:
    """Return a row for each stage; memory that several of them save counts for the first."""
    own: dict[str, int] = {}
    shared: dict[str, dict[int, int]] = {}
    counts: dict[str, int] = {}
    first: dict[int, str] = {}
    for row in saved:
        if row.kind in _OWNED:
            continue
        counts[row.path] = counts.get(row.path, 0) + 1
        if row.storage is None or row.storage not in first:
            own[row.path] = own.get(row.path, 0) + row.storage_nbytes
        elif first[row.storage] != row.path:
            shared.setdefault(row.path, {})[row.storage] = row.storage_nbytes
        if row.storage is not None:
            first.setdefault(row.storage, row.path)
    total = sum(own.values()) or 1
    stages = [stage for stage in topology.stages if stage.kind not in ("input", "output")]
    keys: list[tuple[str, Stage | None]] = [(str(stage.stage_id), stage) for stage in stages]
    return tuple(
        MemoryRow(
            stage_id=None if stage is None else stage.stage_id,
            name="outside of stages" if stage is None else stage.name,
            class_name="" if stage is None else stage.class_name,
            saved_nbytes=own.get(key, 0),
            shared_nbytes=sum(shared.get(key, {}).values()),
            param_nbytes=0 if stage is None else stage.param_nbytes,
            saved_fraction=own.get(key, 0) / total,
            num_saved=counts.get(key, 0),
        )
        for key, stage in (*keys, (OUTSIDE, None))
        if stage is not None or counts.get(key)
    )


def _checkpoints(recorded: RecordedStep, topology: Topology, *, has_peaks: bool) -> tuple[WhatIf, ...]:
    """Return one row for each stage that a checkpoint would help, and one for all of these together."""
    total = unique_nbytes(row for row in recorded.rows if row.kind not in _OWNED)
    stages = [stage for stage in topology.stages if stage.kind == "module" and stage.stage_id in recorded.stage_inputs]
    found = [(stage, _checkpoint(recorded, (stage.stage_id,), stage.name, total, has_peaks)) for stage in stages]
    helped = [(stage, row) for stage, row in found if row.saved_nbytes < total]
    rows = sorted((row for _, row in helped), key=lambda row: row.saved_nbytes)
    if len(helped) > 1:
        ids = tuple(stage.stage_id for stage, _ in helped)
        rows.insert(0, _checkpoint(recorded, ids, "every block", total, has_peaks))
    return tuple(rows)


def _checkpoint(recorded: RecordedStep, stage_ids: tuple[int, ...], name: str, total: int, has_peak: bool) -> WhatIf:
    """Return what is saved if these stages keep only their inputs and run again in backward."""
    users: dict[int, set[str]] = {}
    sizes: dict[int, int] = {}
    for row in recorded.rows:
        if row.storage is not None and row.kind in ("activation", "workspace"):
            users.setdefault(row.storage, set()).add(row.path)
            sizes[row.storage] = row.storage_nbytes
    chosen = {str(stage_id) for stage_id in stage_ids}
    inputs: dict[int, int] = {}
    for stage_id in stage_ids:
        inputs |= recorded.stage_inputs.get(stage_id, {})
    dropped = {number for number, paths in users.items() if paths <= chosen and number not in inputs}
    owned = {row.storage for row in recorded.rows if row.kind in (*_OWNED, "input")} | recorded.given
    held = frozenset[int]() if recorded.step is None else recorded.step.held
    saved_already = {row.storage for row in recorded.rows if row.kind not in _OWNED}
    kept = {number: nbytes for number, nbytes in inputs.items() if number not in saved_already}
    extra = {number: nbytes for number, nbytes in kept.items() if number not in owned and number not in held}
    peak: int | None = None
    if recorded.step is not None and has_peak:
        recomputed: dict[int, set[int]] = {}
        for number in dropped:
            recomputed.setdefault(max(int(path) for path in users[number]), set()).add(number)
        peak = peak_nbytes(recorded.step, recomputed=recomputed, extra=extra)
    saved = total - sum(sizes[number] for number in dropped) + sum(kept.values())
    return WhatIf(action="checkpoint", name=name, stage_ids=stage_ids, saved_nbytes=saved, peak_nbytes=peak)


def _offload(recorded: RecordedStep, threshold: int) -> WhatIf:
    """Return what stays if every tensor of ``threshold`` elements or more goes to a file.

    Memory stays as long as one tensor in it is small, and where it is the user's input.
    """
    sizes: dict[int, int] = {}
    kept: set[int] = set()
    for row in recorded.rows:
        if row.storage is None or row.kind in _OWNED:
            continue
        sizes[row.storage] = row.storage_nbytes
        if row.kind == "input" or prod(row.shape or ()) < threshold:
            kept.add(row.storage)
    gone = sizes.keys() - kept
    total = unique_nbytes(row for row in recorded.rows if row.kind not in _OWNED)
    step: Step | None = recorded.step
    return WhatIf(
        action="offload",
        name=f"from {threshold} elements",
        saved_nbytes=total - sum(sizes[number] for number in gone),
        peak_nbytes=None if step is None else peak_nbytes(step, offloaded=gone),
    )
