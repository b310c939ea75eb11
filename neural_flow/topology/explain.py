"""Why there is an edge: the operations that a value went through from one stage to another."""

from __future__ import annotations

from dataclasses import dataclass

from neural_flow.records import OpNode, Request, Selection, Trace, ValueRef
from neural_flow.topology._base import FlowGraph, TopologyQuery
from neural_flow.topology.dataflow import dataflow_graph


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainLink:
    """One op on the way, and the stage that ran it (None: glue)."""

    op: OpNode
    stage_id: int | None


def explain_edge(trace: Trace, selection: Selection, source: int, target: int) -> tuple[ChainLink, ...]:
    """Return the shortest chain of ops from ``source`` to ``target``: one op of the source, glue, one op of the target.

    The chain of a direct edge passes no other stage. Where the two are linked through other stages only, these are in
    the chain; where no value flows from one to the other, it is empty. A stage that only hands its input on, an output
    or a probe ends the chain with the op that made the value.

    Args:
        trace: of a metadata pass with dataflow.
        selection: the stages.
        source: stage id.
        target: stage id.

    Raises:
        TopologyUnavailable: the metadata pass ran without its tracer.
    """
    graph = dataflow_graph(TopologyQuery(trace=trace, selection=selection, request=Request()))
    for may_pass_stages in (False, True):
        chain = _shortest(graph, source, target, may_pass_stages)
        if chain:
            return tuple(ChainLink(op=trace.ops[index], stage_id=graph.ops[index].owner) for index in chain)
    return ()


def _shortest(graph: FlowGraph, source: int, target: int, may_pass_stages: bool) -> list[int]:
    """Walk back from what the target reads, breadth first, until an op of the source."""
    reader_of: dict[int, int | None] = {}
    queue: list[int] = []

    def visit(refs: tuple[ValueRef, ...], reader: int | None) -> None:
        for index, _ in refs:
            if index not in reader_of and graph.ops[index].owner != target:
                reader_of[index] = reader
                queue.append(index)

    for index, op in enumerate(graph.ops):
        if op.owner == target:
            visit(op.parents, index)
    visit(graph.reads.get(target, ()), None)
    for index in queue:  # grows while it is walked
        owner = graph.ops[index].owner
        if owner == source:
            return _follow(index, reader_of)
        if owner is None or may_pass_stages:
            visit(graph.ops[index].parents, index)
    return []


def _follow(index: int, reader_of: dict[int, int | None]) -> list[int]:
    chain = [index]
    while (reader := reader_of.get(chain[-1])) is not None:
        chain.append(reader)
    return chain
