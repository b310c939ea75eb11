"""Frames round nodes: which elements they hold, and where their boxes stand."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from neural_flow.drawing import Box, Frame, FramePlacement, Sizes
from neural_flow.layout._base import FRAME_PADDING, SHEETS
from neural_flow.layout.grid import Grid

TITLE_SPACE = 1.0
TITLE_INSET = 6.0
BRACKET_SPACE = 5.0
BRACKET_STEP = 4.0
BRACKET_STEPS = 12
FOREIGN_MARGIN = 0.5


@dataclass(slots=True)
class FrameTree:
    """Frames with members, by place in ``frames``: parents come before their children.

    Frames that overlap another one without lying inside it are ``loose``: they only ever become brackets.
    """

    frames: list[Frame]
    members: list[frozenset[int]]
    parent: list[int]
    is_loose: list[bool]
    title_width: list[float]
    title_height: list[float]
    spans: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """First and last layer of each frame, once elements are marked."""

    def top_room(self, frame: int) -> float:
        """Return the room between the upper border and what the frame holds."""
        height = self.title_height[frame]
        return FRAME_PADDING + (height + TITLE_SPACE if height else 0.0)

    def path(self, node: int) -> tuple[int, ...]:
        """Return the frames that hold ``node``, outermost first."""
        return tuple(
            frame for frame, members in enumerate(self.members) if node in members and not self.is_loose[frame]
        )


def build_tree(frames: Sequence[Frame], place: dict[int, int], sizes: Sizes) -> FrameTree:
    """Return the frames that hold at least one of the nodes in ``place`` (node id to index), nested by members."""
    found = [
        (frame, frozenset(place[node] for node in frame.node_ids if node in place))
        for frame in sorted(frames, key=lambda frame: frame.frame_id)
    ]
    # Members of children count for the parent, whether or not the diagram repeats them.
    members_of = {frame.frame_id: set(members) for frame, members in found}
    parents = {frame.frame_id: frame.parent_id for frame, _ in found}
    for frame, members in found:
        above, guard = frame.parent_id, 0
        while above is not None and above in members_of and guard < len(found):
            members_of[above] |= members
            above, guard = parents[above], guard + 1
    depth = {frame.frame_id: _depth(frame.frame_id, parents) for frame, _ in found}
    kept = [frame for frame, _ in found if members_of[frame.frame_id]]
    kept.sort(key=lambda frame: (-len(members_of[frame.frame_id]), depth[frame.frame_id], frame.frame_id))
    tree = FrameTree(
        frames=kept,
        members=[frozenset(members_of[frame.frame_id]) for frame in kept],
        parent=[-1] * len(kept),
        is_loose=[False] * len(kept),
        title_width=[sizes.frame_titles.get(frame.frame_id, (0.0, 0.0))[0] for frame in kept],
        title_height=[sizes.frame_titles.get(frame.frame_id, (0.0, 0.0))[1] for frame in kept],
    )
    for frame, members in enumerate(tree.members):
        for other in range(frame):
            if not tree.is_loose[other] and members & tree.members[other]:
                if members <= tree.members[other]:
                    tree.parent[frame] = other
                else:
                    tree.is_loose[frame] = True
    return tree


def _depth(frame: int, parents: dict[int, int | None]) -> int:
    depth = 0
    above = parents[frame]
    while above is not None and above in parents and depth <= len(parents):
        depth += 1
        above = parents[above]
    return depth


def mark_elements(grid: Grid, tree: FrameTree) -> None:
    """Fill ``grid.frames``: nodes by membership, lanes where all that follows on their line lies in the frame."""
    graph = grid.graph
    for node in range(graph.num_nodes):
        grid.frames[node] = tree.path(node)
    if not tree.frames:
        return
    tree.spans = [_layer_span(grid, members) for members in tree.members]
    for source, lanes in grid.buses.items():
        targets = [graph.target[edge] for edge in graph.outgoing[source]]
        for lane in lanes:
            layer = grid.layer[lane]
            ahead = [target for target in targets if grid.layer[target] > layer]
            grid.frames[lane] = tuple(
                frame
                for frame, members in enumerate(tree.members)
                if tree.spans[frame][0] <= layer <= tree.spans[frame][1]
                and not tree.is_loose[frame]
                and (
                    all(target in members for target in ahead)
                    or (source in members and any(target in members for target in ahead))
                )
            )
    for lanes, (source, target, _) in zip(grid.backs, graph.returns, strict=True):
        shared = tuple(frame for frame in grid.frames[source] if frame in grid.frames[target])
        for lane in lanes:
            grid.frames[lane] = shared


def _layer_span(grid: Grid, members: Iterable[int]) -> tuple[int, int]:
    layers = [grid.layer[node] for node in members]
    return min(layers), max(layers)


def place_frames(
    tree: FrameTree,
    boxes: dict[int, Box],
    obstacles: Sequence[tuple[int, Box]],
    titled: Collection[int] = (),
) -> list[FramePlacement]:
    """Return a box for each frame whose box holds no foreign node and meets no foreign box; else a bracket.

    Args:
        tree: the frames.
        boxes: where each frame wants to stand, by place in the tree.
        obstacles: node index and box of every body and label.
        titled: frames that have their title elsewhere already.
    """
    taken: dict[int, Box] = {}
    brackets: list[int] = []
    for frame in sorted(boxes):
        if tree.is_loose[frame] or not _is_clear(tree, frame, boxes[frame], obstacles, taken):
            brackets.append(frame)
        else:
            taken[frame] = boxes[frame]
    _align(tree, taken, obstacles)
    placed = [
        FramePlacement(frame_id=tree.frames[frame].frame_id, box=box, is_continued=frame in titled)
        for frame, box in taken.items()
    ]
    blocked = [box for _, box in obstacles] + [_title_strip(tree, frame, box.x, box.y) for frame, box in taken.items()]
    for frame in brackets:
        foreign = [box for other, box in taken.items() if not tree.members[frame] <= tree.members[other]]
        bracket = _bracket(tree, frame, boxes[frame], blocked + foreign)
        if bracket is not None and frame not in titled:
            blocked.append(bracket)
            placed.append(FramePlacement(frame_id=tree.frames[frame].frame_id, box=bracket, is_bracket=True))
    return placed


def _is_clear(
    tree: FrameTree, frame: int, box: Box, obstacles: Sequence[tuple[int, Box]], taken: dict[int, Box]
) -> bool:
    members = tree.members[frame]
    if any(node not in members and _meet(box, other, FOREIGN_MARGIN) for node, other in obstacles):
        return False
    return not any(
        _meet(box, other, FOREIGN_MARGIN)
        for index, other in taken.items()
        if index != frame and not members <= tree.members[index] and not tree.members[index] <= members
    )


def _align(tree: FrameTree, taken: dict[int, Box], obstacles: Sequence[tuple[int, Box]]) -> None:
    """Give frames that stand side by side one upper and one lower border, where that keeps them clear."""
    tops = sorted((frame for frame in taken if tree.parent[frame] < 0), key=lambda frame: taken[frame].x)
    groups: list[list[int]] = []
    for frame in tops:
        box = taken[frame]
        group = next((group for group in groups if all(_is_beside(box, taken[other]) for other in group)), None)
        if group is None:
            groups.append([frame])
        else:
            group.append(frame)
    for group in groups:
        top = min(taken[frame].y for frame in group)
        bottom = max(taken[frame].y + taken[frame].height for frame in group)
        for has_top, has_bottom in ((True, True), (True, False), (False, True)):
            wanted: dict[int, Box] = {}
            for frame in group:
                box = taken[frame]
                y, end = top if has_top else box.y, bottom if has_bottom else box.y + box.height
                wanted[frame] = replace(box, y=y, height=end - y)
            if all(_is_clear(tree, frame, box, obstacles, {**taken, **wanted}) for frame, box in wanted.items()):
                taken.update(wanted)
                break


def _is_beside(first: Box, second: Box) -> bool:
    """Return whether two boxes share more than half of the height of each, one right of the other."""
    shared = min(first.y + first.height, second.y + second.height) - max(first.y, second.y)
    is_apart = first.x >= second.x + second.width or second.x >= first.x + first.width
    return is_apart and shared > 0.5 * max(first.height, second.height)


def _title_strip(tree: FrameTree, frame: int, x: float, y: float) -> Box:
    return Box(x=x, y=y, width=tree.title_width[frame] + 2 * TITLE_INSET, height=tree.title_height[frame] + 3.0)


def title_strips(tree: FrameTree, placed: Iterable[FramePlacement]) -> list[Box]:
    """Return what arrow labels keep off: the title and the borders of each placed frame."""
    place = {frame.frame_id: index for index, frame in enumerate(tree.frames)}
    strips: list[Box] = []
    for frame in placed:
        index, box = place[frame.frame_id], frame.box
        if frame.is_bracket:
            strips.append(_title_strip(tree, index, box.x, box.y - tree.title_height[index] - 3.0))
            strips.append(Box(x=box.x, y=box.y, width=box.width, height=0.0))
            continue
        if not frame.is_continued:
            strips.append(_title_strip(tree, index, box.x, box.y))
        # The sheets behind a repeat show above it and right of it.
        sheets = SHEETS if tree.frames[index].kind == "fold" else 0.0
        strips.append(Box(x=box.x, y=box.y, width=0.0, height=box.height))
        strips.append(Box(x=box.x + box.width, y=box.y - sheets, width=sheets, height=box.height))
        strips.append(Box(x=box.x, y=box.y - sheets, width=box.width, height=sheets))
        strips.append(Box(x=box.x, y=box.y + box.height, width=box.width, height=0.0))
    return strips


def _bracket(tree: FrameTree, frame: int, box: Box, blocked: Sequence[Box]) -> Box | None:
    """Return the box whose upper border carries the bracket, its title above it; None where neither is free."""
    rise = tree.title_height[frame] + 2.0
    top = box.y + tree.top_room(frame) - BRACKET_SPACE
    for step in range(BRACKET_STEPS):
        y = top - step * BRACKET_STEP
        line = Box(x=box.x, y=y - rise, width=max(box.width, tree.title_width[frame] + TITLE_INSET), height=rise + 1.0)
        if not any(_meet(line, other, 0.5) for other in blocked):
            return Box(x=box.x, y=y, width=box.width, height=box.y + box.height - y)
    return None


def _meet(first: Box, second: Box, margin: float) -> bool:
    return (
        first.x < second.x + second.width + margin
        and second.x < first.x + first.width + margin
        and first.y < second.y + second.height + margin
        and second.y < first.y + first.height + margin
    )
