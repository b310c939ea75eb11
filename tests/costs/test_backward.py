"""The replay of backward: small graphs whose peaks can be counted by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neural_flow.costs._backward import GraphNode, Step, peak_nbytes


def chain(sizes, saved):
    """Return a chain of nodes, the loss first: node k is given ``sizes[k]`` bytes and saved storage k."""
    length = len(sizes)
    nodes = tuple(
        GraphNode(
            name="Mul",
            sequence=length - index,
            stage_id=index,
            saved=(index,),
            loads={index: saved[index]},
            inputs=(sizes[index],),
            following=((index + 1, 0),) if index + 1 < length else (),
        )
        for index in range(length)
    )
    return Step(nodes=nodes, storages=dict(enumerate(saved)))


def test_chain_by_hand():
    step = chain([4, 100, 50], [10, 20, 30])
    # at the first node: saved 60, its own gradient 4, the next one 100
    # at the second: saved 50, 100 and 50 -> 200
    assert peak_nbytes(step) == 200


def test_offloaded_memory_is_there_only_for_its_node():
    step = chain([4, 100, 50], [1000, 1000, 1000])
    assert peak_nbytes(step) > 3000
    assert peak_nbytes(step, offloaded={0, 1, 2}) == 1150


def test_recomputed_memory_comes_when_backward_enters_its_stage():
    step = chain([4, 4, 4], [0, 1000, 2000])
    assert peak_nbytes(step) == 3008
    assert peak_nbytes(step, recomputed={1: {1}}, extra={7: 5}) == 3013
    assert peak_nbytes(step, recomputed={2: {2}}) == 2004


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=12))
def test_peak_of_a_chain_equals_a_plain_loop(pairs):
    sizes, saved = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    live = sum(saved)
    expected = live + sizes[0]
    for index in range(len(pairs)):
        following = sizes[index + 1] if index + 1 < len(pairs) else 0
        expected = max(expected, live + sizes[index] + following)
        live -= saved[index]
    assert peak_nbytes(chain(sizes, saved)) == max(expected, forward_peak(sizes, saved))


def forward_peak(sizes, saved):
    """Return the peak of a forward along the chain: saved memory grows, results live until the next one is there."""
    live = peak = 0
    waiting = 0
    for index in reversed(range(len(sizes))):
        live += saved[index]
        previous = saved[index - 1] if index else None
        is_saved = sizes[index] == previous
        own = 0 if is_saved else sizes[index]
        peak = max(peak, live + waiting + own)
        waiting = own
    return peak


@given(
    st.lists(st.tuples(st.integers(1, 99), st.integers(1, 99)), min_size=1, max_size=12), st.sets(st.integers(0, 11))
)
def test_doing_something_never_costs_more_than_it_can(pairs, chosen):
    sizes, saved = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    step = chain(sizes, saved)
    chosen = {one for one in chosen if one < len(pairs)}
    largest = max(saved) + 2 * max(sizes)
    assert peak_nbytes(step, offloaded=chosen) <= peak_nbytes(step) + largest
    assert peak_nbytes(step, offloaded=set(range(len(pairs)))) <= largest + max(sizes)
