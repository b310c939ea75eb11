"""The way of an arrow as pieces: lines and cubics, with rounded corners, cut to length at either end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import hypot

from neural_flow.drawing import Point, Route
from neural_flow.scene.shapes import Commands

Piece = tuple[Point, ...]
"""Two points: a line. Four: a cubic."""
Track = list[Piece]
_KAPPA = 0.5522847498
_TINY = 1e-6


def track_of(route: Route) -> Track:
    """Return the pieces of ``route``."""
    points = _distinct(route.points)
    if route.style == "curve" and len(route.points) >= 4 and (len(route.points) - 1) % 3 == 0:
        return [tuple(route.points[start : start + 4]) for start in range(0, len(route.points) - 1, 3)]
    return _rounded(points, route.radius)


def _distinct(points: Sequence[Point]) -> list[Point]:
    kept = [points[0]]
    for point in points[1:]:
        if hypot(point[0] - kept[-1][0], point[1] - kept[-1][1]) > _TINY:
            kept.append(point)
    return kept if len(kept) > 1 else [points[0], points[-1]]


def _rounded(points: list[Point], radius: float) -> Track:
    track: Track = []
    start = points[0]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        reach = min(radius, _length(before, corner) / 2, _length(corner, after) / 2)
        if reach < 0.05 or _is_straight(before, corner, after):
            track.append((start, corner))
            start = corner
            continue
        entry, leave = _towards(corner, before, reach), _towards(corner, after, reach)
        track.append((start, entry))
        handle = reach * (1 - _KAPPA)
        track.append((entry, _towards(corner, before, handle), _towards(corner, after, handle), leave))
        start = leave
    track.append((start, points[-1]))
    return [piece for piece in track if len(piece) == 4 or _length(*piece) > _TINY] or [(points[0], points[-1])]


def _is_straight(before: Point, corner: Point, after: Point) -> bool:
    cross = (corner[0] - before[0]) * (after[1] - corner[1]) - (corner[1] - before[1]) * (after[0] - corner[0])
    return abs(cross) < _TINY


def _length(first: Point, second: Point) -> float:
    return hypot(second[0] - first[0], second[1] - first[1])


def _towards(start: Point, end: Point, distance: float) -> Point:
    share = distance / _length(start, end)
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share


def shorten(track: Track, distance: float, *, from_start: bool) -> Track:
    """Return ``track`` without its first or last ``distance`` points; a tenth of the way always stays."""
    left = min(distance, 0.9 * sum(_piece_length(piece) for piece in track))
    if left <= 0:
        return track
    pieces = [tuple(reversed(piece)) for piece in track] if from_start else list(track)
    if from_start:
        pieces.reverse()
    while left > 0:
        length = _piece_length(pieces[-1])
        if length <= left and len(pieces) > 1:
            pieces.pop()
            left -= length
        else:
            pieces[-1] = _head_of(pieces[-1], 1 - left / length if length > 0 else 1.0)
            break
    return [tuple(reversed(piece)) for piece in reversed(pieces)] if from_start else pieces


def _piece_length(piece: Piece) -> float:
    if len(piece) == 2:
        return _length(*piece)
    points = [_at(piece, step / 8) for step in range(9)]
    return sum(_length(first, second) for first, second in pairwise(points))


def _at(piece: Piece, share: float) -> Point:
    rest = 1 - share
    weights = (rest**3, 3 * rest**2 * share, 3 * rest * share**2, share**3)
    x = sum(weight * point[0] for weight, point in zip(weights, piece, strict=True))
    return x, sum(weight * point[1] for weight, point in zip(weights, piece, strict=True))


def _head_of(piece: Piece, share: float) -> Piece:
    """Return the part of a piece before ``share`` (de Casteljau)."""
    if len(piece) == 2:
        return piece[0], _mix(*piece, share)
    first, second, third = (_mix(a, b, share) for a, b in pairwise(piece))
    left, right = _mix(first, second, share), _mix(second, third, share)
    return piece[0], first, left, _mix(left, right, share)


def _mix(first: Point, second: Point, share: float) -> Point:
    return first[0] + (second[0] - first[0]) * share, first[1] + (second[1] - first[1]) * share


def end_direction(track: Track) -> Point:
    """Return the unit vector in which a track ends."""
    end = track[-1][-1]
    before = next((point for point in reversed(track[-1][:-1]) if _length(point, end) > _TINY), None)
    if before is None:
        return 1.0, 0.0
    length = _length(before, end)
    return (end[0] - before[0]) / length, (end[1] - before[1]) / length


def commands_of(track: Track) -> Commands:
    """Return a track as path commands."""
    commands: list[tuple[object, ...]] = [("M", *track[0][0])]
    for piece in track:
        flat = [value for point in piece[1:] for value in point]
        commands.append(("L" if len(piece) == 2 else "C", *flat))
    return tuple(commands)
