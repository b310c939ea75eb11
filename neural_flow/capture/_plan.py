"""What the capture pass looks for: which call or op shows which stage, which leaf of it, and where the batch is."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import torch
from torch import nn

from neural_flow.errors import UsageError
from neural_flow.module_calls import clean_path, module_paths
from neural_flow.records import Edge, ModuleCall, Stage, TensorMeta, Topology, Trace

CallKey = tuple[str, int]
OpKey = tuple[int, str]
"""(id of the innermost call, target) of an op."""

_RANKED = re.compile(r"^(?:Lazy)?(?:Conv|ConvTranspose|MaxPool|AvgPool|AdaptiveAvgPool|AdaptiveMaxPool)([123])d$")


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the picture of each stage comes from."""

    calls: Mapping[CallKey, tuple[Stage, ...]]
    ops: Mapping[OpKey, Mapping[int, Stage]]
    """By innermost call and target: which of these ops, counted from 0, show stages."""
    inputs: tuple[Stage, ...]
    outputs: tuple[Stage, ...]
    probes: tuple[Stage, ...]
    owners: Mapping[CallKey, Stage]
    """Every call drawn in a card, its own and joined ones."""
    leaves: Mapping[int, TensorMeta] = field(default_factory=dict[int, TensorMeta])
    """The output leaf that feeds the primary edge onward, by stage."""


def make_plan(topology: Topology, trace: Trace | None) -> Plan:
    """Return where the picture of each stage of ``topology`` comes from.

    Without a trace the calls that joined a card and the ops are not known: the card shows its own call then.
    """
    calls: dict[CallKey, list[Stage]] = defaultdict(list)
    owners: dict[CallKey, Stage] = {}
    for stage in topology.stages:
        if stage.kind == "module":
            owners[stage.path, stage.call_index] = stage
            last = (stage.path, stage.call_index)
            for call_id in stage.joined if trace is not None else ():
                last = _key_of(trace.calls[call_id]) if trace is not None else last
                owners[last] = stage
            calls[last].append(stage)
    return Plan(
        calls={key: tuple(stages) for key, stages in calls.items()},
        ops=_plan_ops(topology.stages, trace) if trace is not None else {},
        inputs=_of_kind(topology, "input"),
        outputs=_of_kind(topology, "output"),
        probes=_of_kind(topology, "probe"),
        owners=owners,
        leaves=_onward_leaves(topology.edges),
    )


def _of_kind(topology: Topology, kind: str) -> tuple[Stage, ...]:
    return tuple(stage for stage in topology.stages if stage.kind == kind)


def _key_of(call: ModuleCall) -> CallKey:
    return call.path, call.call_index


def _plan_ops(stages: Iterable[Stage], trace: Trace) -> dict[OpKey, dict[int, Stage]]:
    wanted = {stage.op_id: stage for stage in stages if stage.kind == "op" and stage.op_id is not None}
    found: dict[OpKey, dict[int, Stage]] = {}
    num_seen: dict[OpKey, int] = {}
    for op in trace.ops if wanted else ():
        if op.role != "op":
            continue
        key = (-1 if op.call_id is None else op.call_id, op.target)
        index = num_seen.get(key, 0)
        num_seen[key] = index + 1
        if op.op_id in wanted:
            found.setdefault(key, {})[index] = wanted[op.op_id]
    return found


def _onward_leaves(edges: Iterable[Edge]) -> dict[int, TensorMeta]:
    """Return the tensor that a stage hands on along a primary edge, else along any edge."""
    found: dict[int, TensorMeta] = {}
    for edge in sorted(edges, key=lambda edge: edge.kind != "primary"):
        if edge.tensors:
            found.setdefault(edge.source, edge.tensors[0])
    return found


def choose_leaf(leaves: Sequence[torch.Tensor], onward: TensorMeta | None) -> torch.Tensor | None:
    """Return the leaf that a card shows: the one that goes onward, else the largest floating one, else the largest."""
    if not leaves:
        return None
    if len(leaves) == 1:
        return leaves[0]
    if onward is not None:
        for leaf in leaves:
            if _shape_of(leaf) == onward.shape and str(leaf.dtype).removeprefix("torch.") == onward.dtype:
                return leaf
    return max(leaves, key=lambda leaf: (leaf.is_floating_point() or leaf.is_complex(), prod(_shape_of(leaf))))


def _shape_of(tensor: torch.Tensor) -> tuple[int, ...]:
    if tensor.is_nested:
        parts = [tuple(part.shape) for part in tensor.unbind()]
        return (len(parts), *(max(sizes) for sizes in zip(*parts, strict=True)))
    return tuple(tensor.shape)


def written_params(model: nn.Module, trace: Trace | None) -> list[nn.Parameter]:
    """Return the parameters that forward writes, as the metadata pass saw."""
    if trace is None or not trace.written_param_ids:
        return []
    names = {clean_path(trace.params[param_id].names[0]) for param_id in trace.written_param_ids}
    return [param for name, param in model.named_parameters(remove_duplicate=False) if clean_path(name) in names]


# -- where the batch is --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Batch:
    """The batch at the model's inputs: its dimension there and its size; a size of 0 is no batch.

    ``lengths`` are the sizes of the inputs' next dimension.
    """

    dim: int = 0
    size: int = 0
    lengths: frozenset[int] = frozenset()


def find_batch(
    model: nn.Module, inputs: Sequence[torch.Tensor], batch_dim: str | int | None, trace: Trace | None
) -> Batch:
    """Return the batch of the model's inputs.

    Args:
        model: its recurrent and attention modules say where they expect the batch.
        inputs: the tensor leaves of the arguments.
        batch_dim: ``auto``, a dimension, or ``none`` / None.
        trace: what ran, from which a call without batch, or with the sequence first, is told.

    Raises:
        UsageError: no input has that dimension.
    """
    floating = [leaf for leaf in inputs if (leaf.is_floating_point() or leaf.is_complex()) and leaf.dim() > 0]
    asked = floating or [leaf for leaf in inputs if leaf.dim() > 0]
    if batch_dim in (None, "none") or not asked:
        return Batch()
    if batch_dim != "auto":
        dim = int(batch_dim)
        if all(leaf.dim() <= dim for leaf in asked):
            raise UsageError(f"no input has a dimension {dim}", hint="write --batch-dim 0, auto or none")
        return Batch(dim, max((_size_at(leaf, dim) for leaf in asked), default=0), _lengths(asked, dim))
    if _is_unbatched(trace) or _is_graph(inputs):
        return Batch()
    if _is_sequence_first(model, asked, trace):
        return Batch(1, _size_at(asked[0], 1), _lengths(asked, 1))
    sizes = {_size_at(leaf, 0) for leaf in asked}
    return Batch(0, sizes.pop(), _lengths(asked, 0)) if len(sizes) == 1 else Batch()


def _lengths(inputs: Sequence[torch.Tensor], dim: int) -> frozenset[int]:
    return frozenset(leaf.shape[1 - dim] for leaf in inputs if leaf.dim() in (2, 3) and dim < 2 and not leaf.is_nested)


def _size_at(leaf: torch.Tensor, dim: int) -> int:
    if leaf.is_nested:
        return int(leaf.size(0)) if dim == 0 else 0
    return leaf.shape[dim] if leaf.dim() > dim else 0


def _is_unbatched(trace: Trace | None) -> bool:
    """Return whether a convolution or pool ran on a tensor without batch."""
    for call in trace.calls if trace is not None else ():
        rank = _RANKED.match(call.class_name)
        if rank is not None and call.inputs:
            return len(call.inputs[0].shape) == int(rank[1]) + 1
    return False


def _is_graph(inputs: Sequence[torch.Tensor]) -> bool:
    """Return whether the inputs are a graph: a matrix over nodes, or pairs of node numbers beside values of nodes."""
    if any(leaf.layout != torch.strided and leaf.dim() == 2 for leaf in inputs):
        return True
    matrices = [leaf for leaf in inputs if leaf.dim() == 2 and leaf.layout == torch.strided]
    if any(_is_adjacency(leaf, other) for leaf in matrices for other in matrices if leaf is not other):
        return True
    nodes = [leaf.shape[0] for leaf in inputs if leaf.is_floating_point() and leaf.dim() == 2]
    pairs = [leaf for leaf in inputs if leaf.dtype == torch.int64 and leaf.dim() == 2 and leaf.shape[0] == 2]
    return any(pair.numel() > 0 and int(pair.min()) >= 0 and int(pair.max()) < most for pair in pairs for most in nodes)


def _is_adjacency(matrix: torch.Tensor, nodes: torch.Tensor) -> bool:
    """Return whether a matrix joins the rows of another: as many rows and columns, nothing below zero."""
    count = nodes.shape[0]
    if matrix.is_complex() or tuple(matrix.shape) != (count, count) or nodes.shape[1] == count or count < 3:
        return False
    return bool((matrix >= 0).all())


def _is_sequence_first(model: nn.Module, inputs: Sequence[torch.Tensor], trace: Trace | None) -> bool:
    """Return whether a module of torch with the sequence first reads what the model reads, in the same order."""
    if trace is None or any(leaf.dim() != 3 or leaf.is_nested for leaf in inputs):
        return False
    shapes = {tuple(leaf.shape[:2]) for leaf in inputs}
    if len({size for _, size in shapes}) != 1:
        return False
    second = {path for module, path in module_paths(model).items() if _is_batch_second(module)}
    for call in trace.calls:
        if call.path in second and call.inputs and len(call.inputs[0].shape) == 3:
            return call.inputs[0].shape[:2] in shapes
    return False


def batch_dim_of(tensor: torch.Tensor, batch: Batch, module: nn.Module | None) -> int | None:
    """Return the batch dimension of one tensor, or None where no dimension fits.

    A size that is a multiple of the batch's is a batch too, such as the windows of all images; but not where it is
    the length of the model's inputs, as of position codes that are the same for every element.
    """
    if batch.size <= 0 or tensor.dim() == 0:
        return None
    dims = [batch.dim, 0]
    if module is not None and tensor.dim() == 3 and _is_batch_second(module):
        dims = [1]
    for dim in dims:
        size = _size_at(tensor, dim)
        if size == batch.size or (size == 1 and dim == batch.dim and tensor.dim() > 1):  # the same for all elements
            return dim
        # One number an element is a batch of numbers; several of them in a row are a vector of the whole.
        if size and size % batch.size == 0 and size not in batch.lengths and tensor.dim() > 1:
            return dim
    return None


def _is_batch_second(module: nn.Module) -> bool:
    """Return whether a module of torch itself takes the sequence first."""
    if not type(module).__module__.startswith("torch.nn.modules."):
        return False
    if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        return not module.self_attn.batch_first
    if isinstance(module, nn.TransformerEncoder | nn.TransformerDecoder):
        return _is_batch_second(module.layers[0]) if len(module.layers) else False
    return getattr(module, "batch_first", True) is False
