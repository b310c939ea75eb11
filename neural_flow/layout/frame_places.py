"""Where frames stand on the page: boxes where they hold their own members only, else brackets over some of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from neural_flow.drawing import Box, FramePlacement
from neural_flow.layout.frames import TITLE_INSET, FrameTree

BRACKET_SPACE = 5.0
BRACKET_STEP = 4.0
BRACKET_STEPS = 12
TITLE_SPACE = 2.0
"""White above the title of a bracket."""
FOREIGN_MARGIN = 0.5
CARD_MARGIN = 1.5
"""White between a frame and a card that is not its own."""
CONTINUED_WIDTH = 40.0
"""Of the words with which a title says that its frame began in another row."""


def place_frames(
    tree: FrameTree,
    boxes: dict[int, Box],
    obstacles: Sequence[tuple[int, Box]],
    titled: Collection[int] = (),
    rings: Collection[int] = (),
) -> list[FramePlacement]:
    """Return a box for each frame whose box holds no foreign node and meets no foreign box; else a bracket.

    A bracket spans members that stand side by side with nothing foreign between or above them; where no two do, there
    is none.

    Args:
        tree: the frames.
        boxes: where each frame wants to stand, by place in the tree.
        obstacles: node index and box of every body and label.
        titled: frames that have their title elsewhere already.
        rings: nodes that a bracket may span, whether they are members or not.
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
        span = _side_by_side(tree, frame, boxes[frame], obstacles, rings)
        bracket = _bracket(tree, frame, span, blocked + foreign) if span is not None else None
        if bracket is not None:
            rise = tree.title_height[frame] + TITLE_SPACE
            title = max(bracket.width, tree.title_width[frame] + TITLE_INSET)
            blocked += [bracket, Box(x=bracket.x, y=bracket.y - rise, width=title, height=rise)]
            is_continued = frame in titled
            frame_id = tree.frames[frame].frame_id
            placed.append(FramePlacement(frame_id=frame_id, box=bracket, is_bracket=True, is_continued=is_continued))
    return placed


def _is_clear(
    tree: FrameTree, frame: int, box: Box, obstacles: Sequence[tuple[int, Box]], taken: dict[int, Box]
) -> bool:
    members = tree.members[frame]
    outer = _with_sheets(tree, frame, box)
    if any(node not in members and _meet(outer, other, CARD_MARGIN) for node, other in obstacles):
        return False
    return not any(
        _meet(outer, _with_sheets(tree, index, other), FOREIGN_MARGIN)
        for index, other in taken.items()
        if index != frame and not members <= tree.members[index] and not tree.members[index] <= members
    )


def _with_sheets(tree: FrameTree, frame: int, box: Box) -> Box:
    """Return a box with the sheets that show behind it."""
    reach = tree.sheets(frame)
    return Box(x=box.x, y=box.y - reach, width=box.width + reach, height=box.height + reach)


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


def _title_strip(tree: FrameTree, frame: int, x: float, y: float, *, is_continued: bool = False) -> Box:
    width = tree.title_width[frame] + 2 * TITLE_INSET + (CONTINUED_WIDTH if is_continued else 0.0)
    return Box(x=x, y=y, width=width, height=tree.title_height[frame] + 3.0)


def title_strips(tree: FrameTree, placed: Iterable[FramePlacement]) -> list[Box]:
    """Return what arrow labels keep off: the title and the borders of each placed frame."""
    place = {frame.frame_id: index for index, frame in enumerate(tree.frames)}
    strips: list[Box] = []
    for frame in placed:
        index, box = place[frame.frame_id], frame.box
        if frame.is_bracket:
            top = box.y - tree.title_height[index] - 3.0
            strips.append(_title_strip(tree, index, box.x, top, is_continued=frame.is_continued))
            strips.append(Box(x=box.x, y=box.y, width=box.width, height=0.0))
            continue
        strips.append(_title_strip(tree, index, box.x, box.y, is_continued=frame.is_continued))
        # The sheets behind a repeat show above it and right of it.
        sheets = tree.sheets(index)
        strips.append(Box(x=box.x, y=box.y, width=0.0, height=box.height))
        strips.append(Box(x=box.x + box.width, y=box.y - sheets, width=sheets, height=box.height))
        strips.append(Box(x=box.x, y=box.y - sheets, width=box.width, height=sheets))
        strips.append(Box(x=box.x, y=box.y + box.height, width=box.width, height=0.0))
    return strips


def _side_by_side(
    tree: FrameTree, frame: int, box: Box, obstacles: Sequence[tuple[int, Box]], rings: Collection[int]
) -> Box | None:
    """Return the part of ``box`` that holds most members with nothing foreign between or above them, at least two."""
    members = tree.members[frame]
    around: dict[int, Box] = {}
    for node, other in obstacles:
        if node not in rings and _meet(box, other, 0.0):
            around[node] = _joint(around[node], other) if node in around else other
    foreign = [other for node, other in around.items() if node not in members]
    own = [around[node] for node in sorted(members & around.keys(), key=lambda node: (around[node].x, node))]
    runs: list[list[Box]] = [[]]
    end = float("-inf")
    for member in own:
        if any(other.y < member.y and _share_column(other, member.x, member.x + member.width) for other in foreign):
            continue
        if runs[-1] and any(_share_column(other, end, member.x) for other in foreign):
            runs.append([])
        runs[-1].append(member)
        end = max(end, member.x + member.width)
    run = max(runs, key=len)
    if len(run) < 2:
        return None
    left, right = min(member.x for member in run), max(member.x + member.width for member in run)
    top = min(member.y for member in run) - tree.top_room(frame)
    return Box(x=left, y=top, width=right - left, height=box.y + box.height - top)


def _share_column(box: Box, left: float, right: float) -> bool:
    return box.x < right and left < box.x + box.width


def _joint(first: Box, second: Box) -> Box:
    left, top = min(first.x, second.x), min(first.y, second.y)
    right = max(first.x + first.width, second.x + second.width)
    low = max(first.y + first.height, second.y + second.height)
    return Box(x=left, y=top, width=right - left, height=low - top)


def _bracket(tree: FrameTree, frame: int, box: Box, blocked: Sequence[Box]) -> Box | None:
    """Return the box whose upper border carries the bracket, its title above it; None where neither is free."""
    rise = tree.title_height[frame] + TITLE_SPACE
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
