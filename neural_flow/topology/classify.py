"""Primary, skip or merge: how each line into a node relates to the deepest way that leads there."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace

from neural_flow.records import Edge, EdgeKind, Flow, Stage
from neural_flow.topology._base import Node

Link = tuple[int, int, bool]
"""(source, target, plumbing) by place in call order."""


def link_kinds(
    num_nodes: int,
    links: Sequence[Link],
    counts: Sequence[bool] | None = None,
    weights: Sequence[int] | None = None,
    onlookers: Set[int] = frozenset(),
) -> list[EdgeKind]:
    """Return the kind of each link of an acyclic graph.

    The primary link into a node comes from the predecessor with most ancestors; of several as deep, from the one that
    fewest read (what many read is a condition), then the one that carries most, then the earliest call. Signal goes
    before plumbing, and nobody is an ancestor by plumbing alone. A link whose source is an ancestor of the primary
    source is a skip, any other one a merge.

    Args:
        num_nodes: nodes are their places in call order.
        links: at most one a pair.
        counts: which nodes count as ancestors; all by default.
        weights: how many elements each link carries; equal by default.
        onlookers: nodes that only look on, as probes do: they are not counted among those that read.
    """
    carried = [0] * len(links) if weights is None else weights
    readers = Counter(source for source, target, _ in links if target not in onlookers)
    preferences = [(-readers[source], carried[index], -source) for index, (source, *_) in enumerate(links)]
    into: list[list[int]] = [[] for _ in range(num_nodes)]
    num_readers = [0] * num_nodes
    for index, (source, target, _) in enumerate(links):
        into[target].append(index)
        num_readers[source] += 1
    counted = -1 if counts is None else sum(1 << node for node, does_count in enumerate(counts) if does_count)
    closures = [0] * num_nodes  # ancestors and itself, as bits; dropped after the last reader
    kinds: list[EdgeKind] = ["primary"] * len(links)
    for node in topological_order(num_nodes, ((source, target) for source, target, _ in links)):
        closure = 1 << node
        for index in into[node]:
            source, _, is_plumbing = links[index]
            if not is_plumbing:
                closure |= closures[source]
        _classify(into[node], links, preferences, closures, counted, kinds)
        for index in into[node]:
            source = links[index][0]
            num_readers[source] -= 1
            if not num_readers[source]:
                closures[source] = 0
        closures[node] = closure if num_readers[node] else 0
    return kinds


def _classify(
    indices: Sequence[int],
    links: Sequence[Link],
    preferences: Sequence[tuple[int, int, int]],
    closures: Sequence[int],
    counted: int,
    kinds: list[EdgeKind],
) -> None:
    if len(indices) < 2:
        return

    def depth(index: int) -> tuple[bool, int, tuple[int, int, int]]:
        source, _, is_plumbing = links[index]
        return not is_plumbing, (closures[source] & counted).bit_count(), preferences[index]

    primary = max(indices, key=depth)
    trunk = closures[links[primary][0]]
    for index in indices:
        if index != primary:
            kinds[index] = "skip" if trunk >> links[index][0] & 1 else "merge"


def topological_order(num_nodes: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Return the nodes so that every source comes before its targets, in call order where free.

    Nodes on a cycle, which only a card split over time can make, come last in call order.
    """
    targets: list[list[int]] = [[] for _ in range(num_nodes)]
    waiting = [0] * num_nodes
    for source, target in pairs:
        targets[source].append(target)
        waiting[target] += 1
    ready = [node for node in range(num_nodes) if not waiting[node]]
    order: list[int] = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for target in targets[node]:
            waiting[target] -= 1
            if not waiting[target]:
                heapq.heappush(ready, target)
    if len(order) < num_nodes:
        order += [node for node in range(num_nodes) if waiting[node] > 0]
    return order


def classify_edges(edges: Sequence[Edge], stages: Sequence[Stage]) -> tuple[Edge, ...]:
    """Return the edges with their kinds, sorted by target and source in call order."""
    places = {stage.stage_id: place for place, stage in enumerate(stages)}
    ordered = sorted(edges, key=lambda edge: (places[edge.target], places[edge.source]))
    links = [(places[edge.source], places[edge.target], edge.plumbing) for edge in ordered]
    probes = {places[stage.stage_id] for stage in stages if stage.kind == "probe"}
    kinds = link_kinds(len(stages), links, weights=[_num_elements(edge) for edge in ordered], onlookers=probes)
    return tuple(
        edge if edge.kind == kind else replace(edge, kind=kind) for edge, kind in zip(ordered, kinds, strict=True)
    )


def classify_flows(flows: Sequence[Flow], nodes: Sequence[Node]) -> tuple[Flow, ...]:
    """Return the flows with their kinds, sorted by target and source; ``nodes`` are in call order."""
    places = {node: place for place, node in enumerate(nodes)}
    ordered = sorted(flows, key=lambda flow: (places[flow.target], places[flow.source]))
    links = [(places[flow.source], places[flow.target], flow.plumbing) for flow in ordered]
    counts = [kind == "stage" for kind, _ in nodes]
    kinds = link_kinds(len(nodes), links, counts, [_num_elements(flow) for flow in ordered])
    return tuple(
        flow if flow.kind == kind else replace(flow, kind=kind) for flow, kind in zip(ordered, kinds, strict=True)
    )


def _num_elements(line: Edge | Flow) -> int:
    return sum(meta.numel for meta in line.tensors)
