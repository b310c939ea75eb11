"""What lines are in a drawing, and which of them others split off.

The kinds of arrows come from ancestry alone. A drawing knows more: which line its rows carry on, and which stages of
a U stand on the way of a skip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from neural_flow.drawing import Arrow, ArrowKind, Point
from neural_flow.layout.graph import FlowGraph
from neural_flow.layout.u_find import Bridge

_RANKS: dict[ArrowKind, int] = {"primary": 0, "skip": 1, "merge": 2, "branch": 3, "return": 4}


@dataclass(frozen=True, slots=True)
class Way:
    """One line: its arrow, the node it comes from, its corners along and across the flow, what it is in the drawing."""

    arrow: Arrow
    source: int
    points: list[Point]
    kind: ArrowKind | None = None


def line_kinds(graph: FlowGraph, bridges: Sequence[Bridge] = ()) -> dict[int, ArrowKind]:
    """Return the kinds of lines that differ from those of their arrows, by edge.

    Where the row of a stage carries on another input than the one with most ancestors, the two change their looks: the
    second stack of a pair is a trunk of its own, and what it reads of the first one merges into it. A bridge of a U is
    a skip from end to end, whatever stands on it.
    """
    kinds: dict[int, ArrowKind] = {}
    for node, primary in enumerate(graph.primary):
        if primary < 0 or graph.arrows[primary].kind != "merge":
            continue
        kinds[primary] = "primary"
        for edge in graph.incoming[node]:
            if edge != primary and graph.arrows[edge].kind in ("primary", "branch"):
                kinds[edge] = "merge"
    for bridge in bridges:
        if bridge.stops:
            way = [bridge.source, *bridge.stops, bridge.target]
            steps = set(pairwise(way))
            for edge, ends in enumerate(zip(graph.source, graph.target, strict=True)):
                if ends in steps and graph.arrows[edge].kind != "skip":
                    kinds[edge] = "skip"
    return kinds


def order_ways(graph: FlowGraph, points: Mapping[int, list[Point]], kinds: Mapping[int, ArrowKind]) -> list[Way]:
    """Return all lines; the line that others split off, the most important one, comes first.

    Return arrow ``i`` has key ``-1 - i`` in ``points``.
    """
    is_trunk = [False] * graph.num_nodes
    for node in graph.trunk:
        is_trunk[node] = True

    def importance(edge: int) -> tuple[bool, bool, int, int]:
        arrow, target = graph.arrows[edge], graph.target[edge]
        is_main = is_trunk[target] and graph.primary[target] == edge
        return arrow.inferred, not is_main, _RANKS[kinds.get(edge, arrow.kind)], arrow.arrow_id

    edges = sorted(range(graph.num_edges), key=importance)
    ways = [Way(graph.arrows[edge], graph.source[edge], points[edge], kinds.get(edge)) for edge in edges]
    return ways + [Way(arrow, source, points[-1 - index]) for index, (source, _, arrow) in enumerate(graph.returns)]


def words_of(graph: FlowGraph) -> dict[int, tuple[int, str]]:
    """Return where each arrow comes from and what its label says, by arrow id."""
    return {
        arrow.arrow_id: (source, arrow.text or arrow.kind)
        for arrow, source in zip(graph.arrows, graph.source, strict=True)
    }
