"""Where things stand on the page: moving a layout, and what is still free. Lengths are points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from neural_flow.drawing import Box, Layout, Point
from neural_flow.records import Array
from neural_flow.scene.tracks import track_of


def moved(layout: Layout, dx: float, dy: float) -> Layout:
    """Return ``layout`` with everything shifted."""
    return replace(
        layout,
        placements=tuple(
            replace(place, body=_moved(place.body, dx, dy), label=place.label and _moved(place.label, dx, dy))
            for place in layout.placements
        ),
        routes=tuple(
            replace(
                route,
                points=_points(route.points, dx, dy),
                taps=_points(route.taps, dx, dy),
                label=route.label and _moved(route.label, dx, dy),
            )
            for route in layout.routes
        ),
        frames=tuple(replace(frame, box=_moved(frame.box, dx, dy)) for frame in layout.frames),
    )


def _moved(box: Box, dx: float, dy: float) -> Box:
    return replace(box, x=box.x + dx, y=box.y + dy)


def _points(points: Sequence[Point], dx: float, dy: float) -> tuple[Point, ...]:
    return tuple((x + dx, y + dy) for x, y in points)


def contents(layout: Layout) -> list[Box]:
    """Return the boxes of everything that a layout places; lines are thin boxes."""
    boxes: list[Box] = []
    for place in layout.placements:
        boxes += [place.body] + ([place.label] if place.label else [])
    for route in layout.routes:
        boxes += [_hull(piece) for piece in track_of(route)] + ([route.label] if route.label else [])
    return boxes


def bounds(boxes: Iterable[Box]) -> Box:
    """Return the smallest box round ``boxes``; an empty one at the origin for none."""
    known = list(boxes)
    if not known:
        return Box(x=0, y=0, width=0, height=0)
    return _hull([(box.x, box.y) for box in known] + [(box.x + box.width, box.y + box.height) for box in known])


def _hull(points: Sequence[Point]) -> Box:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return Box(x=min(xs), y=min(ys), width=max(xs) - min(xs), height=max(ys) - min(ys))


def covered_area(box: Box, obstacles: Iterable[Box]) -> float:
    """Return how much of ``box`` lies over obstacles; a line counts as one point wide."""
    area = 0.0
    for other in obstacles:
        width = min(box.x + box.width, other.x + max(other.width, 1.0)) - max(box.x, other.x)
        height = min(box.y + box.height, other.y + max(other.height, 1.0)) - max(box.y, other.y)
        area += width * height if width > 0 and height > 0 else 0.0
    return area


def is_free(box: Box, obstacles: Iterable[Box], gap: float = 1.0) -> bool:
    """Return whether ``box`` keeps ``gap`` from every obstacle."""
    return not any(
        box.x < other.x + other.width + gap
        and other.x < box.x + box.width + gap
        and box.y < other.y + other.height + gap
        and other.y < box.y + box.height + gap
        for other in obstacles
    )


def floors_under(xs: Array, width: float, obstacles: Sequence[Box], gap: float) -> Array:
    """Return for each x in ``xs`` the y below which the strip from x to x + ``width`` is free; 0 where nothing is."""
    floors = np.zeros(len(xs))
    if obstacles:
        sides = np.array([(other.x, other.x + other.width, other.y + other.height) for other in obstacles])
        for index, x in enumerate(xs):
            is_over = (sides[:, 0] < x + width + gap) & (x < sides[:, 1] + gap)
            floors[index] = np.max(sides[is_over, 2], initial=-gap) + gap
    return floors
