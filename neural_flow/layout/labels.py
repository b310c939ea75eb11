"""Labels of arrows: beside a stretch of their own line, free of everything else, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType

from neural_flow.drawing import Box, Point, Route
from neural_flow.layout._base import ARROW_LABEL_GAP, HEAD_LENGTH

CELL = 64.0
SIDE_GAP = 4.0
START_GAP = 5.0
SLIDE = 2.0
MAX_STEPS = 80
LONG = 12.0
"""Height of a label times this: beside an upright stretch as long, the label stands near its start."""
CHORDS = 8
MARGIN = 0.8


class Occupancy:
    """Boxes already taken, in a grid of square cells."""

    def __init__(self, boxes: Iterable[Box]) -> None:
        self._cells: dict[tuple[int, int], list[Box]] = {}
        for box in boxes:
            self.add(box)

    def add(self, box: Box) -> None:
        """Take ``box``."""
        for cell in self._covered(box):
            self._cells.setdefault(cell, []).append(box)

    def is_free(self, box: Box) -> bool:
        """Return whether ``box`` meets nothing that is taken."""
        return not any(_meet(box, other) for cell in self._covered(box) for other in self._cells.get(cell, ()))

    def _covered(self, box: Box) -> Iterator[tuple[int, int]]:
        for column in range(int(box.x // CELL), int((box.x + box.width) // CELL) + 1):
            for row in range(int(box.y // CELL), int((box.y + box.height) // CELL) + 1):
                yield column, row


def _meet(first: Box, second: Box, margin: float = MARGIN) -> bool:
    return (
        first.x < second.x + second.width + margin
        and second.x < first.x + first.width + margin
        and first.y < second.y + second.height + margin
        and second.y < first.y + first.height + margin
    )


@dataclass(frozen=True, slots=True)
class Slide:
    """A label that may stand anywhere along a straight stretch, counted from where the line comes from."""

    start: Box
    dx: float
    dy: float
    is_long: bool = False
    """Whether the label belongs near the start of the stretch, not to its middle."""

    def best_free(self, is_free: Callable[[Box], bool]) -> Box | None:
        """Return the middle of the longest free part, or a place in the first one where the stretch is long."""
        length = abs(self.dx) + abs(self.dy)
        num_steps = max(1, min(MAX_STEPS, round(length / SLIDE)))
        best: tuple[int, float] | None = None
        first: int | None = None
        for step in range(num_steps + 2):
            is_open = step <= num_steps and is_free(self._at(step / num_steps))
            if is_open and first is None:
                first = step
            elif not is_open and first is not None:
                middle = (first + step - 1) / 2 / num_steps
                if self.is_long:
                    return self._at(min(middle, first / num_steps + START_GAP / length))
                if best is None or (first - step, abs(middle - 0.5)) < (best[0], abs(best[1] - 0.5)):
                    best = (first - step, middle)
                first = None
        return None if best is None else self._at(best[1])

    def _at(self, share: float) -> Box:
        return replace(self.start, x=self.start.x + share * self.dx, y=self.start.y + share * self.dy)


def place_arrow_labels(
    routes: Sequence[Route],
    sizes: Mapping[int, tuple[float, float]],
    taken: Iterable[Box],
    *,
    prefers_level: bool | None,
    crossable: Iterable[Box] = (),
    words: Mapping[int, Hashable] = MappingProxyType({}),
) -> list[Route]:
    """Return the routes with a label box where one is free.

    Args:
        routes: ways of all arrows.
        sizes: width and height of each label, by arrow id.
        taken: boxes that labels must not touch: bodies, node labels, titles and borders of frames.
        prefers_level: whether level stretches come before upright ones; None takes them in the order of the line.
        crossable: thin borders that a label rather crosses than be left out.
        words: what arrows say and where they come from, by arrow id. A line needs no label where an equal one stands
            at the stretch that it shares.
    """
    if not any(sizes.get(route.arrow_id) for route in routes):
        return list(routes)
    occupancy = Occupancy([*taken, *(box for route in routes for box in line_boxes(route))])
    borders = Occupancy(crossable)
    said: dict[Hashable, list[Box]] = {}
    result: list[Route] = []
    for route in routes:
        size = sizes.get(route.arrow_id)
        equal = said.setdefault(words.get(route.arrow_id, ("arrow", route.arrow_id)), [])
        if size and size[0] > 0 and not _is_said(route, equal):
            label = _free_place(_candidates(route, size, prefers_level=prefers_level), occupancy, borders)
            if label is not None:
                occupancy.add(label)
                equal.append(label)
                route = replace(route, label=label)
        result.append(route)
    return result


def _is_said(route: Route, labels: Iterable[Box]) -> bool:
    """Return whether one of ``labels`` stands beside the part of ``route`` that another arrow draws."""
    if route.num_shared_points < 2:
        return False
    shared = line_boxes(replace(route, points=route.points[: route.num_shared_points]))
    return any(_meet(label, line, SIDE_GAP) for label in labels for line in shared)


def _free_place(candidates: Iterable[Slide], occupancy: Occupancy, borders: Occupancy) -> Box | None:
    """Return the first free place that crosses no border, else the first free one."""
    first: Box | None = None
    for candidate in candidates:
        inside = candidate.best_free(lambda box: occupancy.is_free(box) and borders.is_free(box))
        if inside is not None:
            return inside
        first = first or candidate.best_free(occupancy.is_free)
    return first


def line_boxes(route: Route) -> list[Box]:
    """Return thin boxes along a route."""
    points = list(route.points) if route.style == "orthogonal" else flatten(route.points)
    return [
        Box(x=min(a[0], b[0]), y=min(a[1], b[1]), width=abs(a[0] - b[0]), height=abs(a[1] - b[1]))
        for a, b in pairwise(points)
    ]


def flatten(points: Sequence[Point]) -> list[Point]:
    """Return the corners of a chord line along cubics."""
    result = [points[0]]
    for index in range(0, len(points) - 1, 3):
        a, b, c, d = points[index : index + 4]
        if a[0] == b[0] == c[0] == d[0] or a[1] == b[1] == c[1] == d[1]:
            result.append(d)
            continue
        for step in range(1, CHORDS + 1):
            t = step / CHORDS
            u = 1 - t
            weights = (u * u * u, 3 * u * u * t, 3 * u * t * t, t * t * t)
            result.append(
                (
                    weights[0] * a[0] + weights[1] * b[0] + weights[2] * c[0] + weights[3] * d[0],
                    weights[0] * a[1] + weights[1] * b[1] + weights[2] * c[1] + weights[3] * d[1],
                )
            )
    return result


def _candidates(route: Route, size: tuple[float, float], *, prefers_level: bool | None) -> Iterator[Slide]:
    points = list(route.points) if route.style == "orthogonal" else route.points[::3]
    if route.style == "orthogonal":
        points = points[max(0, route.num_shared_points - 1) : len(points) - max(0, route.num_joined_points - 1)]
    stretches = list(pairwise(points))
    ordered = list(enumerate(stretches))
    if prefers_level is not None:
        ordered.sort(key=lambda item: (_is_level(*item[1]) != prefers_level, item[0]))
    for index, (a, b) in ordered:
        head = HEAD_LENGTH if index == len(stretches) - 1 and not route.num_joined_points else 0.0
        if _is_level(a, b):
            yield from _beside_level(a, b, size, head)
        elif abs(a[0] - b[0]) < MARGIN:
            yield from _beside_upright(a, b, size, head)


def _is_level(a: Point, b: Point) -> bool:
    return abs(a[1] - b[1]) < MARGIN


def _beside_level(a: Point, b: Point, size: tuple[float, float], head: float) -> Iterator[Slide]:
    width, height = size
    room = abs(b[0] - a[0]) - head - width
    if room < 0:
        return
    x, dx = (a[0], room) if a[0] < b[0] else (a[0] - width, -room)
    for y in (a[1] - ARROW_LABEL_GAP - height, a[1] + ARROW_LABEL_GAP):
        yield Slide(Box(x=x, y=y, width=width, height=height), dx, 0.0, is_long=room > 2 * width)


def _beside_upright(a: Point, b: Point, size: tuple[float, float], head: float) -> Iterator[Slide]:
    """Try both sides of an upright stretch: the left first on the way down, the right first on the way up."""
    width, height = size
    room = abs(b[1] - a[1]) - head - height
    if room < 0:
        return
    left, right = a[0] - SIDE_GAP - width, a[0] + SIDE_GAP
    y, dy = (a[1], room) if a[1] < b[1] else (a[1] - height, -room)
    for x in (left, right) if a[1] < b[1] else (right, left):
        yield Slide(Box(x=x, y=y, width=width, height=height), 0.0, dy, is_long=room > LONG * height)
