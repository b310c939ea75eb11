import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neural_flow.layout.coordinates import fit_places, pool_violators

NUMBERS = st.floats(-100, 100)
WEIGHTS = st.floats(0.1, 10)


def best_by_blocks(goals, weights):
    """Return the least cost over all ways to cut the sequence into blocks of equal value in rising order."""
    best = None
    for cuts in itertools.product([False, True], repeat=len(goals) - 1):
        blocks, start = [], 0
        for index, is_cut in enumerate([*cuts, True]):
            if is_cut:
                blocks.append(range(start, index + 1))
                start = index + 1
        values = []
        for block in blocks:
            total = sum(weights[i] for i in block)
            values.append(sum(weights[i] * goals[i] for i in block) / total)
        if all(a <= b + 1e-9 for a, b in itertools.pairwise(values)):
            cost = sum(
                weights[i] * (value - goals[i]) ** 2
                for block, value in zip(blocks, values, strict=False)
                for i in block
            )
            best = cost if best is None else min(best, cost)
    return best


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(NUMBERS, WEIGHTS), min_size=1, max_size=8))
def test_pooling_is_the_nearest_rising_sequence(pairs):
    goals, weights = [goal for goal, _ in pairs], [weight for _, weight in pairs]
    values = pool_violators(goals, weights)
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(values))
    cost = sum(w * (value - goal) ** 2 for w, value, goal in zip(weights, values, goals, strict=False))
    assert cost == pytest.approx(best_by_blocks(goals, weights), abs=1e-6, rel=1e-6)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(NUMBERS, WEIGHTS, st.floats(0, 40)), min_size=1, max_size=20), st.data())
def test_places_keep_their_gaps_and_the_pin(items, data):
    targets, weights = [item[0] for item in items], [item[1] for item in items]
    gaps = [item[2] for item in items[1:]]
    pinned = [data.draw(st.integers(0, len(items) - 1))] if data.draw(st.booleans()) else []
    places = fit_places(targets, weights, gaps, pinned)
    assert all(b - a >= gap - 1e-6 for (a, b), gap in zip(itertools.pairwise(places), gaps, strict=False))
    if pinned:
        assert places[pinned[0]] == pytest.approx(0.0, abs=1e-9)


def test_what_fits_is_not_moved():
    assert fit_places([-30.0, 0.0, 40.0], [1.0, 1.0, 1.0], [20.0, 20.0], [1]) == [-30.0, 0.0, 40.0]
