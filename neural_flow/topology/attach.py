"""Edges that nobody observed: where a figure has a hole, what ran before is said to lead on, and marked inferred."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from neural_flow.records import Edge, Stage


def inferred_edges(stages: Sequence[Stage], edges: Sequence[Edge], unknown_stages: Collection[int]) -> list[Edge]:
    """Return the edges to add for stages without a predecessor.

    One is attached to the previous stage if one of its inputs came from an unknown source, or if the figure would
    otherwise fall apart. A stage that only constants feed and that joins the figure later stays a root.
    """
    parts = _Parts(stages, edges)
    has_source = {edge.target for edge in edges}
    with_input = {parts.find(stage.stage_id) for stage in stages if stage.kind == "input"}
    added: list[Edge] = []
    previous: Stage | None = None
    first_input = next((stage for stage in stages if stage.kind == "input"), None)
    is_first: dict[int, bool] = {}
    for stage in stages:
        part = parts.find(stage.stage_id)
        is_earliest = is_first.setdefault(part, True)
        is_first[part] = False
        if stage.kind == "input":
            continue
        if stage.stage_id not in has_source:
            source = None
            if stage.stage_id in unknown_stages:
                source = previous or first_input
            elif is_earliest and part not in with_input:
                source = previous
            if source is not None:
                added.append(Edge(source=source.stage_id, target=stage.stage_id, inferred=True, tensors=source.outputs))
        if stage.kind in ("module", "op"):
            previous = stage
    return added


class _Parts:
    """Union-find over stages: which of them hang together."""

    def __init__(self, stages: Sequence[Stage], edges: Sequence[Edge]) -> None:
        self._above = {stage.stage_id: stage.stage_id for stage in stages}
        for edge in edges:
            self._above[self.find(edge.source)] = self.find(edge.target)

    def find(self, key: int) -> int:
        while self._above[key] != key:
            self._above[key] = self._above[self._above[key]]
            key = self._above[key]
        return key
