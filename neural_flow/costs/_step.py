"""Run one training step and write down what it saves, by stage, and the graph behind the loss."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import Node, saved_tensors_hooks

from neural_flow.capture.measure._base import MeasureOptions, Meter, measuring_session, metered
from neural_flow.capture.measure.gradient import loss_of
from neural_flow.costs._backward import LAST, GraphNode, Step
from neural_flow.costs._deep import Disposal
from neural_flow.nested import tensor_leaves
from neural_flow.records import Stage, Topology
from neural_flow.saved_tensors.graph_walk import saved_values, walk_nodes
from neural_flow.saved_tensors.recording import OUTSIDE, RecordedValue, SavedTensorRecord
from neural_flow.saved_tensors.rows import SavedTensorRow
from neural_flow.torch_private import AllocationLog, failure_of

_ENDING = re.compile(r"Backward\d*$")
MAX_NODES = 400_000
SHALLOW = 20_000
"""Up to so many nodes torch frees a walked graph on any stack."""


@dataclass(slots=True)
class RecordedStep:
    """One step on paper.

    Attributes:
        rows: what was saved; the path of a row is the id of the stage that saved it.
        step: the graph; None where it cannot be walked.
        unread: why there is no graph.
        stage_inputs: by stage, the storages that it was given first, with their bytes.
        given: storages of the inputs of the model.
        loss: which scalar is behind the graph.
    """

    rows: tuple[SavedTensorRow, ...] = ()
    step: Step | None = None
    unread: str = ""
    stage_inputs: dict[int, dict[int, int]] = field(default_factory=dict[int, dict[int, int]])
    given: frozenset[int] = frozenset()
    loss: str = ""


class _StageMeter(Meter):
    """Knows which stage runs, and what each one was given first."""

    def __init__(self) -> None:
        super().__init__()
        self.current: Stage | None = None
        self.record = SavedTensorRecord(self.owner)
        self.inputs: dict[int, dict[int, int]] = {}

    def owner(self) -> tuple[str, int]:
        """Return the stage as a record names an owner: its id as the path."""
        return (OUTSIDE, 0) if self.current is None else (str(self.current.stage_id), 0)

    def start(self, stage: Stage) -> None:
        self.current = stage

    def end(self, stage: Stage, output: Any, inputs: Any, module: nn.Module | None) -> None:
        self.current = None
        if stage.stage_id not in self.inputs and module is not None:
            self.inputs[stage.stage_id] = self.record.storages_in(inputs)


def record_step(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    topology: Topology,
    options: MeasureOptions,
) -> RecordedStep:
    """Run forward and loss, and return what they saved and the graph that backward would run.

    Raises:
        ValueError: the loss depends on nothing that requires a gradient.
    """
    meter = _StageMeter()
    record = meter.record
    with Disposal() as disposal, measuring_session(model, args, kwargs, options, train=True, grad=True) as session:
        record.note_model(model)
        record.note_inputs(session.args, session.kwargs)
        with saved_tensors_hooks(record.pack, record.unpack):
            with metered(model, topology, options.trace, meter):
                output = model(*session.args, **session.kwargs)
            loss = loss_of(output, session.args, options.loss)
        if not loss.requires_grad:
            raise ValueError("the loss depends on nothing that requires a gradient: no memory is kept for backward")
        found = RecordedStep(stage_inputs=meter.inputs, loss=_loss_words(output, options))
        found.given = frozenset(record.storages_in((session.args, session.kwargs)))
        disposal.held += (output, loss)
        del output, loss
        _read_graph(disposal, record, found)
    found.rows = found.rows or record.rows
    return found


def _loss_words(output: Any, options: MeasureOptions) -> str:
    if options.loss is not None:
        return getattr(options.loss, "__name__", type(options.loss).__name__)
    own = getattr(output, "loss", None)
    is_own = isinstance(own, torch.Tensor) and own.numel() == 1
    return "the model's own loss" if is_own else "mean of squares of the outputs"


def _read_graph(disposal: Disposal, record: SavedTensorRecord, found: RecordedStep) -> None:
    """Put the graph behind the output and the loss, which ``disposal`` holds, into ``found``; or why there is none."""
    num_nodes = _num_nodes(disposal, SHALLOW)
    try:
        if num_nodes is None:
            disposal.deepen(MAX_NODES)
            num_nodes = _num_nodes(disposal, MAX_NODES)
    except RuntimeError as error:  # what was saved is known all the same
        found.unread = str(error)
        return
    if num_nodes is None:
        found.unread = f"the graph has more than {MAX_NODES:,} nodes"
        return
    try:
        _read_nodes(disposal, record, found)
    except _VaryingSizeError:
        found.unread = "gradients of nested tensors have no one size"


class _VaryingSizeError(Exception):
    """A node's gradient has a shape that is not a list of numbers."""


def _num_nodes(disposal: Disposal, limit: int) -> int | None:
    """Return the number of nodes behind the loss; None where there are more than ``limit``."""
    try:
        return len(walk_nodes(disposal.held[1], max_nodes=limit))
    except RuntimeError:
        return None


def _read_nodes(disposal: Disposal, record: SavedTensorRecord, found: RecordedStep) -> None:
    output, loss = disposal.held
    nodes = walk_nodes(loss, max_nodes=MAX_NODES)
    record.join_nodes(loss, max_nodes=MAX_NODES)
    held = record.storages_in((output, loss))
    ends = [_sequence_of(leaf.grad_fn) for _, leaf in tensor_leaves(output) if leaf.grad_fn is not None]
    found.rows = rows = record.rows
    owned = {row.storage for row in rows if row.kind in ("parameter", "buffer")} | found.given
    indices = {node: index for index, node in enumerate(nodes)}
    graph = tuple(_read_node(node, indices, rows, owned) for node in nodes)
    storages = {row.storage: row.storage_nbytes for row in rows if row.storage is not None and row.storage not in owned}
    saved = {number for node in graph for number in node.saved}
    found.step = Step(
        nodes=graph,
        storages=storages,
        held=frozenset(number for number in held if number in saved and number not in owned),
        held_nbytes=sum(nbytes for number, nbytes in held.items() if number not in saved and number not in owned),
        loss_sequence=max(ends, default=LAST),
    )


def _read_node(
    node: Node, indices: Mapping[Node, int], rows: tuple[SavedTensorRow, ...], owned: set[int | None]
) -> GraphNode:
    found = [rows[value.number] for _, value in saved_values(node) if isinstance(value, RecordedValue)]
    saved = {row.storage: row.nbytes for row in found if row.storage is not None and row.storage not in owned}
    stages = {int(row.path) for row in found if row.path != OUTSIDE}
    is_leaf = node.name().endswith("AccumulateGrad")
    return GraphNode(
        name="AccumulateGrad" if is_leaf else _ENDING.sub("", node.name()),
        sequence=LAST if is_leaf else _sequence_of(node),
        stage_id=min(stages) if stages else None,
        saved=tuple(saved),
        loads=saved,
        results=tuple({row.storage for row in found if row.storage in saved and (row.attribute or "")[:6] == "result"}),
        inputs=tuple(_metadata_nbytes(meta) for meta in getattr(node, "_input_metadata", ())),
        following=tuple(
            None if following is None else (indices[following], number) for following, number in node.next_functions
        ),
    )


def _sequence_of(node: Node) -> int:
    """Return the number of a node in the order of making; torch offers it without a stub."""
    sequence_of: Any = node
    return int(sequence_of._sequence_nr())


def _metadata_nbytes(meta: Any) -> int:
    """Return the bytes of the gradient that arrives there: shape and type are those of the node's output."""
    if meta.dtype is None:
        return 0
    try:
        sizes = [int(size) for size in meta.shape]
    except (RuntimeError, AttributeError) as error:  # what torch raises of strided, and of jagged nested tensors
        raise _VaryingSizeError from error
    return prod(sizes) * meta.dtype.itemsize


def measured_peak(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: MeasureOptions
) -> int | None:
    """Run a whole step and return the most bytes that the allocator had out at once, above what lived before.

    On CUDA the allocator's own peak, else its events. None where this torch or device shows neither.
    """
    device = next((tensor.device for tensor in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    with measuring_session(model, args, kwargs, options, train=True, grad=True) as session:
        if device.type == "cuda":
            before = torch.cuda.memory_allocated(device)
            torch.cuda.reset_peak_memory_stats(device)
            _run_step(model, session.args, session.kwargs, options)
            return torch.cuda.max_memory_allocated(device) - before
        if device.type != "cpu" or failure_of("allocation log"):
            return None
        with AllocationLog() as log:
            _run_step(model, session.args, session.kwargs, options)
    live = peak = 0
    for nbytes in log.nbytes:
        live += nbytes
        peak = max(peak, live)
    return peak


def _run_step(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: MeasureOptions) -> None:
    output = model(*args, **kwargs)
    loss = loss_of(output, args, options.loss)
    loss.backward()
