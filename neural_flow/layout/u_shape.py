"""The U style: a staircase down, skips as straight horizontals, a mirrored way up into the merges."""

from __future__ import annotations

from dataclasses import replace

from neural_flow.drawing import Box, Diagram, FramePlacement, Layout, LayoutOptions, Placement, Point, Sizes
from neural_flow.layout._base import CLEARANCE, LAYOUT_STYLES, MIN_PORT_PITCH
from neural_flow.layout.frame_places import place_frames, title_strips
from neural_flow.layout.frames import FrameTree, build_tree
from neural_flow.layout.graph import FlowGraph, build_graph, split_diagram
from neural_flow.layout.labels import place_arrow_labels
from neural_flow.layout.layered import lay_out_part
from neural_flow.layout.line_kinds import line_kinds, order_ways, words_of
from neural_flow.layout.routing import simplify
from neural_flow.layout.sheet import Sheet, extent, finish, make_routes, pack
from neural_flow.layout.u_compact import can_be_compact, compact_way, place_compact
from neural_flow.layout.u_find import UShape, find_u
from neural_flow.layout.u_frames import frame_boxes
from neural_flow.layout.u_place import CARD_GAP, LABEL_SPACE, LANE_SPACE, UPlaces, USpacing, place_u

TAP_REACH = 9.0
SPACINGS = (
    USpacing(),
    USpacing(skip_length=23.0),
    USpacing(24.0, 23.0),
    USpacing(36.0, 26.0),
    USpacing(50.0, 26.0),
)
"""Tried in turn until every frame stands clear."""
TIGHTER = (0.9, 0.8, 0.7)
"""White space of a staircase that has to fit a given width."""


@LAYOUT_STYLES.register("u")
def lay_out_u(diagram: Diagram, sizes: Sizes, options: LayoutOptions) -> Layout:
    """Place ``diagram`` as a U where it is one; parts that are none are layered from left to right."""
    sheets: list[Sheet] = []
    for part in split_diagram(diagram):
        sheet = make_u_sheet(part, sizes, options)
        sheets.append(sheet if sheet is not None else lay_out_part(part, sizes, "lr"))
    return finish(pack(sheets, max_width=options.max_width))


def make_u_sheet(diagram: Diagram, sizes: Sizes, options: LayoutOptions) -> Sheet | None:
    """Return the sheet of a connected diagram drawn as a U, or None where it is none.

    A staircase that is wider than the page gives way to rows below each other, if the U allows it.
    """
    graph = build_graph(diagram)
    shape = find_u(graph, sizes)
    if shape is None:
        return None
    staircase = _draw(diagram, sizes, graph, shape, sizes.tightness, is_compact=False)
    is_wide = extent(staircase).width > options.max_width
    if is_wide and options.is_width_fixed:
        for tightness in TIGHTER:
            if tightness >= sizes.tightness:
                continue
            tight = _draw(diagram, sizes, graph, shape, tightness, is_compact=False)
            if extent(tight).width <= options.max_width:
                return tight
    if is_wide and can_be_compact(graph, shape):
        compact = _draw(diagram, sizes, graph, shape, 1.0, is_compact=True)
        if extent(compact).width < extent(staircase).width:
            return compact
    return staircase


def _draw(
    diagram: Diagram, sizes: Sizes, graph: FlowGraph, shape: UShape, tightness: float, *, is_compact: bool
) -> Sheet:
    tree = build_tree(diagram.frames, {node.node_id: index for index, node in enumerate(graph.nodes)}, sizes)
    places, frames = _place_clear_of_frames(graph, shape, sizes, tree, tightness, is_compact=is_compact)
    obstacles = _obstacles(places)
    sheet = Sheet(style="u", direction="lr", frames=frames)
    for index, node in enumerate(graph.nodes):
        sheet.placements.append(
            Placement(
                node_id=node.node_id,
                body=places.body(index),
                label=places.label(index),
                label_side="above" if places.is_label_above[index] else "below",
            )
        )
    points = {edge: _way(places, edge) for edge in range(graph.num_edges)}
    for index, (source, target, _) in enumerate(graph.returns):
        points[-1 - index] = _loop(places, frames, source, target)
    kinds = line_kinds(graph, shape.bridges)
    routes = make_routes(order_ways(graph, points, kinds), is_curved=False, direction="lr")
    strips = title_strips(tree, frames)
    borders = [box for box in strips if not box.width or not box.height]
    taken = [box for _, box in obstacles] + [box for box in strips if box.width and box.height]
    labelled = place_arrow_labels(
        routes, sizes.arrow_labels, taken, prefers_level=None, crossable=borders, words=words_of(graph)
    )
    sheet.routes.extend(labelled)
    return sheet


def _place_clear_of_frames(
    graph: FlowGraph, shape: UShape, sizes: Sizes, tree: FrameTree, tightness: float, *, is_compact: bool
) -> tuple[UPlaces, list[FramePlacement]]:
    """Return places spaced just widely enough for as many frames as can be to be boxes."""
    best: tuple[int, UPlaces, list[FramePlacement]] | None = None
    for usual in SPACINGS:
        spacing = replace(usual, tightness=tightness)
        if is_compact:
            places = place_compact(graph, shape, sizes, spacing, tree)
        else:
            places = place_u(graph, shape, sizes, spacing)
        rings = [node for node in range(graph.num_nodes) if places.is_ring(node)]
        frames = place_frames(tree, frame_boxes(places, tree), _obstacles(places), rings=rings)
        num_boxes = sum(not frame.is_bracket for frame in frames)
        if best is None or num_boxes > best[0]:
            best = (num_boxes, places, frames)
        if num_boxes == len(tree.frames):
            break
    assert best is not None, "there is at least one spacing"
    return best[1], best[2]


def _obstacles(places: UPlaces) -> list[tuple[int, Box]]:
    return [
        (node, box)
        for node in range(places.graph.num_nodes)
        for box in (places.body(node), places.label(node))
        if box is not None
    ]


def _way(places: UPlaces, edge: int) -> list[Point]:
    """Return the corners of one edge."""
    graph, shape = places.graph, places.shape
    source, target = graph.source[edge], graph.target[edge]
    for index, branch in enumerate(shape.conditions):
        if source in branch.nodes and target not in branch.nodes:
            return _rise(places, index, source, target)
    if edge in places.detours:
        return _detour(places, edge, places.detours[edge])
    if edge in places.lifts:
        return _lift(places, source, target, *places.lifts[edge])
    hanging = {node for branch in [*shape.starts, *shape.heads] for node in branch.nodes}
    if (source in hanging) != (target in hanging):
        return _hang_way(places, source, target)
    if places.y[source] == places.y[target]:
        return _straight(places, source, target)
    if places.down_gutters:
        return compact_way(places, source, target)
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


def _detour(places: UPlaces, edge: int, lane: float) -> list[Point]:
    """Leave the line after the source, pass the stages between on a lane, enter the target from that side.

    Where several enter one card, the outermost turns last and enters outermost, so that they nest.
    """
    source, target = places.graph.source[edge], places.graph.target[edge]
    y, out = places.y[source], _tap(places, source, lane)
    start = [(places.right(source) + CLEARANCE, y), (out, y), (out, y + lane)]
    if places.is_ring(target):
        middle = places.centre(target)
        border = places.bottom(target) + CLEARANCE if lane > 0 else places.top(target) - CLEARANCE
        return [*start, (middle, y + lane), (middle, border)]
    beside = sorted(
        abs(other)
        for found, other in places.detours.items()
        if places.graph.target[found] == target and (other > 0) == (lane > 0)
    )
    index = beside.index(abs(lane))
    offset = min(MIN_PORT_PITCH, (places.sizes[target].front_height / 2 - 2.0) / len(beside)) * (index + 1)
    side = y + (offset if lane > 0 else -offset)
    before = places.x[target] - TAP_REACH - 4.0 * (len(beside) - 1 - index)
    return [*start, (before, y + lane), (before, side), (places.x[target] - CLEARANCE, side)]


def _tap(places: UPlaces, source: int, lane: float) -> float:
    """Return where a line leaves the row, clear of the source's label where that stands on the line's side."""
    out = places.right(source) + TAP_REACH
    label = places.label(source)
    if label is None or places.is_label_above[source] != (lane < 0):
        return out
    return max(out, label.x + label.width + LABEL_SPACE)


def _lift(places: UPlaces, source: int, target: int, lane: float, rise: float) -> list[Point]:
    """Leave the line after the source, run above its row and rise into the bottom of the merge above."""
    y, out = places.y[source], _tap(places, source, lane)
    start = [(places.right(source) + CLEARANCE, y), (out, y), (out, y + lane)]
    return [*start, (rise, y + lane), (rise, places.bottom(target) + CLEARANCE)]


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


def _loop(places: UPlaces, frames: list[FramePlacement], source: int, target: int) -> list[Point]:
    """Return from the end to the start, over the top of everything."""
    boxes = [box for _, box in _obstacles(places)] + [frame.box for frame in frames]
    top = min(box.y for box in boxes) - LANE_SPACE
    out, back = places.right(source) + TAP_REACH, places.x[target] - CARD_GAP / 2
    y, end = places.y[source], places.y[target]
    points = [(places.right(source) + CLEARANCE, y), (out, y), (out, top), (back, top), (back, end)]
    return simplify([*points, (places.x[target] - CLEARANCE, end)])
