"""A U for levels of many stages: rows below each other, the way down at the left, the way up at the right.

A staircase of long rows grows as wide as all rows together. Here each row starts under the one above, and the line to
the next level runs back through the gutter between the rows, as a line of text goes on in the next.
"""

from __future__ import annotations

from neural_flow.drawing import Point, Sizes
from neural_flow.layout._base import CLEARANCE
from neural_flow.layout.frames import FrameTree
from neural_flow.layout.graph import FlowGraph
from neural_flow.layout.u_find import UShape
from neural_flow.layout.u_frames import left_end, room_before, run_reach
from neural_flow.layout.u_place import (
    LABEL_SPACE,
    RING_GAP,
    UPlaces,
    USpacing,
    new_places,
    place_branches,
    place_detours,
    place_run,
)

INDENT = 15.0
"""How far each level starts right of the one above, and ends left of it."""
ENTRY = 13.0
GUTTER_SPACE = 9.0
TEXT_SPACE = 12.0
BORDER_SPACE = 8.0
FRAME_SPACE = 5.0
"""White between the frames of the way down and those of the way up."""


def can_be_compact(graph: FlowGraph, shape: UShape) -> bool:
    """Return whether every level merges in a ring and nothing hangs on the U but heads at its end."""
    if shape.conditions or shape.starts or shape.lifts:
        return False
    if any(head.feeders[0] not in shape.right[0][-2:] for head in shape.heads):
        return False
    trunk = {node for run in [*shape.left, *shape.right, shape.bottom] for node in run}
    runs = {node: index for index, run in enumerate([*shape.left, *shape.right, shape.bottom]) for node in run}
    bridges = {(bridge.source, bridge.target) for bridge in shape.bridges}
    for edge in range(graph.num_edges):
        source, target = graph.source[edge], graph.target[edge]
        is_ordinary = graph.primary[target] == edge or (source, target) in bridges
        if source in trunk and target in trunk and not is_ordinary and runs[source] != runs[target]:
            return False
    return all(graph.nodes[run[0]].role == "ring" for run in shape.right)


def place_compact(graph: FlowGraph, shape: UShape, sizes: Sizes, spacing: USpacing, tree: FrameTree) -> UPlaces:
    """Return the places of a compact U; stages of the first level that no frame holds stand outside the rest."""
    places = new_places(graph, shape, sizes, spacing)
    base = _place_left(places, frozenset(node for members in tree.members for node in members))
    _place_right(places, tree, base)
    place_detours(places)
    _place_rows(places, tree)
    place_branches(places)
    return places


def _place_left(places: UPlaces, framed: frozenset[int]) -> float:
    """Place the runs of the way down and return where those below the first start."""
    shape, graph = places.shape, places.graph
    place_run(places, shape.left[0], 0.0)
    first = next((node for node in shape.left[0] if node in framed), None)
    if first is None:
        has_input = len(shape.left[0]) > 1 and not graph.incoming[shape.left[0][0]]
        first = shape.left[0][1 if has_input else 0]
    base = places.x[first]
    for level in range(1, shape.depth):
        place_run(places, shape.left[level], base + INDENT * level)
    return base


def _place_right(places: UPlaces, tree: FrameTree, base: float) -> None:
    """Place the runs of the way up so that they end below each other, and the bottom run under its merge."""
    shape = places.shape
    tail = _tail(places, frozenset(node for members in tree.members for node in members))
    place_run(places, shape.bottom, base + INDENT * shape.depth)
    ends: list[float] = []
    widths: list[float] = []
    # Lines up run along the left end of the right half: nothing of the left half may reach there.
    divide = max(_right_end(places, run) for run in shape.left) + places.spacing.skip_length
    frames_end = left_end(places, tree) + FRAME_SPACE
    outside = _outside(shape, tree)
    for level, run in enumerate(shape.right):
        bridge = shape.bridges[level]
        place_run(places, run, 0.0)
        widths.append(places.right(run[len(run) - 1 - (tail if not level else 0)]))
        stops = sum(places.sizes[node].width + RING_GAP for node in bridge.stops) + (RING_GAP if bridge.stops else 0.0)
        room = max(room_before(places, tree, node) for node in (*bridge.stops, run[0]))
        least = max(divide, frames_end + room) + stops
        if level == shape.depth - 1 and outside:
            last = shape.bottom[-1]
            start = max(places.x[last], frames_end) if len(outside) < len(shape.bottom) else places.x[last]
            least = max(least, start + (places.sizes[last].front_width - places.sizes[run[0]].width) / 2)
        ends.append(least + widths[-1] + INDENT * level)
    end = max(ends)
    for level, run in enumerate(shape.right):
        start = end - INDENT * level - widths[level]
        place_run(places, run, start)
        for node in reversed(shape.bridges[level].stops):
            start -= RING_GAP + places.sizes[node].width
            places.x[node] = start
    shift = places.centre(shape.right[-1][0]) - places.centre(shape.bottom[-1])
    for node in outside:
        places.x[node] += shift


def _outside(shape: UShape, tree: FrameTree) -> list[int]:
    """Return the stages of the bottom that stand under the merge above: all, or those past the frames of the way down.

    Where these hold the whole bottom, its line runs to the right and up between the rows.
    """
    left = {node for run in shape.left for node in run}
    frames = [frame for frame in tree.path(shape.bottom[0]) if not left.isdisjoint(tree.members[frame])]
    held = {node for frame in frames for node in tree.members[frame]}
    first = next((index for index, node in enumerate(shape.bottom) if node not in held), len(shape.bottom))
    return shape.bottom[first:] if held.isdisjoint(shape.bottom[first:]) else shape.bottom


def _right_end(places: UPlaces, run: list[int]) -> float:
    labels = [places.x[node] + places.sizes[node].label_width - LABEL_SPACE for node in run]
    return max([places.right(node) for node in run] + labels)


def _tail(places: UPlaces, framed: frozenset[int]) -> int:
    """Return how many stages at the end of the first level stand outside."""
    run = places.shape.right[0]
    if framed.isdisjoint(run):
        return 1 if len(run) > 2 and not places.graph.outgoing[run[-1]] else 0
    return next(index for index, node in enumerate(reversed(run)) if node in framed)


def _place_rows(places: UPlaces, tree: FrameTree) -> None:
    shape = places.shape
    axis = low_left = low_right = 0.0
    for level in range(shape.depth + 1):
        left = shape.left[level] if level < shape.depth else shape.bottom
        right = [*shape.right[level], *shape.bridges[level].stops] if level < shape.depth else shape.bottom
        reach_left, reach_right = run_reach(places, tree, left, level), run_reach(places, tree, right, level)
        if level:
            border = BORDER_SPACE if places.spacing.row_gap > USpacing().row_gap else 0.0
            down = low_left + GUTTER_SPACE + TEXT_SPACE + border - reach_left[0]
            up = low_right + GUTTER_SPACE + TEXT_SPACE + border - reach_right[0]
            above = axis
            axis = above + max(down, up)
            places.down_gutters.append(above + low_left + TEXT_SPACE + border / 2)
            places.up_gutters.append(axis + reach_right[0] - GUTTER_SPACE - border / 2)
        low_left, low_right = reach_left[1], reach_right[1]
        for node in [*left, *right]:
            places.y[node] = axis


def compact_way(places: UPlaces, source: int, target: int) -> list[Point]:
    """Return the corners of the line from one level's end to the next level's start."""
    level = min(places.level[source], places.level[target])
    x = places.centre(source)
    if places.y[source] < places.y[target]:
        y, start = places.y[target], (x, places.bottom(source) + CLEARANCE)
        end = (places.x[target] - CLEARANCE, y)
        entry = places.x[target] - ENTRY
        if entry >= x:
            return [start, (x, y), end]
        gutter = places.down_gutters[level]
        return [start, (x, gutter), (entry, gutter), (entry, y), end]
    start, end = (x, places.top(source) - CLEARANCE), (places.centre(target), places.bottom(target) + CLEARANCE)
    if abs(start[0] - end[0]) < 0.01:
        return [start, end]
    gutter = places.up_gutters[level]
    return [start, (x, gutter), (end[0], gutter), end]
