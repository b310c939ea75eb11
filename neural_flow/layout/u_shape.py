"""The U style: a staircase down, skips as straight horizontals, a mirrored way up into the merges."""

from __future__ import annotations

from neural_flow.drawing import Diagram, Layout, LayoutOptions, Placement, Point, Sizes
from neural_flow.layout._base import CLEARANCE, LAYOUT_STYLES, MIN_PORT_PITCH
from neural_flow.layout.graph import FlowGraph, build_graph, split_diagram
from neural_flow.layout.layered import lay_out_part
from neural_flow.layout.routing import simplify
from neural_flow.layout.sheet import Sheet, finish, make_routes, pack
from neural_flow.layout.u_find import find_u
from neural_flow.layout.u_place import CARD_GAP, LANE_SPACE, UPlaces, place_u

TAP_REACH = 9.0


@LAYOUT_STYLES.register("u")
def lay_out_u(diagram: Diagram, sizes: Sizes, options: LayoutOptions) -> Layout:
    """Place ``diagram`` as a U where it is one; parts that are none are layered from left to right."""
    sheets: list[Sheet] = []
    for part in split_diagram(diagram):
        sheet = make_u_sheet(part, sizes)
        sheets.append(sheet if sheet is not None else lay_out_part(part, sizes, "lr"))
    return finish(pack(sheets, max_width=options.max_width))


def make_u_sheet(diagram: Diagram, sizes: Sizes) -> Sheet | None:
    """Return the sheet of a connected diagram drawn as a U, or None where it is none."""
    graph = build_graph(diagram)
    shape = find_u(graph, sizes)
    if shape is None:
        return None
    places = place_u(graph, shape, sizes)
    sheet = Sheet(style="u", direction="lr")
    for index, node in enumerate(graph.nodes):
        sheet.placements.append(
            Placement(
                node_id=node.node_id,
                body=places.body(index),
                label=places.label(index),
                label_side="above" if places.is_label_above[index] else "below",
            )
        )
    ways = [(graph.arrows[edge], graph.source[edge], _way(places, edge)) for edge in _drawing_order(graph)]
    ways += [(arrow, source, _loop(places, source, target)) for source, target, arrow in graph.returns]
    sheet.routes.extend(make_routes(ways, is_curved=False, direction="lr"))
    return sheet


def _drawing_order(graph: FlowGraph) -> list[int]:
    return sorted(range(graph.num_edges), key=lambda edge: (graph.primary[graph.target[edge]] != edge, edge))


def _way(places: UPlaces, edge: int) -> list[Point]:
    """Return the corners of one edge."""
    graph, shape = places.graph, places.shape
    source, target = graph.source[edge], graph.target[edge]
    for index, branch in enumerate(shape.conditions):
        if source in branch.nodes and target not in branch.nodes:
            return _rise(places, index, source, target)
    if edge in places.detours:
        return _detour(places, source, target, places.detours[edge])
    hanging = {node for branch in [*shape.starts, *shape.heads] for node in branch.nodes}
    if (source in hanging) != (target in hanging):
        return _hang_way(places, source, target)
    if places.y[source] == places.y[target]:
        return _straight(places, source, target)
    if places.y[source] < places.y[target]:
        x, y = places.centre(source), places.y[target]
        return [(x, places.bottom(source) + CLEARANCE), (x, y), (places.x[target] - CLEARANCE, y)]
    x = places.centre(target)
    end = (x, places.bottom(target) + CLEARANCE)
    if abs(x - places.centre(source)) < 0.01:
        return [(x, places.top(source) - CLEARANCE), end]
    return [(places.right(source) + CLEARANCE, places.y[source]), (x, places.y[source]), end]


def _straight(places: UPlaces, source: int, target: int) -> list[Point]:
    y = places.y[source]
    return [(places.right(source) + CLEARANCE, y), (places.x[target] - CLEARANCE, y)]


def _detour(places: UPlaces, source: int, target: int, lane: float) -> list[Point]:
    """Leave the line after the source, pass the stages between on a lane, enter the target from that side."""
    y, out = places.y[source], places.right(source) + TAP_REACH
    start = [(places.right(source) + CLEARANCE, y), (out, y), (out, y + lane)]
    if places.is_ring(target):
        middle = places.centre(target)
        edge = places.bottom(target) + CLEARANCE if lane > 0 else places.top(target) - CLEARANCE
        return [*start, (middle, y + lane), (middle, edge)]
    side = y + (MIN_PORT_PITCH if lane > 0 else -MIN_PORT_PITCH)
    before = places.x[target] - TAP_REACH
    return [*start, (before, y + lane), (before, side), (places.x[target] - CLEARANCE, side)]


def _hang_way(places: UPlaces, source: int, target: int) -> list[Point]:
    """Go between a row and a branch that hangs below it."""
    if places.y[source] == places.y[target]:
        return _straight(places, source, target)
    if places.y[source] < places.y[target]:
        x = places.right(source) + TAP_REACH
        y = places.y[source]
        return [
            (places.right(source) + CLEARANCE, y),
            (x, y),
            (x, places.y[target]),
            (places.x[target] - CLEARANCE, places.y[target]),
        ]
    start = (places.right(source) + CLEARANCE, places.y[source])
    if places.is_ring(target):
        x = places.centre(target)
        return [start, (x, places.y[source]), (x, places.bottom(target) + CLEARANCE)]
    x = places.x[target] - TAP_REACH
    side = places.y[target] + MIN_PORT_PITCH
    return [start, (x, places.y[source]), (x, side), (places.x[target] - CLEARANCE, side)]


def _rise(places: UPlaces, index: int, source: int, target: int) -> list[Point]:
    bus, x = places.buses[index], places.risers[index, target]
    return [(places.right(source) + CLEARANCE, bus), (x, bus), (x, places.bottom(target) + CLEARANCE)]


def _loop(places: UPlaces, source: int, target: int) -> list[Point]:
    """Return from the end to the start, over the top of everything."""
    boxes = [box for node in range(places.graph.num_nodes) for box in (places.body(node), places.label(node)) if box]
    top = min(box.y for box in boxes) - LANE_SPACE
    out, back = places.right(source) + TAP_REACH, places.x[target] - CARD_GAP / 2
    y, end = places.y[source], places.y[target]
    points = [(places.right(source) + CLEARANCE, y), (out, y), (out, top), (back, top), (back, end)]
    return simplify([*points, (places.x[target] - CLEARANCE, end)])
