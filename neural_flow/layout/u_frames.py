"""Frames of a U: the boxes round their members, and the room that they need before these have their places."""

from __future__ import annotations

from neural_flow.drawing import Box
from neural_flow.layout._base import FRAME_PADDING
from neural_flow.layout.frames import TITLE_INSET, FrameTree
from neural_flow.layout.u_place import UPlaces, row_boxes

LABEL_PADDING = 5.6


def frame_boxes(places: UPlaces, tree: FrameTree) -> dict[int, Box]:
    """Return the boxes round the members of each frame: bodies, labels and the lanes of detours between members."""
    boxes: dict[int, Box] = {}
    for frame in range(len(tree.frames) - 1, -1, -1):
        members = tree.members[frame]
        inside = [boxes[child] for child in boxes if tree.parent[child] == frame]
        bodies = [places.body(node) for node in members]
        labels = [label for node in members if (label := places.label(node))]
        lanes = [
            places.y[places.graph.source[edge]] + lane
            for edge, lane in places.detours.items()
            if places.graph.target[edge] in members
        ]
        # A label weighs less than a body: it may stand nearer to the border.
        left = min([box.x - FRAME_PADDING for box in [*bodies, *inside]] + [box.x - LABEL_PADDING for box in labels])
        right = max(
            [box.x + box.width + FRAME_PADDING for box in [*bodies, *inside]]
            + [box.x + box.width + LABEL_PADDING for box in labels]
        )
        top = min([box.y for box in [*bodies, *labels, *inside]] + lanes) - tree.top_room(frame)
        low = max(
            [box.y + box.height + FRAME_PADDING for box in [*bodies, *inside]]
            + [box.y + box.height + LABEL_PADDING for box in labels]
            + [lane + LABEL_PADDING for lane in lanes]
        )
        width = max(right - left, tree.title_width[frame] + 2 * TITLE_INSET)
        boxes[frame] = Box(x=left, y=top, width=width, height=low - top)
    return boxes


def run_reach(places: UPlaces, tree: FrameTree, run: list[int], level: int) -> tuple[float, float]:
    """Return how far bodies, labels, detours and frames of a run of ``level`` reach above and below its axis.

    A frame that goes on in other rows has its upper border, with the title, in its first one and its lower in its last.
    """
    before = {node: places.y[node] for node in run}
    boxes = row_boxes(places, run)
    reach: dict[int, tuple[float, float]] = {}
    for frame in range(len(tree.frames) - 1, -1, -1):
        members = tree.members[frame]
        inside = members.intersection(run)
        if not inside or tree.is_loose[frame]:
            continue
        held = row_boxes(places, sorted(inside))
        held_frames = [reach[child] for child in reach if tree.parent[child] == frame]
        lanes = [lane for edge, lane in places.detours.items() if places.graph.target[edge] in inside]
        top = min([box.y for box in held] + [child[0] for child in held_frames] + lanes)
        low = max([box.y + box.height for box in held] + [child[1] for child in held_frames] + lanes)
        levels = [places.level[node] for node in members]
        top -= tree.top_room(frame) + tree.sheets(frame) if level == min(levels) else 0.0
        low += FRAME_PADDING if level == max(levels) else 0.0
        reach[frame] = top, low
    for node, axis in before.items():
        places.y[node] = axis
    top = min([box.y for box in boxes] + [found[0] for found in reach.values()])
    return top, max([box.y + box.height for box in boxes] + [found[1] for found in reach.values()])


def left_end(places: UPlaces, tree: FrameTree) -> float:
    """Return where the frames of the way down end, the sheets behind them included."""
    far = {node for run in places.shape.right for node in run}
    ends = [
        box.x + box.width + tree.sheets(frame)
        for frame, box in frame_boxes(places, tree).items()
        if far.isdisjoint(tree.members[frame])
    ]
    return max(ends, default=float("-inf"))


def room_before(places: UPlaces, tree: FrameTree, node: int) -> float:
    """Return the room left of a stage of the way up for the frames that hold it but no stage of the way down."""
    near = {other for run in places.shape.left for other in run}
    frames = [frame for frame in tree.path(node) if near.isdisjoint(tree.members[frame])]
    return FRAME_PADDING * len(frames)
