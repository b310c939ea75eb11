"""Overlap and cover of views, against an oracle that lists the bytes of each view."""

import itertools

import numpy as np
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from neural_flow.capture._overlap import Region, do_fill, do_overlap, does_cover, region_of, regions_along
from neural_flow.capture._write_set import WriteSet, overlaps


def bytes_of(tensor: torch.Tensor) -> set[int]:
    item = tensor.element_size()
    covered: set[int] = set()
    for index in itertools.product(*(range(size) for size in tensor.shape)):
        element = tensor.storage_offset() + sum(i * s for i, s in zip(index, tensor.stride(), strict=True))
        covered.update(range(element * item, (element + 1) * item))
    return covered


@st.composite
def slices(draw: st.DrawFn, base: torch.Tensor, steps: tuple[int, ...] = (1,)) -> torch.Tensor:
    """A view by plain indices: ints, slices, steps and transposes."""
    view = base
    index: list[int | slice] = []
    for size in base.shape:
        if draw(st.integers(0, 3)) == 0:
            index.append(draw(st.integers(0, size - 1)))
        else:
            start = draw(st.integers(0, size - 1))
            index.append(slice(start, draw(st.integers(start + 1, size)), draw(st.sampled_from(steps))))
    view = view[tuple(index)]
    return view.transpose(0, 1) if view.dim() >= 2 and draw(st.booleans()) else view


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_overlap_of_plain_slices_is_exact(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([torch.uint8, torch.float32, torch.float64]))
    base = torch.zeros(3, 4, 5, dtype=dtype)
    one, two = data.draw(slices(base)), data.draw(slices(base))
    first, second = bytes_of(one), bytes_of(two)
    assert do_overlap(region_of(one), region_of(two)) == bool(first & second)
    if does_cover(region_of(one), region_of(two)):
        assert second <= first


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_overlap_never_misses_and_cover_never_invents(data: st.DataObject) -> None:
    base = torch.zeros(4, 6, 4)
    views = [
        data.draw(
            st.one_of(
                slices(base, steps=(1, 2, 3)),
                slices(base.view(12, 8), steps=(1, 2)),
                slices(base.view(torch.uint8), steps=(1, 4)),
                st.just(base.view(-1)),
                st.just(base[0, 0].expand(3, 4)),
            )
        )
        for _ in range(2)
    ]
    first, second = map(bytes_of, views)
    one, two = map(region_of, views)
    if first & second:
        assert do_overlap(one, two)
    if does_cover(one, two):
        assert second <= first


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_parts_fill_a_view_where_their_bytes_add_up(data: st.DataObject) -> None:
    base = torch.zeros(4, 6)
    rows, columns = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5))
    corners = [base[:rows, :columns], base[rows:, :columns], base[:rows, columns:], base[rows:, columns:]]
    parts = data.draw(st.lists(st.one_of(st.sampled_from(corners), slices(base)), max_size=5))
    whole = data.draw(st.one_of(st.just(base), slices(base)))
    parts = [part for part in parts if bytes_of(part) & bytes_of(whole)]
    covered: set[int] = set().union(*map(bytes_of, parts))
    is_disjoint = sum(len(bytes_of(part)) for part in parts) == len(covered)
    is_filled = do_fill([region_of(part) for part in parts], region_of(whole))
    assert is_filled == (is_disjoint and bytes_of(whole) <= covered)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_dense_view_covers_what_lies_in_it(data: st.DataObject) -> None:
    base = torch.zeros(4, 6)
    rows = data.draw(st.integers(0, 3))
    whole = base[rows:]
    part = data.draw(slices(base))
    assume(bytes_of(part) <= bytes_of(whole))
    assert does_cover(region_of(whole), region_of(part))


def test_empty_views_overlap_nothing() -> None:
    base = torch.zeros(4, 6)
    assert not do_overlap(region_of(base[:0]), region_of(base))
    assert does_cover(region_of(base), region_of(base[:, :0]))


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_parts_along_a_dimension_have_the_bytes_of_slices(data: st.DataObject) -> None:
    view = data.draw(slices(torch.zeros(4, 5, 6)))
    assume(view.dim() > 0)
    dim = data.draw(st.integers(0, view.dim() - 1))
    sizes: list[int] = []
    while sum(sizes) < view.shape[dim]:
        sizes.append(data.draw(st.integers(0, view.shape[dim] - sum(sizes))))
    assert regions_along(view, dim, sizes) == [region_of(part) for part in view.split(sizes, dim)]


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_many_views_at_once_are_decided_as_one_by_one(data: st.DataObject) -> None:
    base = torch.zeros(4, 6, 5)
    views = data.draw(st.lists(slices(base, steps=(1, 2)), min_size=1, max_size=30))
    other = region_of(data.draw(st.one_of(slices(base, steps=(1, 2, 3)), st.just(base.view(-1)))))
    by_shape: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for region in map(region_of, views):
        by_shape.setdefault(region.dims, []).append(region.start)
    for dims, starts in by_shape.items():
        extent = 1 + sum(stride * (size - 1) for stride, size in dims)
        single = [do_overlap(Region(start, start + extent, False, dims), other) for start in starts]
        assert overlaps(np.array(starts), dims, other).tolist() == single


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_set_of_many_writes_answers_like_a_list(data: st.DataObject) -> None:
    base = torch.zeros(6, 8)
    writes = WriteSet()
    every: list[tuple[tuple[int, int], Region]] = []
    for number in range(data.draw(st.integers(1, 60))):
        region = region_of(data.draw(slices(base)))
        writes.add((number, 0), region)
        every.append(((number, 0), region))
        assert set(writes) <= set(every)
        assert list(writes)[-1] == every[-1]
    other = region_of(data.draw(slices(base)))

    def visible(found: list[tuple[tuple[int, int], Region]]) -> list[tuple[tuple[int, int], Region]]:
        """The writes that no later one covers."""
        return [one for k, one in enumerate(found) if not any(does_cover(later[1], one[1]) for later in found[k + 1 :])]

    near = visible(writes.overlapping(other))
    assert near == [write for write in visible(every) if do_overlap(write[1], other)]
