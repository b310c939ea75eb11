from itertools import combinations, pairwise

import diagrams
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neural_flow.drawing import LayoutOptions
from neural_flow.layout.cuts import RAGGED_COST, ROW_COST, TOO_LONG, Ruler, cuts_within, even_cuts, measure
from neural_flow.layout.layered import make_draft
from neural_flow.layout.wrap import wrappings

LENGTHS = st.lists(st.integers(10, 100), min_size=1, max_size=8)


@st.composite
def rulers(draw):
    """Rulers of stages in a row, with lines that need room before and after a cut, and costs of cuts."""
    lengths = draw(LENGTHS)
    num_gaps = len(lengths) + 1
    numbers = st.lists(st.integers(0, 20), min_size=num_gaps, max_size=num_gaps)
    ends = [0.0]
    for length in lengths:
        ends.append(ends[-1] + length)
    costs = [number / 10 for number in draw(numbers)]
    return Ruler(
        positions=ends,
        penalties=costs,
        frame_penalties=costs,
        costs=costs,
        lows=[0.0] * len(lengths),
        highs=[10.0] * len(lengths),
        starts=ends,
        ends=ends,
        enters=[float(number) for number in draw(numbers)],
        leaves=[float(number) for number in draw(numbers)],
    )


def cost_of(ruler, cuts, limit):
    bounds = [0, *cuts, len(ruler.lows)]
    total = sum(ruler.costs[cut] for cut in cuts)
    for start, stop in pairwise(bounds):
        unused = 1.0 - ruler.row_length(start, stop) / limit
        if unused < 0.0:
            if stop - start > 1:
                return float("inf")
            total += TOO_LONG
        elif stop < len(ruler.lows):
            total += RAGGED_COST * unused**2
        total += ROW_COST
    return total


@settings(max_examples=200, deadline=None)
@given(rulers(), st.integers(30, 300))
def test_the_cheapest_rows_within_a_limit_are_found(ruler, limit):
    """Against every way to cut. A row that ends where fewer lines leave may be shorter than one inside it."""
    layers = range(1, len(ruler.lows))
    every = [list(cuts) for count in range(len(ruler.lows)) for cuts in combinations(layers, count)]
    found = cuts_within(ruler, limit)
    assert found in every
    assert cost_of(ruler, found, limit) == pytest.approx(min(cost_of(ruler, cuts, limit) for cuts in every))


def test_a_row_may_start_further_back_where_fewer_lines_enter_it():
    """Two layers with the lines that enter before them are too long; with the layer before, where none enter, not."""
    ends = [0.0, 10.0, 20.0, 30.0]
    none = [0.0] * 4
    ruler = Ruler(
        positions=ends,
        penalties=none,
        frame_penalties=none,
        costs=none,
        lows=[0.0] * 3,
        highs=[10.0] * 3,
        starts=ends,
        ends=ends,
        enters=[0.0, 11.0, 0.0, 0.0],
        leaves=none,
    )
    assert ruler.row_length(1, 3) > 30.0 >= ruler.row_length(0, 3)
    assert cuts_within(ruler, 30.0) == []


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_even_cuts_make_rows_of_one_length(count):
    diagram, sizes = diagrams.chain(30)
    ruler = measure(make_draft(diagram, sizes, "lr"))
    bounds = [0, *even_cuts(ruler, count), 30]
    rows = [ruler.positions[stop] - ruler.positions[start] for start, stop in pairwise(bounds)]
    assert len(rows) == count
    assert max(rows) <= 1.3 * min(rows)


def test_a_row_is_broken_between_frames_rather_than_into_equal_parts():
    """Four stages before a repeat of nine: equal rows would cut the repeat."""
    build = diagrams.Builder()
    for _ in range(13):
        build.card()
    for node in range(12):
        build.arrow(node, node + 1)
    build.frame("fold", "blocks", range(4, 13))
    diagram, sizes = build.done()
    best = wrappings(make_draft(diagram, sizes, "lr"), LayoutOptions())[0]
    assert list(best.draft.plan.cuts) == [4]
    assert best.cut_cost == 0.0
