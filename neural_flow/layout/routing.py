"""Ways of arrows through the grid, as points (along, across): orthogonal corners, or cubics between layers.

All bending happens in the gaps between layers, where no node stands, so no line runs through a node.
"""

from __future__ import annotations

from neural_flow.drawing import Point
from neural_flow.layout._base import CLEARANCE, CORNER_RADIUS
from neural_flow.layout.channels import back_ends
from neural_flow.layout.plan import Plan

EPSILON = 1e-6
QUARTER = 0.5523
"""Control distance of a cubic that draws a quarter of a circle of radius 1."""
TURN_REACH = 22.0


def route_orthogonal(plan: Plan) -> dict[int, list[Point]]:
    """Return the corners of each edge as (along, across); return arrow ``i`` has key ``-1 - i``."""
    grid, graph = plan.grid, plan.grid.graph
    routes: dict[int, list[Point]] = {}
    for edge in range(graph.num_edges):
        source, target = graph.source[edge], graph.target[edge]
        points: list[Point] = [(plan.body_span(source)[1] + CLEARANCE, plan.across(source))]
        upper = source
        for lane in grid.buses.get(source, [])[: grid.layer[target] - grid.layer[source] - 1]:
            points += _pass_gap(plan, upper, grid.layer[lane], points[-1][1], plan.across(lane))
            upper = lane
        turn = grid.turns.get(edge)
        end = plan.entry(edge) if turn is None else plan.across(turn)
        points += _pass_gap(plan, upper, grid.layer[target], points[-1][1], end)
        if turn is None:
            points.append((plan.body_span(target)[0] - CLEARANCE, end))
        else:
            points += _into_side(plan, target, end)
        routes[edge] = simplify(points)
    for index in range(len(graph.returns)):
        routes[-1 - index] = simplify(_return_points(plan, index))
    return routes


def _pass_gap(plan: Plan, key: int, layer: int, start: float, end: float) -> list[Point]:
    """Return the corners of a line in the gap before ``layer``, from ``start`` to ``end`` across the flow."""
    cut = plan.cuts.get(layer)
    if cut is not None:
        leave, back, enter = cut.leave[key], cut.back[key], cut.enter[key]
        corners = [(leave, start), (leave, back), (enter, back)]
        if key not in cut.jog:
            return [*corners, (enter, end)]
        main = plan.moved_across(layer, plan.channels[layer].lines[key].main_end)
        return [*corners, (enter, main), (cut.jog[key], main), (cut.jog[key], end)]
    if abs(start - end) < EPSILON or plan.channels[layer].lines[key].track < 0:
        return []
    along = plan.track(layer, key)
    return [(along, start), (along, end)]


def _into_side(plan: Plan, ring: int, across: float) -> list[Point]:
    low, high = plan.body_span(ring)
    middle, shape, centre = (low + high) / 2, plan.shapes[ring], plan.across(ring)
    if across < centre:
        return [(middle, across), (middle, centre - shape.body_before - CLEARANCE)]
    return [(middle, across), (middle, centre + shape.body_after + CLEARANCE)]


def _return_points(plan: Plan, index: int) -> list[Point]:
    """Return the way back: out of the source, round all cards between, into the target from the front."""
    grid = plan.grid
    source, target, _ = grid.graph.returns[index]
    lanes = grid.backs[index]
    first, last = back_ends(grid, index)
    after = grid.layer[source] + 1
    out = plan.cuts[after].leave[source] if after in plan.cuts else plan.track(after, source)
    points: list[Point] = [(plan.body_span(source)[1] + CLEARANCE, plan.across(source))]
    points += [(out, plan.across(source)), (out, plan.across(last))]
    for layer in range(grid.layer[source], grid.layer[target], -1):
        upper, lower = lanes[layer - 1 - grid.layer[lanes[0]]], lanes[layer - grid.layer[lanes[0]]]
        points += reversed(_pass_gap(plan, upper, layer, plan.across(upper), plan.across(lower)))
    before = grid.layer[target]
    cut = plan.cuts.get(before)
    back = cut.enter[-1 - index] if cut is not None and -1 - index in cut.enter else plan.track(before, -1 - index)
    end = plan.entry(-1 - index)
    return [*points, (back, plan.across(first)), (back, end), (plan.body_span(target)[0] - CLEARANCE, end)]


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
        points: list[Point] = [(plan.body_span(source)[1] + CLEARANCE, plan.across(source))]
        upper, layer = source, grid.layer[source]
        for lane in grid.buses.get(source, [])[: grid.layer[target] - layer - 1]:
            _swing(plan, points, upper, layer, plan.across(lane))
            upper, layer = lane, layer + 1
        _swing(plan, points, upper, layer, plan.entry(edge))
        _line_to(points, (plan.body_span(target)[0] - CLEARANCE, points[-1][1]))
        routes[edge] = points
    for index in range(len(graph.returns)):
        routes[-1 - index] = _return_curve(plan, index)
    return routes


def _swing(plan: Plan, points: list[Point], key: int, layer: int, end: float) -> None:
    """Go straight to the end of ``layer``'s band, then swing over to ``end`` at the start of the next."""
    _line_to(points, (plan.along(layer, plan.bands.end[layer]), points[-1][1]))
    along = plan.along(layer + 1, plan.bands.start[layer + 1])
    if layer + 1 in plan.cuts:
        _round_corners(points, [*_pass_gap(plan, key, layer + 1, points[-1][1], end), (along, end)])
    else:
        _curve_to(points, (along, end))


def _curve_to(points: list[Point], end: Point) -> None:
    start = points[-1]
    if abs(start[1] - end[1]) < EPSILON:
        _line_to(points, end)
        return
    reach = (end[0] - start[0]) / 2
    points.extend([(start[0] + reach, start[1]), (end[0] - reach, end[1]), end])


def _return_curve(plan: Plan, index: int) -> list[Point]:
    """Return a way back in curves: a turn after the source's layer, lanes, a turn before the target's layer."""
    grid, bands = plan.grid, plan.bands
    source, target, _ = grid.graph.returns[index]
    lanes = grid.backs[index]
    first, last = back_ends(grid, index)
    points: list[Point] = [(plan.body_span(source)[1] + CLEARANCE, plan.across(source))]
    layer = grid.layer[source]
    _line_to(points, (plan.along(layer, bands.end[layer]), points[-1][1]))
    _turn(points, plan.across(last), TURN_REACH)
    for layer in range(grid.layer[source], grid.layer[target], -1):
        upper = lanes[layer - 1 - grid.layer[lanes[0]]]
        _line_to(points, (plan.along(layer, bands.start[layer]), points[-1][1]))
        end = (plan.along(layer - 1, bands.end[layer - 1]), plan.across(upper))
        if layer in plan.cuts:
            corners = _pass_gap(plan, upper, layer, end[1], points[-1][1])
            _round_corners(points, [*reversed(corners), end])
        else:
            _curve_to(points, end)
    layer = grid.layer[target]
    _line_to(points, (plan.along(layer, bands.start[layer]), plan.across(first)))
    _turn(points, plan.entry(-1 - index), -TURN_REACH)
    _line_to(points, (plan.body_span(target)[0] - CLEARANCE, points[-1][1]))
    return points


def _turn(points: list[Point], end: float, reach: float) -> None:
    """Turn round within a gap, to ``end`` across the flow."""
    along, start = points[-1]
    points.extend([(along + reach, start), (along + reach, end), (along, end)])


def _line_to(points: list[Point], end: Point) -> None:
    """Add a straight cubic, or lengthen the last one where it goes on in the same direction."""
    (x0, y0), (x1, y1) = points[-1], end
    if abs(x0 - x1) < EPSILON and abs(y0 - y1) < EPSILON:
        return
    if len(points) > 3 and abs(y0 - y1) < EPSILON and all(abs(p[1] - y1) < EPSILON for p in points[-4:]):
        x0, y0 = points[-4]
        del points[-3:]
    points.extend([(x0 + (x1 - x0) / 3, y0 + (y1 - y0) / 3), (x0 + (x1 - x0) * 2 / 3, y0 + (y1 - y0) * 2 / 3), end])


def _round_corners(points: list[Point], corners: list[Point]) -> None:
    """Add a way round right-angled corners as straight lines and quarter circles."""
    way = simplify([points[-1], *corners])
    for before, corner, after in zip(way, way[1:], way[2:], strict=False):
        radius = min(CORNER_RADIUS, _distance(before, corner) / 2, _distance(corner, after) / 2)
        start, end = _towards(corner, before, radius), _towards(corner, after, radius)
        _line_to(points, start)
        points.extend([_towards(start, corner, radius * QUARTER), _towards(end, corner, radius * QUARTER), end])
    _line_to(points, way[-1])


def _distance(start: Point, end: Point) -> float:
    return abs(end[0] - start[0]) + abs(end[1] - start[1])


def _towards(start: Point, end: Point, distance: float) -> Point:
    length = _distance(start, end) or 1.0
    return start[0] + (end[0] - start[0]) * distance / length, start[1] + (end[1] - start[1]) * distance / length
