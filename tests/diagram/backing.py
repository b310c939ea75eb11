"""Which arrows of a diagram no value backs, and which values have no arrow; found without the code that folds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from neural_flow.drawing import Diagram, DiagramNode
from neural_flow.records import Topology

Key = tuple[Literal["stage", "join"], int]
Pair = tuple[int, int]


class Backing:
    """What backs the arrows of a diagram.

    Joins that no node stands for only hand on what they read.
    """

    def __init__(self, topology: Topology, diagram: Diagram) -> None:
        self.topology, self.diagram = topology, diagram
        self.shown = {key: node.node_id for node in diagram.nodes for key in keys_of(node)}
        self.readers: dict[Key, list[Key]] = {}
        self.sources: dict[Key, list[Key]] = {}
        for flow in topology.flows:
            self.readers.setdefault(flow.source, []).append(flow.target)
            self.sources.setdefault(flow.target, []).append(flow.source)

    def false_arrows(self) -> list[tuple[str, str, str]]:
        """Return arrows from a node none of whose values reach the other."""
        labels = [node.label or f"{node.symbol} {node.node_id}" for node in self.diagram.nodes]
        return [
            (labels[arrow.source], labels[arrow.target], arrow.kind)
            for arrow in self.diagram.arrows
            if not self._flows(arrow.source, arrow.target)
            and (arrow.kind == "return" or not self._enters(arrow.source, arrow.target))
        ]

    def _flows(self, source: int, target: int) -> bool:
        """Return whether some value that the source stands for reaches the target through nothing that is drawn."""
        ends = set(keys_of(self.diagram.nodes[target]))
        return any(ends & reach(key, self.readers, self.shown.__contains__) for key in self._keys(source))

    def _enters(self, source: int, target: int) -> bool:
        """Return whether the first member of a repeat reads the source, and later ones read members before them there.

        Then the box shows the target reading what the first member was given.
        """
        for fold in self.topology.folds:
            first: set[Key] = {("stage", stage_id) for stage_id in fold.members[0]}
            inside: set[Key] = {("stage", stage_id) for member in fold.members for stage_id in member}
            is_outside = inside.isdisjoint(self._keys(source))
            is_given = any(first & reach(key, self.readers, is_stage) for key in self._keys(source))
            is_handed_on = any(inside & reach(key, self.sources, is_stage) for key in self._keys(target))
            if is_outside and is_given and is_handed_on and fold.kind != "loop":
                return True
        return False

    def _keys(self, node_id: int) -> list[Key]:
        return keys_of(self.diagram.nodes[node_id])


def keys_of(node: DiagramNode) -> list[Key]:
    """Return the stages and joins that a node stands for."""
    return [*(("stage", stage_id) for stage_id in node.stage_ids), *(("join", join_id) for join_id in node.join_ids)]


def is_stage(key: Key) -> bool:
    return key[0] == "stage"


def reach(key: Key, links: dict[Key, list[Key]], is_end: Callable[[Key], bool]) -> set[Key]:
    """Return the ends that are reached from a key through what is no end."""
    found: set[Key] = set()
    pending, seen = list(links.get(key, ())), set[Key]()
    while pending:
        at = pending.pop()
        if at in seen:
            continue
        seen.add(at)
        if is_end(at):
            found.add(at)
        else:
            pending += links.get(at, ())
    return found
