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

    Inputs nest: the outermost line has the outermost lane. A line that passes by on its way to others turns into the
    ring from the lane that it has. Call after ordering: the order decides the sides.
    """
    place = _places(grid)
    taken: set[int] = set()
    for ring in _merging_rings(grid):
        row = grid.rows[grid.layer[ring]]
        for side, edges in zip((-1, 1), _sides(grid, ring, place), strict=True):
            at = row.index(ring) + side
            crossed: set[int] = set()
            for edge in edges:
                passing = _passing_lane(grid, edge, row, at, side, taken)
                if passing is not None:
                    crossed.update(row[at : passing + side : side] if passing + side >= 0 else row[at::-1])
                    grid.turns[edge] = row[passing]
                    grid.downs[grid.hop_before(edge)].remove(ring)
                    grid.ups[ring].remove(grid.hop_before(edge))
                    at = passing + side
                    continue
                lane = _add_turn(grid, edge)
                row.insert(at + (side < 0), lane)
                del row[-1]
                crossed.add(lane)
                at += side > 0
            taken |= crossed


def num_passing(grid: Grid) -> int:
    """Return how many inputs of rings come from a lane that passes the ring by: they need no lane of their own."""
    place = _places(grid)
    total = 0
    for ring in _merging_rings(grid):
        row = grid.rows[grid.layer[ring]]
        for side, edges in zip((-1, 1), _sides(grid, ring, place), strict=True):
            at = row.index(ring) + side
            for edge in edges:
                passing = _passing_lane(grid, edge, row, at, side, set())
                if passing is not None:
                    total += 1
                    at = passing + side
    return total


def _places(grid: Grid) -> list[int]:
    place = [0] * len(grid.layer)
    for row in grid.rows:
        for index, element in enumerate(row):
            place[element] = index
    return place


def _merging_rings(grid: Grid) -> list[int]:
    graph = grid.graph
    return [
        node for node in range(graph.num_nodes) if graph.nodes[node].role == "ring" and len(graph.incoming[node]) > 1
    ]


def _sides(grid: Grid, ring: int, place: list[int]) -> tuple[list[int], list[int]]:
    """Return the further inputs of a ring that come from lower and from higher places, the nearest first."""
    graph = grid.graph
    primary = graph.primary[ring]
    centre = place[grid.hop_before(primary)]
    hops = sorted((place[grid.hop_before(edge)], edge) for edge in graph.incoming[ring] if edge != primary)
    return [edge for hop, edge in reversed(hops) if hop < centre], [edge for hop, edge in hops if hop >= centre]


def _passing_lane(grid: Grid, edge: int, row: list[int], at: int, side: int, taken: set[int]) -> int | None:
    """Return the place in ``row`` of the lane on which the line of ``edge`` goes on, where it can turn into its ring.

    Between the ring and that lane there may be lanes, but none in ``taken``: other lines turn into rings there.
    """
    source, ring = grid.graph.source[edge], grid.graph.target[edge]
    lanes = grid.buses.get(source, [])
    span = grid.layer[ring] - grid.layer[source]
    if len(lanes) < span or grid.frames[lanes[span - 1]] != grid.frames[ring]:
        return None
    while 0 <= at < len(row) and not grid.is_node(row[at]) and row[at] not in taken:
        if row[at] == lanes[span - 1]:
            return at
        at += side
    return None


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
