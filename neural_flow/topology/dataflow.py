"""The topology as it was observed while the model ran."""

from __future__ import annotations

from collections.abc import Mapping

from neural_flow.errors import TopologyUnavailable
from neural_flow.records import OpNode, Selection, Stage, TensorMeta, Trace, ValueRef
from neural_flow.topology._base import TOPOLOGY_SOURCES, FlowGraph, FlowOp, TopologyQuery
from neural_flow.topology.ownership import Ownership, find_ownership, flat_refs, own_call_ids
from neural_flow.topology.signals import FLOATING

SOURCES = frozenset(("learned", "lookup"))
"""Class names of op stages by which a parameter comes in as data, or rows of it; their values are signal."""


@TOPOLOGY_SOURCES.register("dataflow")
def dataflow_graph(query: TopologyQuery) -> FlowGraph:
    """Return what the tracer saw, with every op given to its stage.

    Raises:
        TopologyUnavailable: the metadata pass ran without its tracer.
    """
    trace, selection = query.trace, query.selection
    if not trace.has_dataflow:
        raise TopologyUnavailable("the metadata pass saw calls only, no operations")
    ownership = find_ownership(trace.calls, selection)
    input_owners = _input_owners(trace, selection)
    weights = frozenset(param.param_id for param in trace.params if len(param.shape) >= 2)
    sources = frozenset(stage.op_id for stage in selection.stages if stage.kind == "op" and stage.class_name in SOURCES)
    ops = tuple(_flow_op(op, trace, ownership, input_owners, weights, sources) for op in trace.ops)
    reads: dict[int, tuple[ValueRef, ...]] = {}
    leaves: dict[int, tuple[tuple[ValueRef, ...], ...]] = {}
    for stage in selection.stages:
        reads[stage.stage_id] = _stage_reads(stage, trace)
        leaves[stage.stage_id] = _stage_leaves(stage, trace)
    unread = {stage.stage_id: _unread(stage, trace) for stage in selection.stages}
    return FlowGraph(ops=ops, reads=reads, leaves=leaves, unread=unread)


def _input_owners(trace: Trace, selection: Selection) -> dict[int, int]:
    """Return the input stage of each input op; a tensor given twice belongs to its first leaf."""
    owners: dict[int, int] = {}
    for stage in selection.stages:
        if stage.kind == "input" and stage.index < len(trace.inputs):
            for op_id, _ in trace.inputs[stage.index].refs:
                owners.setdefault(op_id, stage.stage_id)
    return owners


def _flow_op(
    op: OpNode,
    trace: Trace,
    ownership: Ownership,
    input_owners: Mapping[int, int],
    weights: frozenset[int],
    sources: frozenset[int | None],
) -> FlowOp:
    if op.role in ("input", "unknown"):
        # a tensor of unknown origin comes from outside, wherever it was first read
        owner = input_owners.get(op.op_id)
    else:
        owner = ownership.owner(op.op_id, op.call_id)
    return FlowOp(
        target=op.target,
        parents=op.parents,
        outputs=op.outputs,
        owner=owner,
        role=op.role,
        reads_weight=any(param in weights for param in op.params),
        is_weighted=True if op.op_id in sources else None,
        path="" if op.call_id is None else trace.calls[op.call_id].path,
        mark=ownership.mark(op.call_id),
    )


def _stage_reads(stage: Stage, trace: Trace) -> tuple[ValueRef, ...]:
    if stage.kind == "output":
        return trace.outputs[stage.index].refs if stage.index < len(trace.outputs) else ()
    if stage.kind == "probe":
        return trace.emits[stage.index].refs if stage.index < len(trace.emits) else ()
    return flat_refs([refs for call_id in own_call_ids(stage) for refs in trace.calls[call_id].input_refs])


def _unread(stage: Stage, trace: Trace) -> frozenset[ValueRef]:
    """Return the values that a stage is handed and of which it looks at the shape at most.

    One number may be read where no op tells (as a Python number), and so may whole numbers, which count or choose;
    nor do ops tell what a call reads that ran none (it raised, or it is fused code).
    """
    handed: set[ValueRef] = set()
    used: set[ValueRef] = set()
    for call in (trace.calls[call_id] for call_id in own_call_ids(stage)):
        (handed if call.first_op_id < call.end_op_id else used).update(flat_refs(call.input_refs))
        used.update(ref for op in trace.ops[call.first_op_id : call.end_op_id] for ref in op.parents)
        used.update(flat_refs(call.output_refs))
    return frozenset(ref for ref in handed - used if _is_large_float(trace.ops[ref[0]].outputs[ref[1]]))


def _is_large_float(meta: TensorMeta) -> bool:
    return meta.dtype.startswith(FLOATING) and meta.numel > 1


def _stage_leaves(stage: Stage, trace: Trace) -> tuple[tuple[ValueRef, ...], ...]:
    if stage.kind == "input":
        return (trace.inputs[stage.index].refs,) if stage.index < len(trace.inputs) else ()
    if call_ids := own_call_ids(stage):
        return trace.calls[call_ids[-1]].output_refs
    if stage.kind == "op" and stage.op_id is not None:
        return tuple(((stage.op_id, place),) for place in range(len(stage.outputs)))
    return ()
