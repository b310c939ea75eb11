"""The writes to one storage, in order, with a fast way to those that overlap a view.

A buffer filled in a loop has one write a step, and each step may read it: looked at one by one, that is quadratic.
Writes of one shape differ in where they start only, so a whole row of them is compared with a view at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from neural_flow.capture._overlap import Region, do_overlap, does_cover
from neural_flow.records import ValueRef

_FEW = 16
_Ints = np.ndarray[Any, np.dtype[np.int64]]
_Bools = np.ndarray[Any, np.dtype[np.bool_]]


class WriteSet:
    """Values written and where, oldest first."""

    __slots__ = ("_count", "_entries", "_places", "_shapes")

    def __init__(self) -> None:
        self._count = 0
        self._entries: dict[int, tuple[ValueRef, Region]] = {}
        self._places: dict[tuple[tuple[tuple[int, int], ...], int], int] = {}
        self._shapes: dict[tuple[tuple[int, int], ...], dict[int, int]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[ValueRef, Region]]:
        return iter(self._entries.values())

    def add(self, ref: ValueRef, region: Region) -> None:
        """Add a write. Of older ones that it covers, those of the same place are forgotten at once, others in time."""
        if region.start == region.end:
            return
        number, self._count = self._count, self._count + 1
        same = self._places.pop((region.dims, region.start), None)
        if same is not None:
            self._forget(same)
        if len(self._entries) <= _FEW or number % _FEW == 0:
            for old in self._near(region):
                if does_cover(region, self._entries[old][1]):
                    self._forget(old)
        self._entries[number] = (ref, region)
        self._shapes.setdefault(region.dims, {})[number] = region.start
        self._places[region.dims, region.start] = number

    def _forget(self, number: int) -> None:
        region = self._entries.pop(number)[1]
        del self._shapes[region.dims][number]
        self._places.pop((region.dims, region.start), None)

    def overlapping(self, region: Region) -> list[tuple[ValueRef, Region]]:
        """Return the writes that share a byte with ``region``, oldest first."""
        return [self._entries[number] for number in self._near(region)]

    def _near(self, region: Region) -> list[int]:
        if len(self._entries) <= _FEW:
            return [number for number, (_, written) in self._entries.items() if do_overlap(written, region)]
        found: list[int] = []
        for dims, starts in self._shapes.items():
            if starts:
                mask = overlaps(np.fromiter(starts.values(), np.int64, len(starts)), dims, region)
                found += np.fromiter(starts, np.int64, len(starts))[mask].tolist()
        return sorted(found)


def overlaps(starts: _Ints, dims: tuple[tuple[int, int], ...], region: Region) -> _Bools:
    """Return ``do_overlap`` of ``region`` with views of one shape that start at ``starts``.

    Args:
        starts: where each view starts, in bytes.
        dims: stride and size of each dimension of all of them.
        region: the other view.
    """
    extent = 1 + sum(stride * (size - 1) for stride, size in dims)
    undecided: _Bools = (starts < region.end) & (starts + extent > region.start)
    first, second = dict(dims), dict(region.dims)
    strides = sorted({*first, *second, 1}, reverse=True)
    has_boxes = len(first) == len(dims) and len(second) == len(region.dims)
    if not has_boxes or any(large % small for large, small in itertools.pairwise(strides)):
        return undecided
    found: _Bools = np.zeros(len(starts), np.bool_)
    for origin in (np.zeros_like(starts), np.minimum(starts, region.start)):
        rests = (starts - origin, region.start - origin)
        is_box, do_meet = undecided.copy(), undecided.copy()
        above = 0
        for stride in strides:
            a, b = rests[0] // stride, rests[1] // stride
            rests = (rests[0] - a * stride, rests[1] - b * stride)
            n, m = first.get(stride, 1), second.get(stride, 1)
            if above:
                is_box &= (a + n <= above // stride) & (b + m <= above // stride)
            do_meet &= (a < b + m) & (b < a + n)
            above = stride
        found |= is_box & do_meet
        undecided &= ~is_box
    return found | undecided
