"""Elements in layers: nodes, and the lanes that lines take through layers where they have no node.

All long lines of one source share one chain of lanes (a bus), so a tensor read by many stages costs one lane per
layer and not one per reader.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from neural_flow.layout.graph import FlowGraph


@dataclass(slots=True)
class Grid:
    """Elements ``0 … n-1`` are the nodes of the graph, later ones lanes. ``rows`` hold each layer's order."""

    graph: FlowGraph
    layer: list[int]
    rows: list[list[int]]
    bus: list[int]
    """Lanes: the source node they carry. Nodes: -1."""
    ups: list[list[int]]
    downs: list[list[int]]
    buses: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """Source node to its lanes, one per layer from the layer after the source."""
    backs: list[list[int]] = field(default_factory=list[list[int]])
    """Lanes of each return arrow, from its target's layer to its source's."""
    turns: dict[int, int] = field(default_factory=dict[int, int])
    """Edge to the lane beside its ring, where the line turns into the ring's side."""
    is_trunk: list[bool] = field(default_factory=list[bool])
    frames: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    """Frames that hold each element, outermost first."""

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        return len(self.rows)

    def is_node(self, element: int) -> bool:
        """Return whether ``element`` is a node and no lane."""
        return element < self.graph.num_nodes

    def add_lane(self, layer: int, bus: int) -> int:
        """Add a lane at the end of ``layer`` and return it."""
        element = len(self.layer)
        self.layer.append(layer)
        self.bus.append(bus)
        self.ups.append([])
        self.downs.append([])
        self.is_trunk.append(False)
        self.frames.append(())
        self.rows[layer].append(element)
        return element

    def link(self, upper: int, lower: int) -> None:
        """Connect two elements of neighbouring layers."""
        self.downs[upper].append(lower)
        self.ups[lower].append(upper)

    def hop_before(self, edge: int) -> int:
        """Return the element that ``edge`` leaves for the layer of its target."""
        source, target = self.graph.source[edge], self.graph.target[edge]
        span = self.layer[target] - self.layer[source]
        return source if span == 1 else self.buses[source][span - 2]


def build_grid(graph: FlowGraph, ranks: list[int]) -> Grid:
    """Return the grid of a ranked graph, each layer still in order of creation."""
    num_layers = max(ranks, default=-1) + 1
    num_nodes = graph.num_nodes
    grid = Grid(
        graph=graph,
        layer=list(ranks),
        rows=[[] for _ in range(num_layers)],
        bus=[-1] * num_nodes,
        ups=[[] for _ in range(num_nodes)],
        downs=[[] for _ in range(num_nodes)],
        is_trunk=[False] * num_nodes,
        frames=[()] * num_nodes,
    )
    for node, rank in enumerate(ranks):
        grid.rows[rank].append(node)
    for node in range(num_nodes):
        _add_bus(grid, node)
    _mark_trunk(grid)
    for source, target, _ in graph.returns:
        first, last = sorted((ranks[source], ranks[target]))
        lanes = [grid.add_lane(layer, -1) for layer in range(first, last + 1)]
        for upper, lower in pairwise(lanes):
            grid.link(upper, lower)
        grid.backs.append(lanes)
    return grid


def _add_bus(grid: Grid, source: int) -> None:
    graph, start = grid.graph, grid.layer[source]
    targets = [graph.target[edge] for edge in graph.outgoing[source]]
    if not targets:
        return
    reach = max(grid.layer[target] for target in targets)
    lanes: list[int] = []
    upper = source
    for layer in range(start + 1, reach):
        lane = grid.add_lane(layer, source)
        grid.link(upper, lane)
        lanes.append(lane)
        upper = lane
    if lanes:
        grid.buses[source] = lanes
    for edge in graph.outgoing[source]:
        grid.link(grid.hop_before(edge), graph.target[edge])


def _mark_trunk(grid: Grid) -> None:
    """Mark the nodes of the trunk and the lanes between them."""
    graph = grid.graph
    for node in graph.trunk:
        grid.is_trunk[node] = True
        edge = graph.primary[node]
        if edge >= 0:
            span = grid.layer[node] - grid.layer[graph.source[edge]]
            for lane in grid.buses.get(graph.source[edge], [])[: span - 1]:
                grid.is_trunk[lane] = True


def place_turns(grid: Grid) -> None:
    """Give each further input of a ring a lane beside the ring, on the side that the input comes from.

    Inputs nest: the outermost line has the outermost lane. Call after ordering: the order decides the sides.
    """
    graph = grid.graph
    place = [0] * len(grid.layer)
    for row in grid.rows:
        for index, element in enumerate(row):
            place[element] = index
    for node in range(graph.num_nodes):
        if graph.nodes[node].role != "ring" or len(graph.incoming[node]) < 2:
            continue
        primary = graph.primary[node]
        centre = place[grid.hop_before(primary)]
        sides: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
        for edge in graph.incoming[node]:
            if edge != primary:
                hop = place[grid.hop_before(edge)]
                sides[int(hop >= centre)].append((hop, edge))
        row = grid.rows[grid.layer[node]]
        _take_passing_lanes(grid, node, sides)
        lanes: list[list[int]] = []
        for side in sides:
            lanes.append([_add_turn(grid, edge) for _, edge in sorted(side)])
        del row[len(row) - sum(map(len, lanes)) :]
        at = row.index(node)
        row[at : at + 1] = [*lanes[0], node, *lanes[1]]


def _take_passing_lanes(grid: Grid, ring: int, sides: tuple[list[tuple[int, int]], list[tuple[int, int]]]) -> None:
    """Let a line that passes beside the ring on its way to others turn into the ring from there, with no lane more."""
    graph = grid.graph
    row = grid.rows[grid.layer[ring]]
    at = row.index(ring)
    for side, neighbour in zip(sides, (at - 1, at + 1), strict=True):
        if not 0 <= neighbour < len(row) or grid.is_node(row[neighbour]):
            continue
        passing = row[neighbour]
        for hop, edge in side:
            if grid.bus[passing] == graph.source[edge]:
                side.remove((hop, edge))
                grid.turns[edge] = passing
                upper = grid.hop_before(edge)
                grid.downs[upper].remove(ring)
                grid.ups[ring].remove(upper)
                break


def _add_turn(grid: Grid, edge: int) -> int:
    target = grid.graph.target[edge]
    hop = grid.hop_before(edge)
    lane = grid.add_lane(grid.layer[target], grid.graph.source[edge])
    grid.downs[hop][grid.downs[hop].index(target)] = lane
    grid.ups[target].remove(hop)
    grid.ups[lane].append(hop)
    grid.turns[edge] = lane
    grid.frames[lane] = grid.frames[target]
    return lane
