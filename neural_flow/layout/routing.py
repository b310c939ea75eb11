"""Ways of arrows through the grid, as points (along, across): orthogonal corners, or cubics between layers.

All bending happens in the gaps between layers, where no node stands, so no line runs through a node.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from neural_flow.drawing import Point
from neural_flow.layout._base import CLEARANCE, NodeShape
from neural_flow.layout.bands import Bands, track_position
from neural_flow.layout.channels import Channel, back_ends
from neural_flow.layout.grid import Grid

EPSILON = 1e-6


@dataclass(slots=True)
class Plan:
    """A placed grid: everything that routes are read from."""

    grid: Grid
    shapes: list[NodeShape]
    x: list[float]
    in_ports: dict[int, float]
    channels: list[Channel]
    bands: Bands

    def node_start(self, node: int) -> float:
        """Return where the room of ``node`` starts along the flow: nodes are centred in their band."""
        layer = self.grid.layer[node]
        spare = self.bands.end[layer] - self.bands.start[layer] - self.shapes[node].length
        return self.bands.start[layer] + spare / 2

    def body_span(self, node: int) -> tuple[float, float]:
        """Return where the body of ``node`` starts and ends along the flow."""
        shape = self.shapes[node]
        start = self.node_start(node) + (shape.length - shape.body_length) / 2
        return start, start + shape.body_length


def route_orthogonal(plan: Plan) -> dict[int, list[Point]]:
    """Return the corners of each edge as (along, across); return arrow ``i`` has key ``-1 - i``."""
    grid, graph = plan.grid, plan.grid.graph
    routes: dict[int, list[Point]] = {}
    for edge in range(graph.num_edges):
        source, target = graph.source[edge], graph.target[edge]
        points: list[Point] = [(plan.body_span(source)[1] + CLEARANCE, plan.x[source])]
        hops = [source, *grid.buses.get(source, [])[: grid.layer[target] - grid.layer[source] - 1]]
        for upper, lower in pairwise(hops):
            _jog(plan, points, upper, grid.layer[lower], plan.x[lower])
        turn = grid.turns.get(edge)
        if turn is None:
            end = plan.x[target] + plan.in_ports.get(edge, 0.0)
            _jog(plan, points, hops[-1], grid.layer[target], end)
            points.append((plan.body_span(target)[0] - CLEARANCE, end))
        else:
            _jog(plan, points, hops[-1], grid.layer[target], plan.x[turn])
            points.extend(_into_side(plan, target, plan.x[turn]))
        routes[edge] = simplify(points)
    for index in range(len(graph.returns)):
        routes[-1 - index] = simplify(_return_points(plan, index))
    return routes


def _jog(plan: Plan, points: list[Point], key: int, layer: int, end: float) -> None:
    line = plan.channels[layer].lines[key]
    if line.track >= 0:
        along = track_position(plan.bands, layer, line.track)
        points.append((along, points[-1][1]))
        points.append((along, end))


def _into_side(plan: Plan, ring: int, across: float) -> list[Point]:
    low, high = plan.body_span(ring)
    middle, shape = (low + high) / 2, plan.shapes[ring]
    if across < plan.x[ring]:
        return [(middle, across), (middle, plan.x[ring] - shape.body_before - CLEARANCE)]
    return [(middle, across), (middle, plan.x[ring] + shape.body_after + CLEARANCE)]


def _return_points(plan: Plan, index: int) -> list[Point]:
    """Return the way back: out of the source, round all cards between, into the target from the front."""
    grid = plan.grid
    source, target, _ = grid.graph.returns[index]
    first, last = back_ends(grid, index)
    points: list[Point] = [(plan.body_span(source)[1] + CLEARANCE, plan.x[source])]
    _jog(plan, points, source, grid.layer[source] + 1, plan.x[last])
    lanes = grid.backs[index]
    for layer in range(grid.layer[source], grid.layer[target], -1):
        upper, lower = lanes[layer - 1 - grid.layer[lanes[0]]], lanes[layer - grid.layer[lanes[0]]]
        line = plan.channels[layer].lines[upper]
        if line.track >= 0:
            along = track_position(plan.bands, layer, line.track)
            points.extend([(along, plan.x[lower]), (along, plan.x[upper])])
    entry = plan.channels[grid.layer[target]].lines[-1 - index]
    end = plan.x[target] + plan.in_ports.get(-1 - index, 0.0)
    along = track_position(plan.bands, grid.layer[target], entry.track)
    points.extend([(along, plan.x[first]), (along, end), (plan.body_span(target)[0] - CLEARANCE, end)])
    return points


def simplify(points: list[Point]) -> list[Point]:
    """Return the corners only: no repeated point, no point on a straight line."""
    kept: list[Point] = []
    for point in points:
        if kept and abs(point[0] - kept[-1][0]) < EPSILON and abs(point[1] - kept[-1][1]) < EPSILON:
            continue
        if len(kept) > 1 and _is_straight(kept[-2], kept[-1], point):
            kept[-1] = point
        else:
            kept.append(point)
    return kept


def _is_straight(a: Point, b: Point, c: Point) -> bool:
    is_level = abs(a[1] - b[1]) < EPSILON and abs(b[1] - c[1]) < EPSILON
    is_upright = abs(a[0] - b[0]) < EPSILON and abs(b[0] - c[0]) < EPSILON
    return is_level or is_upright


def route_curves(plan: Plan) -> dict[int, list[Point]]:
    """Return each edge as a start and three points per cubic; tangents follow the flow at every layer.

    Two such curves in one gap cross at most once, and only where their order is inverted.
    """
    grid, graph = plan.grid, plan.grid.graph
    routes: dict[int, list[Point]] = {}
    for edge in range(graph.num_edges):
        source, target = graph.source[edge], graph.target[edge]
        points: list[Point] = [(plan.body_span(source)[1] + CLEARANCE, plan.x[source])]
        layer = grid.layer[source]
        for lane in grid.buses.get(source, [])[: grid.layer[target] - layer - 1]:
            _curve(plan, points, layer, plan.x[lane])
            layer += 1
        _curve(plan, points, layer, plan.x[target] + plan.in_ports.get(edge, 0.0))
        _line_to(points, (plan.body_span(target)[0] - CLEARANCE, points[-1][1]))
        routes[edge] = points
    for index in range(len(graph.returns)):
        corners = simplify(_return_points(plan, index))
        points = corners[:1]
        for corner in corners[1:]:
            _line_to(points, corner)
        routes[-1 - index] = points
    return routes


def _curve(plan: Plan, points: list[Point], layer: int, end: float) -> None:
    """Go straight to the end of ``layer``'s band, then swing over to ``end`` at the start of the next."""
    _line_to(points, (plan.bands.end[layer], points[-1][1]))
    start, along = points[-1], plan.bands.start[layer + 1]
    if abs(start[1] - end) < EPSILON:
        _line_to(points, (along, end))
        return
    reach = (along - start[0]) / 2
    points.extend([(start[0] + reach, start[1]), (along - reach, end), (along, end)])


def _line_to(points: list[Point], end: Point) -> None:
    """Add a straight cubic, or lengthen the last one where it goes on in the same direction."""
    (x0, y0), (x1, y1) = points[-1], end
    if abs(x0 - x1) < EPSILON and abs(y0 - y1) < EPSILON:
        return
    if len(points) > 3 and abs(y0 - y1) < EPSILON and all(abs(p[1] - y1) < EPSILON for p in points[-4:]):
        x0, y0 = points[-4]
        del points[-3:]
    points.extend([(x0 + (x1 - x0) / 3, y0 + (y1 - y0) / 3), (x0 + (x1 - x0) * 2 / 3, y0 + (y1 - y0) * 2 / 3), end])
