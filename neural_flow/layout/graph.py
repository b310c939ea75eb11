"""The diagram as integer arrays: an order without cycles, who is upstream of whom, and the trunk."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace

from neural_flow.drawing import Arrow, Diagram, DiagramNode


@dataclass(slots=True)
class FlowGraph:
    """Nodes ``0 … n-1`` in execution order; edges by index. Return arrows are kept apart, so edges make a DAG."""

    nodes: list[DiagramNode]
    arrows: list[Arrow]
    source: list[int]
    target: list[int]
    returns: list[tuple[int, int, Arrow]]
    outgoing: list[list[int]]
    incoming: list[list[int]]
    num_ancestors: list[int] = field(default_factory=list[int])
    primary: list[int] = field(default_factory=list[int])
    """Edge index of each node's primary in-edge, -1 for a source."""
    trunk: list[int] = field(default_factory=list[int])

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.nodes)

    @property
    def num_edges(self) -> int:
        """Number of edges without return arrows."""
        return len(self.source)


def build_graph(diagram: Diagram) -> FlowGraph:
    """Return the flow graph of ``diagram``; arrows that would close a cycle become return arrows."""
    nodes = sorted(diagram.nodes, key=lambda node: (node.order, node.node_id))
    place = {node.node_id: index for index, node in enumerate(nodes)}
    arrows = sorted(diagram.arrows, key=lambda arrow: arrow.arrow_id)
    ends = [(place[arrow.source], place[arrow.target], arrow) for arrow in arrows]
    forward = [end for end in ends if end[2].kind != "return" and end[0] != end[1]]
    order = _topological_order(len(nodes), forward)
    if order is None:
        forward = [end for end in forward if end[0] < end[1]]
        order = list(range(len(nodes)))
    kept = {id(end[2]) for end in forward}
    rank = [0] * len(nodes)
    for position, index in enumerate(order):
        rank[index] = position
    graph = FlowGraph(
        nodes=[nodes[index] for index in order],
        arrows=[end[2] for end in forward],
        source=[rank[end[0]] for end in forward],
        target=[rank[end[1]] for end in forward],
        returns=[(rank[end[0]], rank[end[1]], end[2]) for end in ends if id(end[2]) not in kept],
        outgoing=[[] for _ in nodes],
        incoming=[[] for _ in nodes],
    )
    for edge, (source, target) in enumerate(zip(graph.source, graph.target, strict=True)):
        graph.outgoing[source].append(edge)
        graph.incoming[target].append(edge)
    _find_trunk(graph, _frame_sets(diagram, graph.nodes))
    return graph


def _frame_sets(diagram: Diagram, nodes: list[DiagramNode]) -> list[int]:
    """Return the members of each frame, those of its children included, as bit sets of node indices."""
    place = {node.node_id: index for index, node in enumerate(nodes)}
    sets = {frame.frame_id: 0 for frame in diagram.frames}
    parents = {frame.frame_id: frame.parent_id for frame in diagram.frames}
    for frame in diagram.frames:
        members = sum(1 << place[node] for node in set(frame.node_ids) if node in place)
        above, seen = frame.frame_id, set[int]()
        while above is not None and above in sets and above not in seen:
            seen.add(above)
            sets[above] |= members
            above = parents[above]
    return [sets[frame.frame_id] for frame in sorted(diagram.frames, key=lambda frame: frame.frame_id)]


def _topological_order(num_nodes: int, ends: list[tuple[int, int, Arrow]]) -> list[int] | None:
    """Return the order nearest to the given one, or None where the edges make a cycle."""
    if all(source < target for source, target, _ in ends):
        return list(range(num_nodes))
    missing = [0] * num_nodes
    targets: list[list[int]] = [[] for _ in range(num_nodes)]
    for source, target, _ in ends:
        missing[target] += 1
        targets[source].append(target)
    ready = [index for index in range(num_nodes) if not missing[index]]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for target in targets[index]:
            missing[target] -= 1
            if not missing[target]:
                heapq.heappush(ready, target)
    return order if len(order) == num_nodes else None


def _find_trunk(graph: FlowGraph, frames: list[int]) -> None:
    """Fill ancestor counts, primary in-edges and the trunk.

    The primary in-edge comes from the frame of its target, if that frame has come some way already: the second stack
    of a pair goes on in itself, and what it reads of the first is a side input, however deep. Else it is the declared
    one, else the one with most ancestors.

    Ancestor sets are bit sets in Python integers, freed once the last consumer of a node has read them: memory stays
    proportional to what is live.
    """
    num_nodes = graph.num_nodes
    sets: list[int] = [0] * num_nodes
    readers = [len(edges) for edges in graph.outgoing]
    graph.num_ancestors = [0] * num_nodes
    graph.primary = [-1] * num_nodes
    for node in range(num_nodes):
        union = 0
        best = (False, False, -1, 0)
        around = [frame for frame in frames if frame >> node & 1] if len(graph.incoming[node]) > 1 else []
        for edge in graph.incoming[node]:
            source = graph.source[edge]
            upstream = sets[source] | (1 << source)
            union |= upstream
            goes_on = any(frame >> source & 1 and (frame & upstream).bit_count() > 1 for frame in around)
            is_declared = graph.arrows[edge].kind in ("primary", "branch")
            score = (goes_on, is_declared, graph.num_ancestors[source], -source)
            if score > best or graph.primary[node] < 0:
                best = score
                graph.primary[node] = edge
            readers[source] -= 1
            if not readers[source]:
                sets[source] = 0
        graph.num_ancestors[node] = union.bit_count()
        sets[node] = union if graph.outgoing[node] else 0
    if not num_nodes:
        return
    node = max(range(num_nodes), key=lambda index: (graph.num_ancestors[index], -index))
    trunk = [node]
    while graph.primary[node] >= 0:
        node = graph.source[graph.primary[node]]
        trunk.append(node)
    graph.trunk = trunk[::-1]


def adopt_forward_returns(graph: FlowGraph, ranks: list[int]) -> None:
    """Turn return arrows that go forwards in ``ranks`` into edges: only those against the flow need an arc."""
    kept: list[tuple[int, int, Arrow]] = []
    for source, target, arrow in graph.returns:
        if ranks[source] < ranks[target]:
            edge = len(graph.source)
            graph.source.append(source)
            graph.target.append(target)
            graph.arrows.append(arrow)
            graph.outgoing[source].append(edge)
            graph.incoming[target].append(edge)
            if graph.primary[target] < 0:
                graph.primary[target] = edge
        else:
            kept.append((source, target, arrow))
    graph.returns[:] = kept


def split_diagram(diagram: Diagram) -> list[Diagram]:
    """Return one diagram per connected part, in execution order. Frames keep the nodes they have in the part."""
    nodes = sorted(diagram.nodes, key=lambda node: (node.order, node.node_id))
    parent = {node.node_id: node.node_id for node in nodes}
    place = {node.node_id: index for index, node in enumerate(nodes)}

    def find(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for arrow in diagram.arrows:
        first, second = sorted((find(arrow.source), find(arrow.target)), key=place.__getitem__)
        parent[second] = first
    members: dict[int, list[DiagramNode]] = {}
    for node in nodes:
        members.setdefault(find(node.node_id), []).append(node)
    if len(members) < 2:
        return [diagram]
    arrows: dict[int, list[Arrow]] = {root: [] for root in members}
    for arrow in diagram.arrows:
        arrows[find(arrow.source)].append(arrow)
    parts: list[Diagram] = []
    for root, part in members.items():
        inside = {node.node_id for node in part}
        frames = [
            replace(frame, node_ids=tuple(node for node in frame.node_ids if node in inside))
            for frame in diagram.frames
            if inside.intersection(frame.node_ids)
        ]
        parts.append(Diagram(nodes=tuple(part), arrows=tuple(arrows[root]), frames=tuple(frames)))
    return parts
