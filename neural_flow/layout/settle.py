"""Push elements away from the trunk until chains are straight and frames are rectangles that hold their own only.

Each half of the drawing is a set of least distances between elements and frame borders; the longest path from the
trunk outwards solves it. The trunk never moves, and lines that were straight move as one piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neural_flow.layout.grid import Grid
from neural_flow.layout.halves import Half, Key

FRAME_GAP = 8.0
SAME_LINE = 0.01
MAX_WIDENING = 1.3
WIDENING = 30.0


@dataclass(slots=True)
class FrameRooms:
    """Room inside the lower and the higher border of each frame across the flow, and its least width there."""

    low: list[float]
    high: list[float]
    width: list[float]


def settle(
    grid: Grid,
    x: list[float],
    before: Sequence[float],
    after: Sequence[float],
    gaps: Sequence[Sequence[float]],
    chains: Sequence[Sequence[int]],
    links: Sequence[Sequence[tuple[int, float, float]]],
    rooms: FrameRooms,
    *,
    is_calm: bool,
) -> None:
    """Move elements in ``x`` so that chains are straight and no foreign element stands in the rectangle of a frame.

    Frames that cannot be rectangles (they hold parts of both halves but not the trunk between) are left out, and so
    are all frames of a half whose distances contradict each other: those end as brackets.

    Args:
        grid: ordered elements.
        x: places across the flow, changed in place.
        before: reach of each element towards lower places.
        after: reach of each element towards higher places.
        gaps: least distances between neighbours of each layer.
        chains: runs of elements that want one line.
        links: of each element: (neighbour, place wanted relative to it, weight).
        rooms: what frames need.
        is_calm: whether every chain becomes straight, at the price of width; else only what is straight stays so.
    """
    has_frames = any(grid.frames)
    if not has_frames and not is_calm:
        return
    straight = _straight_runs(x, chains)
    skipped = _torn_frames(grid, x)
    everything = set(range(len(rooms.low)))
    attempts = [(straight, skipped), ({}, skipped), ({}, everything)] if has_frames else []
    if is_calm:
        attempts.insert(0, ({element: chain[0] for chain in chains for element in chain}, skipped))
    for side in (1, -1):
        reach = max((side * place for place in x), default=0.0)
        for block, left_out in attempts:
            half = _make_half(grid, x, before, after, gaps, rooms, side, block, left_out)
            values = half.solve()
            if values is None:
                continue
            is_whole = is_calm and block is attempts[0][0]
            if is_whole and max(values.values(), default=0.0) > MAX_WIDENING * reach + WIDENING:
                continue
            if is_calm:
                _note_links(half, grid, x, links, side, block)
                half.draw_in(values)
            for row in grid.rows:
                for element in _outwards(grid, x, row, side):
                    x[element] = side * values["element", block.get(element, element)]
            break


def _note_links(
    half: Half,
    grid: Grid,
    x: list[float],
    links: Sequence[Sequence[tuple[int, float, float]]],
    side: int,
    block: dict[int, int],
) -> None:
    """Tell a half what its variables link to: others of the half, or fixed places elsewhere."""
    members = {element for row in grid.rows for element in _outwards(grid, x, row, side)}
    for element in sorted(members):
        key: Key = ("element", block.get(element, element))
        for other, offset, weight in links[element]:
            if other in members:
                far: Key = ("element", block.get(other, other))
                if far != key:
                    half.link(key, far, side * offset, weight)
            else:
                half.link(key, None, side * (x[other] + offset), weight)


def _straight_runs(x: list[float], chains: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return the first element of the straight run that each element belongs to."""
    block: dict[int, int] = {}
    for chain in chains:
        for index, element in enumerate(chain):
            previous = chain[index - 1]
            is_same = index > 0 and abs(x[element] - x[previous]) < SAME_LINE
            block[element] = block[previous] if is_same else element
    return block


def _pin(grid: Grid, x: list[float], row: list[int]) -> tuple[int, bool]:
    """Return the place of the trunk element, or of the first element right of the middle, and which it is."""
    for index, element in enumerate(row):
        if grid.is_trunk[element]:
            return index, True
    return next((index for index, element in enumerate(row) if x[element] >= 0), len(row)), False


def _outwards(grid: Grid, x: list[float], row: list[int], side: int) -> list[int]:
    pin, is_trunk = _pin(grid, x, row)
    return row[pin + is_trunk :] if side > 0 else row[:pin][::-1]


def _torn_frames(grid: Grid, x: list[float]) -> set[int]:
    """Return the frames that lie on both sides of a trunk element that is not theirs, or change sides."""
    sides: dict[int, set[str]] = {}
    for row in grid.rows:
        pin, is_trunk = _pin(grid, x, row)
        inside = set(grid.frames[row[pin]]) if is_trunk else set[int]()
        for index, element in enumerate(row):
            for frame in grid.frames[element]:
                if frame in inside:
                    sides.setdefault(frame, set()).add("round")
                else:
                    sides.setdefault(frame, set()).add("after" if index >= pin else "before")
    return {frame for frame, found in sides.items() if len(found) > 1}


def _make_half(
    grid: Grid,
    x: list[float],
    before: Sequence[float],
    after: Sequence[float],
    gaps: Sequence[Sequence[float]],
    rooms: FrameRooms,
    side: int,
    block: dict[int, int],
    skipped: set[int],
) -> Half:
    """Collect the distances of one side; places count outwards from the trunk."""
    half = Half()
    near_room, far_room = (rooms.low, rooms.high) if side > 0 else (rooms.high, rooms.low)
    near_reach, far_reach = (before, after) if side > 0 else (after, before)
    for layer, row in enumerate(grid.rows):
        pin, is_trunk = _pin(grid, x, row)
        outer = _outwards(grid, x, row, side)
        previous = row[pin] if is_trunk else None
        if previous is not None:
            half.add(("element", previous), 0.0)
        for element in outer:
            half.wish(("element", block.get(element, element)), side * x[element])
        if outer and not is_trunk:
            # Nothing but their distance keeps the two halves of a layer without trunk apart.
            half.add(("element", block.get(outer[0], outer[0])), side * x[outer[0]])
        at = pin + is_trunk - 1 if side > 0 else pin - 1
        for element in [*outer, None]:
            self_frames = [f for f in grid.frames[element] if f not in skipped] if element is not None else []
            last_frames = [f for f in grid.frames[previous] if f not in skipped] if previous is not None else []
            key = ("element", block.get(element, element)) if element is not None else None
            if previous is not None:
                start: Key = ("element", block.get(previous, previous))
                closing = [f for f in reversed(last_frames) if f not in self_frames]
                opening = [f for f in self_frames if f not in last_frames]
                if key is not None and not closing and not opening and 0 <= at < len(gaps[layer]):
                    half.keep(start, key, gaps[layer][at])
                else:
                    reach = far_reach[previous]
                    for frame in closing:
                        border: Key = ("far", frame)
                        half.add(border, float("-inf"))
                        half.keep(start, border, reach + far_room[frame])
                        start, reach = border, 0.0
                    if key is not None:
                        _enter(half, start, reach + FRAME_GAP, opening, near_room, key, near_reach[element or 0])
            elif key is not None:
                _enter(half, None, 0.0, self_frames, near_room, key, near_reach[element or 0])
            previous = element
            at += side
    for frame, width in enumerate(rooms.width):
        if width and ("near", frame) in half.start and ("far", frame) in half.start:
            half.keep(("near", frame), ("far", frame), width)
    return half


def _enter(
    half: Half, start: Key | None, distance: float, opening: list[int], room: Sequence[float], key: Key, reach: float
) -> None:
    """Add the borders of frames that open before an element, nearest first, and the element's distance to them."""
    for frame in opening:
        border: Key = ("near", frame)
        half.add(border, float("-inf"))
        if start is not None:
            half.keep(start, border, distance)
        start, distance = border, room[frame]
    if start is not None:
        half.keep(start, key, distance + reach)
