"""Cut a tensor out of its memory, so that a view never drags its whole storage along, and lay it out again as it was.

A strided tensor is stored as one flat piece of memory. Where its elements lie densely (also transposed, channels last,
expanded or overlapping), this is the span from its first to its last element; where they lie with gaps, the elements
alone. Strides, offset-free, and the conjugate and negative bits come back; gaps come back with arbitrary content, which
nothing can read through the tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import nn

from neural_flow.saved_tensors._storages import storages_of
from neural_flow.torch_private import neg_view, wrapped_tensors


class CannotStoreError(Exception):
    """This kind of tensor cannot be stored and read again as it was."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a stored piece becomes the tensor again."""

    shape: tuple[int, ...]
    stride: tuple[int, ...] | None
    span: int
    has_gaps: bool
    is_conj: bool
    is_neg: bool


def check_storable(tensor: torch.Tensor) -> None:
    """Refuse what has no memory of its own or cannot be read again.

    Raises:
        CannotStoreError: a subclass, a tensor without memory (meta, fake, inside a function transform), or opaque.
    """
    if type(tensor) not in (torch.Tensor, nn.Parameter):
        raise CannotStoreError(f"a {type(tensor).__name__} is a subclass of Tensor")
    if tensor.device.type == "meta":
        raise CannotStoreError("a tensor on the meta device has no memory")
    if wrapped_tensors(tensor):
        raise CannotStoreError("a tensor inside a function transform has no memory of its own")
    if not storages_of(tensor):
        raise CannotStoreError(f"the memory of a tensor of layout {tensor.layout} is opaque")


def cut_out(tensor: torch.Tensor) -> tuple[torch.Tensor, Form]:
    """Return a tensor that owns or wholly covers its memory, and how to make ``tensor`` from it again.

    Where ``tensor`` covers its storage, nothing is copied: the piece is an alias.

    Raises:
        CannotStoreError: see ``check_storable``.
    """
    check_storable(tensor)
    try:
        return _cut_out(tensor.detach())
    except (NotImplementedError, RuntimeError) as error:  # a dtype or layout that cannot be copied
        raise CannotStoreError(f"a tensor of {tensor.dtype} and layout {tensor.layout} cannot be copied") from error


def _cut_out(tensor: torch.Tensor) -> tuple[torch.Tensor, Form]:
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        return tensor.clone(), Form((), None, 0, False, False, False)
    is_conj, is_neg = tensor.is_conj(), tensor.is_neg()
    if is_conj:
        tensor = tensor.conj()
    if is_neg:
        tensor = neg_view(tensor)
    shape, stride = tuple(tensor.shape), tuple(tensor.stride())
    stored_shape = _stored_shape(shape, stride)
    span = _span(stored_shape, stride)
    has_gaps = span > prod(stored_shape)
    form = Form(shape, stride, span, has_gaps, is_conj, is_neg)
    if has_gaps:
        piece = tensor.as_strided(stored_shape, stride).clone(memory_format=torch.contiguous_format)
        return piece, form
    piece = tensor.as_strided((span,), (1,))
    is_whole = piece.untyped_storage().nbytes() == span * piece.element_size()
    return piece if is_whole else piece.clone(), form


def lay_out(piece: torch.Tensor, form: Form) -> torch.Tensor:
    """Return the tensor that ``cut_out`` was given, in the memory of ``piece`` where that is possible."""
    if form.stride is None:
        return piece
    if form.has_gaps:
        memory = torch.empty(form.span, dtype=piece.dtype, device=piece.device)
        memory.as_strided(piece.shape, form.stride).copy_(piece)
        piece = memory
    tensor = piece.as_strided(form.shape, form.stride)
    if form.is_neg:
        tensor = neg_view(tensor)
    return tensor.conj() if form.is_conj else tensor


def _stored_shape(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...]:
    """Return ``shape`` with expanded axes, whose elements are all the same one, as 1."""
    return tuple(1 if step == 0 and size > 1 else size for size, step in zip(shape, stride, strict=True))


def _span(shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
