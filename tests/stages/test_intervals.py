"""Cutting an order into intervals: never more than asked, at the narrow places, never a cycle."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neural_flow.records import Request
from neural_flow.stages.intervals import cut_positions
from neural_flow.stages.select import select_stages


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5), st.booleans()), min_size=1, max_size=80),
    st.integers(1, 24),
)
def test_cuts_ascend_and_keep_the_budget(elements, budget):
    mass = [m for m, _, _ in elements]
    cuts = cut_positions(mass, [n for _, n, _ in elements], [c for _, _, c in elements], budget)
    assert len(cuts) < budget or (budget == 1 and not cuts)
    assert cuts == sorted(set(cuts))
    assert all(0 < cut < len(mass) for cut in cuts)


def test_cuts_fall_where_few_values_are_live():
    live = [0, 3, 3, 1, 3, 3, 1, 3, 3]
    assert cut_positions([1] * 9, live, [False] * 9, 3) == [3, 6]


def test_a_change_of_size_decides_a_tie():
    changes = [False, False, True, False, False, True, False, False, False]
    assert cut_positions([1] * 9, [1] * 9, changes, 3) == [2, 5]


@given(seed=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_intervals_of_a_random_graph_form_no_cycle(builder, seed):
    draw = random.Random(seed)
    b = builder()
    count = draw.randint(25, 70)
    with b.call("", "Net") as out:
        values = [b.input("x")]
        for k in range(count):
            picked = draw.sample(values, min(len(values), draw.randint(1, 3)))
            joined = b.op("torch.add", *picked) if len(picked) > 1 else picked[0]
            values.append(b.leaf(f"nodes.{k}", "Linear", joined, 8))
        out.append(values[-1])
    trace = b.finish(out[0])
    selection = select_stages(trace, Request())
    # every value flows forward in call order: intervals that do not interleave cannot form a cycle
    for fold in selection.folds:
        if fold.kind == "interval":
            (ids,) = fold.members
            assert ids == tuple(range(ids[0], ids[-1] + 1))
