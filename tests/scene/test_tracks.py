from __future__ import annotations

from itertools import pairwise
from math import hypot

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neural_flow.drawing import Route
from neural_flow.scene.tracks import commands_of, end_direction, own_part, shared_way, shorten, track_of

COORDINATES = st.integers(-200, 200).map(float)


@st.composite
def corners(draw) -> tuple[tuple[float, float], ...]:
    """Return the corners of a right-angled line with steps of at least one point."""
    points = [(draw(COORDINATES), draw(COORDINATES))]
    is_across = draw(st.booleans())
    for step in draw(st.lists(st.integers(1, 80), min_size=1, max_size=6)):
        x, y = points[-1]
        signed = step if draw(st.booleans()) else -step
        points.append((x + signed, y) if is_across else (x, y + signed))
        is_across = not is_across
    return tuple(points)


def sampled(track, steps=400) -> np.ndarray:
    points = []
    for piece in track:
        t = np.linspace(0, 1, steps)[:, None]
        p = np.array(piece)
        if len(p) == 2:
            points.append(p[0] * (1 - t) + p[1] * t)
        else:
            points.append(p[0] * (1 - t) ** 3 + 3 * p[1] * (1 - t) ** 2 * t + 3 * p[2] * (1 - t) * t**2 + p[3] * t**3)
    return np.concatenate(points)


def length(track) -> float:
    return float(np.hypot(*np.diff(sampled(track), axis=0).T).sum())


@given(corners(), st.floats(0, 12))
def test_rounding_keeps_the_ends_and_leaves_no_gap(points, radius):
    track = track_of(Route(arrow_id=0, style="orthogonal", points=points, radius=radius))
    assert track[0][0] == points[0]
    assert track[-1][-1] == points[-1]
    for before, after in pairwise(track):
        assert before[-1] == pytest.approx(after[0])
    straight = sum(hypot(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(points))
    assert straight - 0.43 * max(radius, 0.1) * 2 * (len(points) - 2) - 1e-6 <= length(track) <= straight + 1e-6


@given(corners(), st.floats(0, 30), st.booleans())
def test_shortening_takes_the_asked_length_off_one_end(points, distance, from_start):
    track = track_of(Route(arrow_id=0, style="orthogonal", points=points, radius=6))
    short = shorten(track, distance, from_start=from_start)
    expected = max(length(track) - distance, 0.1 * length(track))
    assert length(short) == pytest.approx(expected, rel=0.01, abs=0.05)
    kept = short[-1][-1] if from_start else short[0][0]
    assert kept == pytest.approx(track[-1][-1] if from_start else track[0][0])


@given(corners())
def test_the_end_direction_is_that_of_the_last_corner(points):
    track = track_of(Route(arrow_id=0, style="orthogonal", points=points, radius=6))
    (x0, y0), (x1, y1) = points[-2], points[-1]
    size = hypot(x1 - x0, y1 - y0)
    assert end_direction(track) == pytest.approx(((x1 - x0) / size, (y1 - y0) / size), abs=1e-6)


def test_a_curve_keeps_its_handles():
    points = ((0.0, 0.0), (10.0, 0.0), (10.0, 20.0), (20.0, 20.0), (30.0, 20.0), (30.0, 0.0), (40.0, 0.0))
    track = track_of(Route(arrow_id=0, style="curve", points=points))
    assert [len(piece) for piece in track] == [4, 4]
    commands = commands_of(track)
    assert [command[0] for command in commands] == ["M", "C", "C"]
    assert commands[1][1:] == (10.0, 0.0, 10.0, 20.0, 20.0, 20.0)


def test_points_on_one_line_make_one_direction():
    points = ((0.0, 0.0), (10.0, 0.0), (10.0, 0.0), (30.0, 0.0))
    track = track_of(Route(arrow_id=0, style="orthogonal", points=points))
    assert all(len(piece) == 2 for piece in track)
    assert length(track) == pytest.approx(30)


def test_a_route_without_length_does_not_fail():
    track = track_of(Route(arrow_id=0, style="orthogonal", points=((5.0, 5.0), (5.0, 5.0))))
    assert end_direction(track) == (1.0, 0.0)
    assert shorten(track, 3, from_start=False)[-1][-1] == (5.0, 5.0)


def length_of(track) -> float:
    return sum(abs(b[0] - a[0]) + abs(b[1] - a[1]) for piece in track for a, b in pairwise(piece))


@given(corners(), st.data())
def test_the_shared_way_and_the_own_part_are_the_whole_line(points, data):
    """Where a line leaves another one on a straight stretch, nothing is missing and nothing is drawn twice."""
    at = data.draw(st.integers(0, len(points) - 2))
    (x0, y0), (x1, y1) = points[at], points[at + 1]
    split = ((x0 + x1) / 2, (y0 + y1) / 2)
    whole = Route(arrow_id=0, style="orthogonal", points=points, radius=0.0)
    route = Route(
        arrow_id=0,
        style="orthogonal",
        points=(*points[: at + 1], split, *points[at + 1 :]),
        radius=0.0,
        num_shared_points=at + 2,
    )
    own = track_of(own_part(route))
    assert own[0][0] == split
    assert own[-1][-1] == points[-1]
    numbers = [float(word) for word in shared_way(route).split() if word not in "ML"]
    assert numbers[:2] == list(points[0])
    assert numbers[-2:] == pytest.approx(split, abs=0.01)
    assert length_of(track_of(whole)) == pytest.approx(
        length_of(own) + sum(abs(a - b) for a, b in zip(numbers[2:], numbers, strict=False))
    )


def test_a_line_that_shares_nothing_is_drawn_whole():
    route = Route(arrow_id=0, style="orthogonal", points=((0.0, 0.0), (9.0, 0.0)))
    assert own_part(route) == route
    assert shared_way(route) == ""


def test_a_curve_is_cut_between_its_cubics():
    points = tuple((float(index), float(index % 3)) for index in range(10))
    route = Route(arrow_id=0, style="curve", points=points, num_shared_points=4)
    assert own_part(route).points == points[3:]
    assert shared_way(route).startswith("M 0 0 C 1 1 2 2 3 0")


def test_a_line_that_joins_another_is_rounded_up_to_it_and_its_rest_is_known():
    points = ((0.0, 0.0), (50.0, 0.0), (50.0, -6.0), (50.0, -30.0))
    route = Route(arrow_id=0, style="orthogonal", points=points, num_joined_points=2)
    own = track_of(own_part(route))
    assert own == [((0.0, 0.0), (44.0, 0.0)), (*own[1][:3], (50.0, -6.0))]
    assert shared_way(route) == "M 50 -6 L 50 -30"
