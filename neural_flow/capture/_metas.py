"""What a tensor is, as a record; also for tensors whose shape or storage cannot be asked for in the plain way."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from neural_flow.records import TensorMeta
from neural_flow.torch_private import no_subclass_function

RawMeta = tuple[Any, ...] | TensorMeta
"""Shape, dtype, device and requires_grad of a plain strided tensor, to become a TensorMeta later."""

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
_STRIDED = torch.strided


def raw_meta(tensor: torch.Tensor) -> RawMeta:
    """Return what ``tensor`` is, as fast as can be: a tuple of its own attributes for plain strided tensors."""
    if type(tensor) in _PLAIN and tensor.layout is _STRIDED and not tensor.is_nested:
        return (tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad)
    return tensor_meta(tensor)


def finished_meta(raw: RawMeta) -> TensorMeta:
    """Return the record for a raw meta."""
    return raw if isinstance(raw, TensorMeta) else _plain_meta(*raw)


@lru_cache(maxsize=4096)
def _plain_meta(shape: torch.Size, dtype: torch.dtype, device: torch.device, requires_grad: bool) -> TensorMeta:
    return TensorMeta(shape=tuple(shape), dtype=dtype_name(dtype), device=str(device), requires_grad=requires_grad)


@lru_cache(maxsize=64)
def dtype_name(dtype: torch.dtype) -> str:
    """Return ``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def tensor_meta(tensor: torch.Tensor) -> TensorMeta:
    """Return what ``tensor`` is: nested tensors by their padded shape, sparse ones by what they store."""
    if is_lazy(tensor):
        return TensorMeta(shape=(), dtype=dtype_name(tensor.dtype), requires_grad=tensor.requires_grad)
    with no_subclass_function():
        layout = str(tensor.layout).removeprefix("torch.")
        placements = getattr(tensor, "placements", None)
        return TensorMeta(
            shape=_shape(tensor),
            dtype=dtype_name(tensor.dtype),
            device=str(tensor.device),
            requires_grad=bool(tensor.requires_grad),
            placements=None if placements is None else str(placements),
            layout="nested" if tensor.is_nested else layout,
            stored_numel=_stored_numel(tensor, layout),
        )


def _shape(tensor: torch.Tensor) -> tuple[int, ...]:
    if tensor.layout is torch.jagged:
        ragged = getattr(tensor, "_ragged_idx", 1)
        return tuple(_longest(tensor) if axis == ragged else _size(size) for axis, size in enumerate(tensor.shape))
    if tensor.is_nested:
        parts = [tuple(part.shape) for part in tensor.unbind()]
        rank = max((len(part) for part in parts), default=0)
        return (len(parts), *(max(part[axis] for part in parts) for axis in range(rank)))
    return tuple(_size(size) for size in tensor.shape)


def _longest(jagged: Any) -> int:
    try:
        return max([0, *jagged.offsets().diff().tolist()])
    except Exception:  # offsets without data (fake or meta tensors)
        return 0


def _size(size: Any) -> int:
    try:
        return int(size)
    except Exception:  # a size that only running on real data could tell
        return 1


def _stored_numel(tensor: torch.Tensor, layout: str) -> int | None:
    if layout == "jagged":
        return int(tensor.values().numel())
    if tensor.is_nested:
        return sum(part.numel() for part in tensor.unbind())
    if layout == "sparse_coo":
        return int(tensor._values().numel())
    if layout.startswith("sparse_"):
        return int(tensor.values().numel())
    return None
