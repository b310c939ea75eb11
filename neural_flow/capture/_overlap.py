"""Which bytes of a storage a view covers, and whether two views overlap: decided exactly where strides allow it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import torch


class Region(NamedTuple):
    """The bytes of one view. ``dims`` are (stride in bytes, size), large strides first; ``end`` is exclusive."""

    start: int
    end: int
    is_dense: bool
    dims: tuple[tuple[int, int], ...]


def region_of(tensor: torch.Tensor) -> Region:
    """Return the bytes of its storage that ``tensor`` covers.

    Raises:
        RuntimeError: the tensor has no strides or no storage (sparse, nested, wrapped by a function transform).
    """
    return _region(tensor, tuple(tensor.shape), 0)


def regions_along(tensor: torch.Tensor, dim: int, sizes: Sequence[int]) -> list[Region]:
    """Return the bytes of the parts that lie one after the other along ``dim``.

    Raises:
        RuntimeError: as ``region_of``.
    """
    found: list[Region] = []
    start = 0
    for size in sizes:
        found.append(_region(tensor, (*tensor.shape[:dim], size, *tensor.shape[dim + 1 :]), start * tensor.stride(dim)))
        start += size
    return found


def _region(tensor: torch.Tensor, shape: tuple[int, ...], offset: int) -> Region:
    item = tensor.element_size()
    dims = [
        (int(stride) * item, int(size))
        for stride, size in zip(tensor.stride(), shape, strict=True)
        if size != 1 and stride != 0
    ]
    start = (int(tensor.storage_offset()) + offset) * item
    if any(size == 0 for size in shape):
        return Region(start, start, True, ())
    if item > 1:
        dims.append((1, item))
    dims.sort(reverse=True)
    num_bytes = 1
    extent = 1
    for stride, size in dims:
        num_bytes *= size
        extent += stride * (size - 1)
    return Region(start, start + extent, num_bytes == extent, tuple(dims))


def do_overlap(first: Region, second: Region) -> bool:
    """Return whether two views of one storage share a byte; where strides leave it open, the answer is yes."""
    if first.start >= second.end or second.start >= first.end:
        return False
    boxes = _boxes(first, second)
    if boxes is None:
        return True
    return all(a < b + m and b < a + n for (a, n), (b, m) in zip(*boxes, strict=True))


def do_fill(parts: Sequence[Region], whole: Region) -> bool:
    """Return whether disjoint ``parts`` together hold every byte of ``whole``; where it is left open, no."""
    num_bytes = 0
    for index, part in enumerate(parts):
        boxes = _boxes(part, whole)
        if boxes is None or any(do_overlap(part, other) for other in parts[:index]):
            return False
        num_bytes += prod(min(a + n, b + m) - max(a, b) for (a, n), (b, m) in zip(*boxes, strict=True))
    return num_bytes == prod(size for _, size in whole.dims)


def does_cover(outer: Region, inner: Region) -> bool:
    """Return whether every byte of ``inner`` is in ``outer``; where strides leave it open, the answer is no."""
    if inner.start < outer.start or inner.end > outer.end:
        return False
    if outer.is_dense:
        return True
    boxes = _boxes(outer, inner)
    if boxes is None:
        return False
    return all(a <= b and b + m <= a + n for (a, n), (b, m) in zip(*boxes, strict=True))


_Box = list[tuple[int, int]]


def _boxes(first: Region, second: Region) -> tuple[_Box, _Box] | None:
    """Return both views as index boxes (start, size) over one common set of strides, or None where they have none."""
    strides = sorted({stride for stride, _ in (*first.dims, *second.dims)} | {1}, reverse=True)
    if any(large % small for large, small in itertools.pairwise(strides)):
        return None
    # coordinates counted from the storage can wrap where those counted from the earlier view do not, and vice versa
    for origin in (0, min(first.start, second.start)):
        one = _box(first, strides, origin)
        two = _box(second, strides, origin)
        if one is not None and two is not None:
            return one, two
    return None


def _box(region: Region, strides: list[int], origin: int) -> _Box | None:
    sizes: dict[int, int] = {}
    for stride, size in region.dims:
        if stride in sizes:
            return None
        sizes[stride] = size
    rest = region.start - origin
    box: _Box = []
    above = 0
    for stride in strides:
        index, rest = divmod(rest, stride)
        size = sizes.get(stride, 1)
        if above and index + size > above // stride:
            return None
        box.append((index, size))
        above = stride
    return box
