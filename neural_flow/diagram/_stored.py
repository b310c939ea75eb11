"""Lines and joins of a stored graph, which holds direct edges only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neural_flow.diagram._rings import SYMBOLS
from neural_flow.diagram._sketch import Key
from neural_flow.records import Edge, Flow, Join, Stage, TensorMeta, Topology


def stored_lines(topology: Topology) -> tuple[tuple[Join, ...], tuple[Flow, ...]]:
    """Return joins and flows that say the same as the edges, with joins found again from what the edges meet in.

    Edges into one stage that name the same op met there. Where one stage's sources hold all of another's, its join
    reads that other join, so that a residual stream comes out as the chain it was. A stage with several inputs, and an
    op that is the join itself, joins inside: its edges end at the card.
    """
    return _Reader(topology).run()


def with_arrivals(topology: Topology) -> tuple[Flow, ...]:
    """Return the flows, each with the shape in which it arrives where a graph file kept only the shape it left with.

    A stage with one input reads that; a join that adds or concatenates passes the spatial size on to its reader.
    """
    if all(flow.arrived or not flow.tensors for flow in topology.flows):
        return topology.flows
    arrivals: dict[Key, tuple[TensorMeta, ...]] = {
        ("stage", stage.stage_id): stage.inputs for stage in topology.stages if len(stage.inputs) == 1
    }
    readers: dict[Key, list[Key]] = {}
    for flow in topology.flows:
        readers.setdefault(flow.source, []).append(flow.target)
    for join in sorted(topology.joins, key=lambda join: -join.join_id):
        key: Key = ("join", join.join_id)
        known = [arrivals[reader] for reader in readers.get(key, ()) if reader in arrivals]
        if known and SYMBOLS.get(join.target) in ("add", "concat", "mul"):
            arrivals[key] = known[0]
    return tuple(
        flow if flow.arrived else replace(flow, arrived=arrivals.get(flow.target, ())) for flow in topology.flows
    )


class _Reader:
    def __init__(self, topology: Topology) -> None:
        self._stages = {stage.stage_id: stage for stage in topology.stages}
        self._into: dict[int, list[Edge]] = {}
        for edge in topology.edges:
            self._into.setdefault(edge.target, []).append(edge)
        self._joins: list[Join] = []
        self._flows: list[Flow] = []
        self._known: list[tuple[str, frozenset[int], int]] = []  # (op, source stages, join id), small before large

    def run(self) -> tuple[tuple[Join, ...], tuple[Flow, ...]]:
        for stage in self._stages.values():
            edges = self._into.get(stage.stage_id, [])
            meeting = [edge for edge in edges if edge.via]
            if len(meeting) < 2 or self._joins_inside(stage, meeting):
                self._flows += [self._flow(edge, ("stage", edge.target), stage) for edge in edges]
                continue
            self._flows += [self._flow(edge, ("stage", edge.target), stage) for edge in edges if not edge.via]
            self._add_joined(stage, meeting)
        return tuple(self._joins), tuple(self._flows)

    def _joins_inside(self, stage: Stage, meeting: Sequence[Edge]) -> bool:
        if stage.kind == "op":
            return True
        return stage.kind == "module" and len(stage.inputs) >= len({edge.source for edge in meeting})

    def _add_joined(self, stage: Stage, meeting: Sequence[Edge]) -> None:
        by_op: dict[str, list[Edge]] = {}
        for edge in meeting:
            by_op.setdefault(edge.via[0], []).append(edge)
        parts = [self._join(op, edges, stage) for op, edges in by_op.items()]
        for part in parts:
            self._flows.append(Flow(source=part, target=("stage", stage.stage_id), tensors=stage.inputs[:1]))

    def _join(self, op: str, edges: Sequence[Edge], stage: Stage) -> Key:
        """Return a join of these sources, reading the largest known joins whose sources are among them."""
        if len(edges) == 1:
            return ("stage", edges[0].source)
        left = {edge.source: edge for edge in edges}
        wanted = frozenset(left)
        sources: list[Key] = []
        for known_op, held, join_id in reversed(self._known):
            if known_op == op and held <= left.keys():
                if held == wanted:
                    return ("join", join_id)
                sources.append(("join", join_id))
                for source in held:
                    del left[source]
        join_id = len(self._joins)
        key: Key = ("join", join_id)
        self._flows += [Flow(source=part, target=key) for part in sources]
        self._flows += [self._flow(edge, key, stage) for edge in left.values()]
        direct: list[Key] = [("stage", source) for source in left]
        self._joins.append(Join(join_id=join_id, target=op, sources=(*sources, *direct)))
        self._known.append((op, wanted, join_id))
        self._known.sort(key=lambda item: (len(item[1]), item[2]))
        return key

    def _flow(self, edge: Edge, target: Key, stage: Stage) -> Flow:
        # a join keeps the spatial size, so what the stage reads tells the size on arrival; several inputs do not
        arrived = stage.inputs if len(stage.inputs) == 1 else ()
        return Flow(
            source=("stage", edge.source),
            target=target,
            kind=edge.kind,
            inferred=edge.inferred,
            opaque=edge.opaque,
            plumbing=edge.plumbing,
            is_removed=edge.is_removed,
            tensors=edge.tensors,
            arrived=arrived,
            through=edge.through,
            marks=edge.marks,
        )
