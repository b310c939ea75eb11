"""Statistics of a whole tensor in one cheap sweep, exact where cheap sums would cancel or overflow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd, inf, isfinite, sqrt

import numpy as np
import torch

from neural_flow.records import TensorStats

_CHUNK_ON_CPU = 1 << 18  # a megabyte of float32: the four sums over a chunk find it in the cache
_CHUNK_ELSEWHERE = 1 << 24  # fewer, larger chunks: each costs a synchronisation
_BLOCK = 4096  # float32 sums of so few values keep seven digits; blocks are summed in float64
_MIN_BLOCK = 512  # shorter ones make more of them than a remainder costs
_TINY_SQUARE = 1e-30  # squares of smaller values vanish in float32
_CANCELLED = 0.3  # below this share of the mean square, a variance has lost the sixth digit


_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


@dataclass(slots=True)
class _Sums:
    count: int = 0
    total: float = 0.0
    square: float = 0.0
    low: float = inf
    high: float = -inf
    num_zeros: int = 0
    num_nan: int = 0
    num_inf: int = 0


def tensor_stats(tensor: torch.Tensor) -> TensorStats | None:
    """Return statistics over the finite values of ``tensor``; None where it has no values (meta, fake).

    Complex values count by magnitude, booleans as 0 and 1. Elements that a sparse tensor does not store count as
    zeros. The tensor may have any dtype, layout and device, and is not modified. No temporary is larger than a few
    megabytes on the CPU.
    """
    if tensor.is_meta or type(tensor).__name__ == "FakeTensor":
        return None
    with torch.no_grad():
        parts, num_implicit_zeros = _strided_parts(tensor.detach())
        sums = _Sums()
        for part in parts:
            for chunk in _chunks(part):
                _add(sums, chunk)
        if num_implicit_zeros:
            sums.count += num_implicit_zeros
            sums.num_zeros += num_implicit_zeros
            sums.low, sums.high = min(sums.low, 0.0), max(sums.high, 0.0)
        return _finish(sums, parts, num_implicit_zeros)


def num_not_finite(tensor: torch.Tensor) -> tuple[int, int]:
    """Return how many values are NaN and how many infinite, for less than all statistics cost."""
    if tensor.is_meta or not (tensor.is_floating_point() or tensor.is_complex()):
        return 0, 0
    num_nan = num_inf = 0
    with torch.no_grad():
        for part in _strided_parts(tensor.detach())[0]:
            for chunk in _chunks(part):
                if not isfinite(float(chunk.sum())):
                    num_nan += int(torch.isnan(chunk).sum())
                    num_inf += int(torch.isinf(chunk).sum())
    return num_nan, num_inf


def _finish(sums: _Sums, parts: list[torch.Tensor], num_implicit_zeros: int) -> TensorStats:
    num_values = sums.count + sums.num_nan + sums.num_inf
    zero_fraction = sums.num_zeros / num_values if num_values else 0.0
    if sums.count == 0:
        return TensorStats(
            mean=None,
            std=None,
            min=None,
            max=None,
            zero_fraction=zero_fraction,
            num_nan=sums.num_nan,
            num_inf=sums.num_inf,
        )
    mean = sums.total / sums.count
    mean_square = sums.square / sums.count
    variance = mean_square - mean * mean
    std = sqrt(max(variance, 0.0)) if isfinite(variance) else inf
    if sums.low == sums.high:
        mean, std = sums.low, 0.0
    elif not isfinite(mean_square) or not isfinite(mean) or mean_square < _TINY_SQUARE:
        mean, std = _scaled_moments(parts, sums, num_implicit_zeros)
    elif variance < _CANCELLED * mean_square:
        mean, std = _shifted_moments(parts, sums, mean, num_implicit_zeros)
    return TensorStats(
        mean=mean,
        std=std,
        min=sums.low,
        max=sums.high,
        zero_fraction=zero_fraction,
        num_nan=sums.num_nan,
        num_inf=sums.num_inf,
    )


def _strided_parts(tensor: torch.Tensor) -> tuple[list[torch.Tensor], int]:
    """Return the stored values as strided tensors, and how many elements are zero without being stored."""
    if type(tensor) in _PLAIN and tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_quantized:
        return [tensor], 0
    if (to_local := getattr(tensor, "to_local", None)) is not None:
        tensor = to_local()
    if tensor.is_nested:
        return list(tensor.unbind()), 0
    if tensor.is_quantized:
        return [tensor.dequantize()], 0
    if tensor.layout == torch.strided:
        return [tensor], 0
    if tensor.is_sparse:
        values = tensor.coalesce().values()
    elif tensor.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        values = tensor.values()
    else:
        return [tensor.to_dense()], 0
    return [values], tensor.numel() - values.numel()


def _chunks(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield real, floating, flat pieces that together hold every element once; at most a chunk is copied."""
    limit = _CHUNK_ON_CPU if tensor.device.type == "cpu" else _CHUNK_ELSEWHERE
    num_values = tensor.numel()
    if num_values == 0:
        return
    if num_values <= limit and tensor.is_contiguous():
        yield _as_real(tensor.view(-1))
        return
    order = sorted(range(tensor.dim()), key=lambda dim: -tensor.stride(dim))
    ordered = tensor.permute(order)  # channels-last and transposed tensors become one row without a copy
    if ordered.is_contiguous():
        ordered = ordered.view(-1)
    if ordered.numel() <= limit:
        yield _as_real(ordered.reshape(-1))
        return
    longest = max(range(ordered.dim()), key=lambda dim: ordered.shape[dim])
    per_slice = ordered.numel() // ordered.shape[longest]
    if per_slice > limit:
        for piece in ordered.unbind(longest):
            yield from _chunks(piece)
    else:
        for piece in ordered.split(max(1, limit // per_slice), longest):
            yield _as_real(piece.reshape(-1))


def _as_real(chunk: torch.Tensor) -> torch.Tensor:
    if chunk.is_complex():
        return _as_real(chunk.abs() if chunk.dtype != torch.complex32 else chunk.to(torch.complex64).abs())
    if chunk.dtype in (torch.float32, torch.float64):
        return chunk
    return chunk.to(torch.float32 if chunk.is_floating_point() else torch.float64)


def _add(sums: _Sums, chunk: torch.Tensor) -> None:
    low, high = _ends(chunk)  # NaN if any value is
    if not (isfinite(low) and isfinite(high)):
        sums.num_nan += int(torch.isnan(chunk).sum())
        sums.num_inf += int(torch.isinf(chunk).sum())
        chunk = _finite(chunk)
        if chunk.numel() == 0:
            return
        low, high = _ends(chunk)
    sums.count += chunk.numel()
    sums.low, sums.high = min(sums.low, low), max(sums.high, high)
    total, square = _sum_and_square(chunk)
    sums.total += total
    sums.square += square
    if low <= 0 <= high:
        sums.num_zeros += chunk.numel() - _num_nonzero(chunk)


def _num_nonzero(chunk: torch.Tensor) -> int:
    is_nonzero = chunk.bool()  # much faster than to compare with zero, and counting it than count_nonzero
    if chunk.device.type == "cpu":
        return int(np.count_nonzero(is_nonzero.numpy()))
    return int(is_nonzero.sum().item())


def _ends(chunk: torch.Tensor) -> tuple[float, float]:
    return chunk.amin().item(), chunk.amax().item()  # together faster than aminmax


def _shifted_moments(
    parts: list[torch.Tensor], sums: _Sums, shift: float, num_implicit_zeros: int
) -> tuple[float, float]:
    """Return mean and std by a second sweep over the distances from ``shift``, which is near the mean."""
    shift = float(torch.tensor(shift, dtype=torch.float32))  # else each distance would be rounded
    total, square = -shift * num_implicit_zeros, shift * shift * num_implicit_zeros
    for part in parts:
        for chunk in _chunks(part):
            distances = (_finite(chunk) if sums.num_nan or sums.num_inf else chunk) - shift
            part_total, part_square = _sum_and_square(distances)
            total += part_total
            square += part_square
    offset = total / sums.count
    return shift + offset, sqrt(max(square / sums.count - offset * offset, 0.0))


def _scaled_moments(parts: list[torch.Tensor], sums: _Sums, num_implicit_zeros: int) -> tuple[float, float]:
    """Return mean and std by two sweeps in float64, scaled so that no square overflows or vanishes."""
    scale = max(abs(sums.low), abs(sums.high))
    if scale == 0:
        return 0.0, 0.0

    def sweep(shift: float, power: int) -> float:
        total = num_implicit_zeros * (0.0 - shift) ** power
        for part in parts:
            for chunk in _chunks(part):
                total += float((_finite(chunk).double() / scale - shift).pow_(power).sum())
        return total

    mean = sweep(0.0, 1) / sums.count
    return mean * scale, sqrt(sweep(mean, 2) / sums.count) * scale


def _finite(chunk: torch.Tensor) -> torch.Tensor:
    return chunk[torch.isfinite(chunk)]


def _sum_and_square(flat: torch.Tensor) -> tuple[float, float]:
    """Return the sum of the values and of their squares: by float32 over blocks, by float64 over these."""
    count = flat.numel()
    block = gcd(count, _BLOCK)
    if block < _MIN_BLOCK:
        block = _BLOCK
    whole = count // block * block
    total = square = 0.0
    if whole:
        rows = (flat if whole == count else flat[:whole]).view(-1, block)
        # lists of so few numbers are summed faster than another three tensor functions are called
        total = sum(rows.sum(dim=1).tolist())
        square = sum([norm * norm for norm in torch.linalg.vector_norm(rows, dim=1).tolist()])
    if whole < count:
        rest = flat[whole:] if whole else flat
        norm = torch.linalg.vector_norm(rest).item()
        total += rest.sum().item()
        square += norm * norm
    return total, square
