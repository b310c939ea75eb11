"""Boxes of frames round their elements in a placed grid, one for each row that a frame reaches into."""

from __future__ import annotations

from neural_flow.drawing import Box, Direction
from neural_flow.layout._base import FRAME_PADDING, LINE_REACH
from neural_flow.layout.frames import TITLE_INSET, FrameTree
from neural_flow.layout.plan import Plan
from neural_flow.layout.settle import FrameRooms

CUT_PADDING = 6.0


def frame_rooms(tree: FrameTree, direction: Direction) -> FrameRooms:
    """Return what frames need across the flow. Titles stand at the top of the page, whatever the direction."""
    num = len(tree.frames)
    tops = [tree.top_room(frame) for frame in range(num)]
    widths = [width + 2 * TITLE_INSET if width else 0.0 for width in tree.title_width]
    if direction == "lr":
        return FrameRooms(low=tops, high=[FRAME_PADDING] * num, width=[0.0] * num)
    return FrameRooms(low=[FRAME_PADDING] * num, high=[FRAME_PADDING] * num, width=widths)


def frame_boxes(plan: Plan, tree: FrameTree, rooms: FrameRooms, direction: Direction) -> list[dict[int, Box]]:
    """Return for each row the boxes of the frames in it, by place in the tree, in page coordinates."""
    num_rows = len(plan.shifts)
    rows: list[dict[int, Box]] = [{} for _ in range(num_rows)]
    for row in range(num_rows):
        layers = [layer for layer, found in enumerate(plan.row_of) if found == row]
        for frame, (low, high) in row_reach(plan, tree, rooms, layers).items():
            start, end = _along(plan, tree, frame, layers)
            if direction == "lr":
                # What is left of a broken frame at the end of a row still carries the title.
                end = max(end, start + tree.title_width[frame] + 2 * TITLE_INSET) if tree.title_width[frame] else end
                rows[row][frame] = Box(x=start, y=low, width=end - start, height=high - low)
            else:
                rows[row][frame] = Box(x=low, y=start, width=high - low, height=end - start)
        for frame in range(len(tree.frames)):
            if frame not in plan.bands.frame_start:
                box = _loose_box(plan, tree, frame, layers, direction)
                if box is not None:
                    rows[row][frame] = box
    return rows


def _loose_box(plan: Plan, tree: FrameTree, frame: int, layers: list[int], direction: Direction) -> Box | None:
    """Return the box round the members of a frame for which the grid kept no room; it will carry a bracket."""
    nodes = [node for node in sorted(tree.members[frame]) if plan.grid.layer[node] in layers]
    if not nodes:
        return None
    start = min(plan.node_start(node) for node in nodes)
    end = max(plan.body_span(node)[1] for node in nodes)
    low = min(plan.across(node) - plan.shapes[node].before for node in nodes)
    high = max(plan.across(node) + plan.shapes[node].after for node in nodes)
    x, y, right, bottom = (start, low, end, high) if direction == "lr" else (low, start, high, end)
    return Box(x=x, y=y - tree.top_room(frame), width=right - x, height=bottom - y + tree.top_room(frame))


def row_reach(plan: Plan, tree: FrameTree, rooms: FrameRooms, layers: list[int]) -> dict[int, tuple[float, float]]:
    """Return how far each frame reaches across the flow in ``layers``, inner frames within outer ones."""
    grid = plan.grid
    reach: dict[int, tuple[float, float]] = {}
    for layer in layers:
        for element in grid.rows[layer]:
            frames = grid.frames[element]
            if not frames:
                continue
            before = plan.shapes[element].before if grid.is_node(element) else LINE_REACH
            after = plan.shapes[element].after if grid.is_node(element) else LINE_REACH
            at = plan.across(element)
            for frame in frames:
                low, high = reach.get(frame, (float("inf"), float("-inf")))
                reach[frame] = (min(low, at - before), max(high, at + after))
    result: dict[int, tuple[float, float]] = {}
    # Children come after their parents in the tree: going backwards, every child is done before its parent.
    for frame in sorted(reach, reverse=True):
        low, high = reach[frame]
        inner = [result[child] for child in result if tree.parent[child] == frame]
        low = min([low, *(child[0] for child in inner)]) - rooms.low[frame]
        high = max([high, *(child[1] for child in inner)]) + rooms.high[frame]
        result[frame] = (low, max(high, low + rooms.width[frame]))
    return result


def open_frames(plan: Plan, tree: FrameTree, layer: int) -> dict[int, int]:
    """Return the frames that go on across the gap before ``layer``, each with how many of them it holds, itself too.

    What goes on holds what ends here, so its borders lie outside the others'.
    """
    if not 0 < layer < plan.grid.num_layers:
        return {}
    going_on = [
        frame
        for frame, (first, last) in enumerate(tree.spans)
        if first < layer <= last and frame in plan.bands.frame_start
    ]
    ranks: dict[int, int] = {}
    for frame in reversed(going_on):
        ranks[frame] = 1 + max((rank for child, rank in ranks.items() if tree.parent[child] == frame), default=0)
    return ranks


def row_start(plan: Plan, tree: FrameTree, layer: int) -> float:
    """Return where a row that starts with ``layer`` starts, the borders of frames that go on included."""
    return plan.bands.opening[layer] - CUT_PADDING * max(open_frames(plan, tree, layer).values(), default=0)


def row_end(plan: Plan, tree: FrameTree, layer: int) -> float:
    """Return where a row that ends before ``layer`` ends, the borders of frames that go on included."""
    return plan.bands.closed[layer] + CUT_PADDING * max(open_frames(plan, tree, layer).values(), default=0)


def _along(plan: Plan, tree: FrameTree, frame: int, layers: list[int]) -> tuple[float, float]:
    """Return where a frame starts and ends along the flow within one row."""
    bands, first, last = plan.bands, layers[0], layers[-1]
    start, end = bands.frame_start[frame], bands.frame_end[frame]
    before, after = open_frames(plan, tree, first), open_frames(plan, tree, last + 1)
    if frame in before:
        start = bands.opening[first] - CUT_PADDING * before[frame]
    if frame in after:
        end = bands.closed[last + 1] + CUT_PADDING * after[frame]
    return plan.along(first, start), plan.along(first, end)
