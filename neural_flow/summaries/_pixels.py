"""From values to pixels: ranges, quantising, shrinking. Runs inside forward hooks, so everything here is cheap."""

from __future__ import annotations

from typing import Any

import torch

MAX_INDEX = 252
"""Indices 0 … 252 are values; the even count of steps gives zero an index of its own in signed maps."""
NEGATIVE_INFINITY, POSITIVE_INFINITY, NOT_A_NUMBER = 253, 254, 255

_MIN_NEGATIVE = 0.1
_MAX_SORTED = 1024  # a stable sort of more values takes ten times as long as finding the largest
_MAX_RANKED = 8192
"""Values a plane from which its percentiles are read: the 99th is then within ±0.2 percentiles (two sigma)."""


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` as float32, or as float64 where it holds more than float32 can; complex by magnitude."""
    if tensor.is_complex():
        return as_real(tensor.abs())
    if tensor.dtype in (torch.float32, torch.float64):
        return tensor
    return tensor.to(torch.float64 if tensor.dtype in (torch.int32, torch.int64) else torch.float32)


def shrink(planes: torch.Tensor, max_side: int) -> torch.Tensor:
    """Return ``[P, H, W]`` float planes averaged down so that no side is longer than ``max_side`` pixels."""
    height, width = planes.shape[-2:]
    rows, columns = min(height, max_side), min(width, max_side)
    if max(height, width) > max_side and 1 / 3 < height / width < 3:  # one factor for both keeps the aspect
        factor = max_side / max(height, width)
        rows, columns = max(1, round(height * factor)), max(1, round(width * factor))
    if (rows, columns) == (height, width):
        return planes
    return torch.nn.functional.adaptive_avg_pool2d(planes, (rows, columns))


def largest(values: torch.Tensor, count: int) -> torch.Tensor:
    """Return the indices of the ``count`` largest of ``[K]`` values, largest first, ties by index; none may be NaN."""
    if values.numel() <= _MAX_SORTED or count >= values.numel():
        return torch.sort(values, descending=True, stable=True).indices[:count]
    # topk breaks ties anyhow, so it only says which values take part
    places = (values >= values.topk(count).values[-1]).nonzero().flatten()
    return places[torch.sort(values[places], descending=True, stable=True).indices[:count]]


def is_signed(planes: torch.Tensor) -> bool:
    """Return whether the values want a diverging map: at least 2 % below zero, and not only a little.

    Activations that let a little through below zero (leaky, smooth) would use half of a diverging map for nothing: in
    a sequential one, which starts at the first percentile, their negative values show as well.
    """
    if planes.numel() == 0:
        return False
    low, high = (float(value) for value in torch.aminmax(planes))
    if low != low or low == -torch.inf or high == torch.inf:  # aminmax hands NaN on
        return is_signed(planes[torch.isfinite(planes)])
    if low >= 0 or low >= -1e-6 * max(-low, high):
        return False
    if float((planes < 0).sum()) < 0.02 * planes.numel():
        return False
    least, most = _percentiles(_thin(planes.reshape(1, -1)))
    return float(-least) >= _MIN_NEGATIVE * float(most)


def value_range(planes: torch.Tensor, signed: bool, norm: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return low and high of each of the ``[P, ...]`` planes: percentiles 1 and 99 of the finite values.

    A signed range is symmetric: ± the 99th percentile of the magnitude. Unless ``norm`` is ``channel`` the planes
    share one range.
    """
    rows = planes.flatten(1) if norm == "channel" else planes.reshape(1, -1)
    rows = _thin(rows).abs() if signed else _thin(rows)
    if _all_finite(rows):
        low, high = _percentiles(rows)
    else:
        pairs = [_percentiles(row[torch.isfinite(row)][None]) for row in rows]
        low, high = (torch.cat(ends) for ends in zip(*pairs, strict=True))
    if signed:
        low = -high
    num_planes = planes.shape[0]
    return low.expand(num_planes), high.expand(num_planes)


def _thin(rows: torch.Tensor) -> torch.Tensor:
    step = -(-rows.shape[1] // _MAX_RANKED)
    if step < 2:
        return rows
    return rows[:, :: step | 1]  # an odd step meets every column of a map whose width is a power of two


def _percentiles(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    count = rows.shape[1]
    if count == 0:
        zero = rows.new_zeros(rows.shape[0])
        return zero, zero
    num_beyond = 1 + round(0.01 * (count - 1))
    # the ends of a row by topk: five times faster than kthvalue, ten times faster than a sort
    low = rows.topk(num_beyond, dim=1, largest=False, sorted=False).values.amax(dim=1)
    high = rows.topk(num_beyond, dim=1, sorted=False).values.amin(dim=1)
    # a map that is zero but for a few bright spots still shows them
    flat = high <= low
    if bool(flat.any()):
        least, most = torch.aminmax(rows, dim=1)
        low, high = torch.where(flat, least, low), torch.where(flat, most, high)
    return low, high


def _all_finite(values: torch.Tensor) -> bool:
    return bool(torch.isfinite(values.sum())) or bool(torch.isfinite(values).all())


def quantise(planes: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Return uint8 indices of ``[P, ...]`` planes for ranges ``[P]``; what is not finite gets an index of its own.

    Values outside the range take its end. A plane whose range is empty takes the middle.
    """
    shape = (-1, *[1] * (planes.dim() - 1))
    scale = (MAX_INDEX / (high.double() - low.double())).to(planes.dtype)
    is_empty = ~((scale > 0) & (scale < torch.inf))  # also a span so small that its inverse is infinite
    indices = (planes - low.reshape(shape)).mul_(torch.where(is_empty, 0.0, scale).reshape(shape))
    if bool(is_empty.any()):
        indices = torch.where(is_empty.reshape(shape), MAX_INDEX / 2, indices)
    if _all_finite(planes):
        return indices.clamp_(0, MAX_INDEX).round_().to(torch.uint8)
    indices = indices.nan_to_num(0.0).clamp_(0, MAX_INDEX).round_()
    indices[torch.isnan(planes)] = NOT_A_NUMBER
    indices[planes == torch.inf] = POSITIVE_INFINITY
    indices[planes == -torch.inf] = NEGATIVE_INFINITY
    return indices.to(torch.uint8)


def to_indices(planes: torch.Tensor, norm: str, *, is_grey: bool = False) -> tuple[torch.Tensor, dict[str, Any]]:
    """Return ``[P, H, W]`` real planes as uint8 indices, and the facts that say what the indices mean.

    Grey planes are inputs: they have no sign that a colour could show.
    """
    signed = not is_grey and is_signed(planes)
    low, high = value_range(planes, signed, norm)
    sign = {"is_grey": True} if is_grey else {"is_signed": signed}
    return quantise(planes, low, high), {**sign, "low": tuple(low.tolist()), "high": tuple(high.tolist())}
