"""From a tensor as a model made it to a summary's arrays: densify, take the sample, choose the kind, reduce."""

from __future__ import annotations

from typing import Any

import torch

from neural_flow.summaries._base import SUMMARIES, NoPicture, SummaryContext, choose

_MAX_DENSE = 1 << 24


def summarise(tensor: torch.Tensor, context: SummaryContext) -> tuple[str, dict[str, torch.Tensor], dict[str, Any]]:
    """Return (kind, arrays, facts) of ``tensor``, which is neither modified nor kept.

    Args:
        tensor: any dtype, layout and device.
        context: what is known besides the values.

    Raises:
        NoPicture: the tensor has no values (meta or fake).
    """
    with torch.no_grad():
        sample = take_sample(tensor.detach(), context)
        kind = choose(sample, context)
        arrays, facts = SUMMARIES.get(kind).reduce(sample, context)
    facts["sample_shape"] = tuple(sample.shape)
    if context.input_hw is not None:
        facts["input_side"] = (context.input_hw[0] * context.input_hw[1]) ** 0.5
    return kind, arrays, facts


def describe(tensor: torch.Tensor, context: SummaryContext) -> tuple[str, dict[str, Any]]:
    """Return (kind, facts) of ``tensor`` for a stage that gets no picture: how it would be shown, and nothing to show.

    Args and errors are those of ``summarise``.
    """
    with torch.no_grad():
        sample = take_sample(tensor.detach(), context)
        return choose(sample, context), {"sample_shape": tuple(sample.shape), "is_drawn": False}


def take_sample(tensor: torch.Tensor, context: SummaryContext) -> torch.Tensor:
    """Return the dense strided tensor without batch dimension that kinds see.

    Raises:
        NoPicture: the tensor has no values.
    """
    if tensor.is_meta or type(tensor).__name__ == "FakeTensor":
        raise NoPicture("the tensor has no values (it is on meta, or fake)")
    if (to_local := getattr(tensor, "to_local", None)) is not None:
        tensor = to_local()  # a distributed tensor: what this process holds
    if tensor.is_nested:
        parts = tensor.unbind()
        return parts[min(context.sample, len(parts) - 1)] if parts else tensor.new_zeros(0)
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.is_mkldnn:
        tensor = tensor.to_dense()
    if tensor.layout != torch.strided:
        if tensor.dim() == 2 and tensor.numel() > 0 and tensor.dense_dim() == 0:
            return tensor
        if tensor.numel() > _MAX_DENSE:
            return (tensor.coalesce() if tensor.is_sparse else tensor).values().reshape(-1)[:_MAX_DENSE]
        tensor = tensor.to_dense()
    if context.batch_dim is not None and tensor.dim() > context.batch_dim and tensor.shape[context.batch_dim] > 0:
        tensor = _pick(tensor, context.batch_dim, context)
    return _with_arithmetic(tensor)


def _with_arithmetic(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` in a dtype that reductions exist for, if its own is only made for storage."""
    if tensor.dtype in (torch.uint16, torch.uint32, torch.uint64):
        return tensor.to(torch.int64)
    if tensor.dtype == torch.complex32:
        return tensor.to(torch.complex64)
    return tensor.to(torch.float32) if tensor.is_floating_point() and tensor.element_size() == 1 else tensor


def _pick(tensor: torch.Tensor, dim: int, context: SummaryContext) -> torch.Tensor:
    """Return one element of the batch. A dimension of several times the batch's size holds a share of each element.

    Such a share is a sequence that was folded into the batch: of a matrix it is shown whole, of anything larger (the
    windows of an image) its first.
    """
    share = max(tensor.shape[dim] // max(context.batch_size, 1), 1)
    first = min(context.sample * share, tensor.shape[dim] - 1)
    if share > 1 and tensor.dim() == 2 and tensor.layout == torch.strided:
        return tensor.narrow(dim, first, min(share, tensor.shape[dim] - first))
    return tensor.select(dim, first)
