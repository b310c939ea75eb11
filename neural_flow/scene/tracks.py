"""The way of an arrow as pieces: lines and cubics, with rounded corners, cut to length at either end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import hypot

from neural_flow.drawing import Point, Route
from neural_flow.scene.shapes import Commands

Piece = tuple[Point, ...]
"""Two points: a line. Four: a cubic."""
Track = list[Piece]
_KAPPA = 0.5522847498
_TINY = 1e-6
_HEAD_ROOM = 6.0


def track_of(route: Route) -> Track:
    """Return the pieces of ``route``."""
    points = _distinct(route.points)
    if route.style == "curve" and len(route.points) >= 4 and (len(route.points) - 1) % 3 == 0:
        return [tuple(route.points[start : start + 4]) for start in range(0, len(route.points) - 1, 3)]
    return _rounded(points, route.radius, 0.0 if route.num_joined_points else _HEAD_ROOM)


def own_part(route: Route) -> Route:
    """Return ``route`` from where it leaves the line that it shares with others of its source to where it joins one."""
    end = len(route.points) - max(route.num_joined_points - 1, 0)
    last = end - (4 if route.style == "curve" else 2)
    start = min(max(route.num_shared_points - 1, 0), max(last, 0))
    return replace(route, points=route.points[start:end])


def shared_way(route: Route) -> str:
    """Return what of ``route`` other arrows draw, as the ``d`` of an SVG path; empty where there is nothing.

    A viewer that lights one arrow completes its line with it.
    """
    parts: list[tuple[Point, ...]] = []
    if route.num_shared_points > 1:
        parts.append(route.points[: route.num_shared_points])
    if route.num_joined_points > 1:
        parts.append(route.points[-route.num_joined_points :])
    commands = [command for points in parts for command in commands_of(track_of(replace(route, points=points)))]
    return " ".join(" ".join(_word(value) for value in command) for command in commands)


def _word(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _distinct(points: Sequence[Point]) -> list[Point]:
    kept = [points[0]]
    for point in points[1:]:
        if hypot(point[0] - kept[-1][0], point[1] - kept[-1][1]) > _TINY:
            kept.append(point)
    return kept if len(kept) > 1 else [points[0], points[-1]]


def _rounded(points: list[Point], radius: float, head_room: float) -> Track:
    track: Track = []
    start = points[0]
    last = len(points) - 3
    for index, (before, corner, after) in enumerate(zip(points, points[1:], points[2:], strict=False)):
        # Two corners share a straight stretch; at either end of the line there is but one, and the head is straight.
        entry_room = _length(before, corner) / (2 if index else 1)
        leave_room = _length(corner, after)
        leave_room = max(leave_room / 2, leave_room - head_room) if index == last else leave_room / 2
        reach = min(radius, entry_room, leave_room)
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
