"""Execution order as topology: what is left when nothing was observed."""

from __future__ import annotations

from neural_flow.records import ValueRef
from neural_flow.topology._base import TOPOLOGY_SOURCES, FlowGraph, FlowOp, TopologyQuery


@TOPOLOGY_SOURCES.register("sequential")
def sequential_graph(query: TopologyQuery) -> FlowGraph:
    """Chain the stages in execution order from the first input; every output and probe hangs on the stage before it."""
    ops: list[FlowOp] = []
    reads: dict[int, tuple[ValueRef, ...]] = {}
    leaves: dict[int, tuple[tuple[ValueRef, ...], ...]] = {}
    before: tuple[ValueRef, ...] = ()
    for stage in query.selection.stages:
        index = len(ops)
        if stage.kind == "input":
            ops.append(FlowOp(target="input", owner=stage.stage_id, role="input", is_weighted=True))
            before = before or ((index, 0),)
            leaves[stage.stage_id] = (((index, 0),),)
            continue
        reads[stage.stage_id] = before
        if stage.kind in ("module", "op"):
            ops.append(FlowOp(target=stage.class_name, parents=before, owner=stage.stage_id, is_weighted=True))
            before = ((index, 0),)
            leaves[stage.stage_id] = tuple(before for _ in stage.outputs[:1])
    return FlowGraph(ops=tuple(ops), reads=reads, leaves=leaves, is_inferred=True)
