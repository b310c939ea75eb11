"""From places along and across the flow to a finished ``Layout`` in page coordinates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from neural_flow.drawing import (
    Arrow,
    Box,
    Direction,
    FramePlacement,
    Layout,
    Placement,
    Point,
    Route,
)
from neural_flow.layout._base import CORNER_RADIUS, HEAD_LENGTH
from neural_flow.layout.line_kinds import Way
from neural_flow.layout.routing import EPSILON

PART_GAP = 28.0
BRACKET_TITLE = 10.0
"""The title of a bracket stands above its box."""
PACK_ASPECT = 16 / 9


@dataclass(slots=True)
class Sheet:
    """A layout being made, already in page coordinates but not yet moved to the origin."""

    style: str
    direction: Direction
    placements: list[Placement] = field(default_factory=list[Placement])
    routes: list[Route] = field(default_factory=list[Route])
    frames: list[FramePlacement] = field(default_factory=list[FramePlacement])


def to_page(point: Point, direction: Direction) -> Point:
    """Return the page point of (along, across)."""
    return point if direction == "lr" else (point[1], point[0])


def make_routes(ways: Iterable[Way], *, is_curved: bool, direction: Direction) -> list[Route]:
    """Return routes with the points where lines of one source split.

    Args:
        ways: lines, those that others split off first.
        is_curved: whether points are cubics.
        direction: of the flow.
    """
    drawn: dict[int, list[list[Point]]] = {}
    routes: list[Route] = []
    ways = list(ways)
    for way in ways:
        whole = [to_page(point, direction) for point in way.points]
        points, num_shared = whole, 0
        for earlier in drawn.get(way.source, []):
            shared = _shared_curve(earlier, whole) if is_curved else _shared_corners(earlier, whole)
            if shared is not None and _is_longer(shared, (num_shared, points)):
                num_shared, points = shared
        drawn.setdefault(way.source, []).append(whole)
        routes.append(
            Route(
                arrow_id=way.arrow.arrow_id,
                style="curve" if is_curved else "orthogonal",
                points=tuple(points),
                radius=CORNER_RADIUS,
                taps=(points[num_shared - 1],) if num_shared else (),
                num_shared_points=num_shared,
                kind=way.kind,
            )
        )
    return routes if is_curved else _join_ends([way.arrow for way in ways], routes)


def _join_ends(arrows: list[Arrow], routes: list[Route]) -> list[Route]:
    """Let lines that come to one place of a target from one side end on the longest of them."""
    ends: dict[tuple[int, Point, tuple[int, int], bool], list[int]] = {}
    for index, (arrow, route) in enumerate(zip(arrows, routes, strict=True)):
        if len(route.points) > 2:
            corner, end = route.points[-2:]
            ends.setdefault((arrow.target, end, _direction(corner, end), arrow.inferred), []).append(index)
    joined = list(routes)
    for (_, end, ahead, _), indices in ends.items():
        longest = max(indices, key=lambda index: (_distance(routes[index].points[-2], end), -index))
        for index in indices:
            points = routes[index].points
            length = _distance(points[-2], end)
            if (
                index == longest
                or length < CORNER_RADIUS + HEAD_LENGTH
                or routes[index].num_shared_points == len(points)
            ):
                continue
            place = (points[-2][0] + ahead[0] * CORNER_RADIUS, points[-2][1] + ahead[1] * CORNER_RADIUS)
            joined[index] = replace(routes[index], points=(*points[:-1], place, end), num_joined_points=2)
    return joined


def _is_longer(first: tuple[int, list[Point]], second: tuple[int, list[Point]]) -> bool:
    """Return whether more of the line is shared in ``first``: number of shared points, and the points."""

    def length(shared: tuple[int, list[Point]]) -> float:
        return sum(_distance(a, b) for a, b in pairwise(shared[1][: shared[0]]))

    return length(first) > length(second)


def _shared_corners(first: list[Point], second: list[Point]) -> tuple[int, list[Point]] | None:
    """Return how many leading points ``second`` shares with ``first``, and its points with the place where it splits.

    Where one of the two bends, they split where its rounded corner starts: the curve leaves the straight line there.
    """
    if not _is_same(first[0], second[0]):
        return None
    index = 1
    while index < min(len(first), len(second)) and _is_same(first[index], second[index]):
        index += 1
    if index == len(second):
        return index, second
    if index == len(first):
        return None
    here, a, b = second[index - 1], first[index], second[index]
    if _direction(here, a) == _direction(here, b):
        corner = min(a, b, key=lambda point: _distance(here, point))
    elif index > 1:
        here, corner, index = second[index - 2], here, index - 1
    else:
        return None
    length = _distance(here, corner)
    reach = min(CORNER_RADIUS, length)
    if index > 1:
        # The corner before is rounded as well.
        reach = min(CORNER_RADIUS, max(length - CORNER_RADIUS, length / 4))
    elif reach == length:
        return None
    ahead = _direction(here, corner)
    split = (corner[0] - ahead[0] * reach, corner[1] - ahead[1] * reach)
    return index + 1, [*second[:index], split, *second[index:]]


def _direction(start: Point, end: Point) -> tuple[int, int]:
    def sign(value: float) -> int:
        return (value > EPSILON) - (value < -EPSILON)

    return sign(end[0] - start[0]), sign(end[1] - start[1])


def _distance(start: Point, end: Point) -> float:
    return abs(end[0] - start[0]) + abs(end[1] - start[1])


def _shared_curve(first: list[Point], second: list[Point]) -> tuple[int, list[Point]] | None:
    index = 0
    while index < min(len(first), len(second)) and _is_same(first[index], second[index]):
        index += 1
    whole = index - (index - 1) % 3 if index else 0
    return (whole, second) if whole > 1 else None


def _is_same(first: Point, second: Point) -> bool:
    return abs(first[0] - second[0]) < EPSILON and abs(first[1] - second[1]) < EPSILON


def extent(sheet: Sheet) -> Box:
    """Return the box round everything on the sheet."""
    xs: list[float] = []
    ys: list[float] = []
    boxes = [box for placement in sheet.placements for box in (placement.body, placement.label) if box]
    boxes += [route.label for route in sheet.routes if route.label] + [frame.box for frame in sheet.frames]
    for box in boxes:
        xs += (box.x, box.x + box.width)
        ys += (box.y, box.y + box.height)
    ys += [frame.box.y - BRACKET_TITLE for frame in sheet.frames if frame.is_bracket]
    for route in sheet.routes:
        for x, y in route.points:
            xs.append(x)
            ys.append(y)
    left, top = min(xs, default=0.0), min(ys, default=0.0)
    return Box(x=left, y=top, width=max(xs, default=0.0) - left, height=max(ys, default=0.0) - top)


def shifted(sheet: Sheet, dx: float, dy: float) -> Sheet:
    """Return ``sheet`` moved, every length rounded to 0.001 pt."""

    def move(box: Box) -> Box:
        return Box(x=_tidy(box.x + dx), y=_tidy(box.y + dy), width=_tidy(box.width), height=_tidy(box.height))

    def shift(points: Iterable[Point]) -> tuple[Point, ...]:
        return tuple((_tidy(x + dx), _tidy(y + dy)) for x, y in points)

    return Sheet(
        style=sheet.style,
        direction=sheet.direction,
        placements=[
            replace(placement, body=move(placement.body), label=move(placement.label) if placement.label else None)
            for placement in sheet.placements
        ],
        routes=[
            replace(
                route,
                points=shift(route.points),
                label=move(route.label) if route.label else None,
                taps=shift(route.taps),
            )
            for route in sheet.routes
        ],
        frames=[replace(frame, box=move(frame.box)) for frame in sheet.frames],
    )


def pack(sheets: list[Sheet], *, max_width: float) -> Sheet:
    """Return one sheet with the parts side by side in shelves, as parts of one figure that share no data.

    Parts keep their order. A shelf is as wide as the widest part, or as a page of the joint area.
    """
    if len(sheets) == 1:
        return sheets[0]
    boxes = [extent(sheet) for sheet in sheets]
    area = sum((box.width + PART_GAP) * (box.height + PART_GAP) for box in boxes)
    width = max(*(box.width for box in boxes), min(max_width, (area * PACK_ASPECT) ** 0.5))
    packed = Sheet(style=sheets[0].style, direction=sheets[0].direction)
    x = y = tallest = 0.0
    for sheet, box in zip(sheets, boxes, strict=True):
        if x and x + box.width > width:
            x, y, tallest = 0.0, y + tallest + PART_GAP, 0.0
        moved = shifted(sheet, x - box.x, y - box.y)
        packed.placements.extend(moved.placements)
        packed.routes.extend(moved.routes)
        # Brackets over several parts say their name once; a box in another part is another call, not the rest of one.
        titled = {frame.frame_id for frame in packed.frames}
        packed.frames.extend(frame for frame in moved.frames if not (frame.is_bracket and frame.frame_id in titled))
        x += box.width + PART_GAP
        tallest = max(tallest, box.height)
    return packed


def finish(sheet: Sheet) -> Layout:
    """Return the layout moved so that everything starts at (0, 0), rounded to 0.001 pt."""
    box = extent(sheet)
    sheet = shifted(sheet, -box.x, -box.y)
    return Layout(
        style=sheet.style,
        direction=sheet.direction,
        width=_tidy(box.width),
        height=_tidy(box.height),
        placements=tuple(sorted(sheet.placements, key=lambda placement: placement.node_id)),
        routes=tuple(sorted(sheet.routes, key=lambda route: route.arrow_id)),
        frames=tuple(sorted(sheet.frames, key=lambda frame: frame.frame_id)),
    )


def _tidy(value: float) -> float:
    # Adding 0.0 turns -0.0 into 0.0, so that equal layouts print equally.
    return round(value, 3) + 0.0
