"""Attention probabilities from the arguments of a fused attention function, within a bound on memory.

Fused kernels return no weights, so they are computed once more: the softmax of the scaled, masked scores, before any
dropout, in float32. No random number is drawn and nothing of the real call is touched.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import torch
import torch.nn.functional as F

MAX_NBYTES = 64 << 20
"""Bound on the temporaries of one chunk."""
_TEMPORARIES = 4  # scores, mask, exponentials and their sum live at the same time

ScoreMod = Callable[..., torch.Tensor]
_MHA_SIGNATURE = inspect.signature(F.multi_head_attention_forward)


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """What attention weights are made of: ``softmax(query @ keyᵀ * scale + bias)``.

    ``query`` is ``[B, H, L, E]``; ``key`` is ``[B, H, S, E]``, or has fewer heads, each for a group of queries. Biases
    broadcast to ``[B, H, L, S]`` and are added, or boolean and True where a pair takes part. ``modify`` and ``is_kept``
    get (score, b, h, q, k) and (b, h, q, k). ``zero_masked``: whether a row without any key has weights of 0, or NaN.
    """

    query: torch.Tensor
    key: torch.Tensor
    scale: float
    biases: tuple[torch.Tensor, ...] = ()
    is_causal: bool = False
    zero_masked: bool = True
    modify: ScoreMod | None = None
    is_kept: ScoreMod | None = None
    note: str = ""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Batch, heads, queries, keys."""
        batch, heads, length, _ = self.query.shape
        return batch, heads, length, self.key.shape[2]


def sdpa_scores(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Scores:
    """Return the scores of a call of ``scaled_dot_product_attention`` with these arguments."""
    query, key = _four_dims(query), _four_dims(key)
    note = ""
    biases: tuple[torch.Tensor, ...] = ()
    if attn_mask is not None:
        biases = (_mask_dims(attn_mask, query),)
        note = "is_causal and attn_mask were given together; both are applied" if is_causal else ""
    factor = 1 / sqrt(max(query.shape[-1], 1)) if scale is None else float(scale)
    return Scores(query, key, factor, biases, bool(is_causal), note=note)


def _four_dims(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``[B, H, T, E]``: three dimensions have no heads, further ones in front are batches."""
    if tensor.dim() < 4:
        return tensor.reshape(-1, 1, *tensor.shape[-2:])
    return tensor.reshape(-1, *tensor.shape[-3:]) if tensor.dim() > 4 else tensor


def _mask_dims(mask: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    if mask.dim() <= 2:
        return mask
    if query.shape[1] == 1 and mask.dim() == 3:
        return mask[:, None]
    if mask.dim() <= 4:
        return mask
    return mask.reshape(-1, *mask.shape[-3:]) if prod(mask.shape[:-3]) in (1, query.shape[0]) else mask


def mha_scores(sample: int | None, /, *args: Any, **kwargs: Any) -> Scores:
    """Return the scores of a call of ``multi_head_attention_forward``; if ``sample`` is set, of that element only."""
    call = _MHA_SIGNATURE.bind(*args, **kwargs)
    call.apply_defaults()
    given = call.arguments
    query, key = given["query"], given["key"]
    padding, mask = given["key_padding_mask"], given["attn_mask"]
    if query.dim() == 2:
        query, key = query[:, None], key[:, None]
        padding = padding[None] if padding is not None else None
    num_heads, size = int(given["num_heads"]), query.shape[1]
    if mask is not None and mask.dim() == 3:
        mask = mask.reshape(-1, num_heads, *mask.shape[-2:])
    static, bias_k = given["static_k"], given["bias_k"]
    static = static.reshape(size, num_heads, *static.shape[1:]) if static is not None else None
    if sample is not None:
        one = slice(sample, sample + 1)
        query, key = query[:, one], key[:, one]
        padding = padding[one] if padding is not None else None
        mask = mask[one] if mask is not None and mask.dim() == 4 and mask.shape[0] == size else mask
        static = static[one] if static is not None else None
    query, key = _projected(query, key, given)
    if bias_k is not None and static is None:
        key = torch.cat([key, bias_k.float().expand(1, key.shape[1], -1)])
    heads = _heads_of(query, num_heads)
    keys = _heads_of(key, num_heads) if static is None else static.float()
    biases = [_additive(part) for part in (mask,) if part is not None]
    if padding is not None:
        biases.append(_additive(padding)[:, None, None, :])
    if given["add_zero_attn"]:
        keys = F.pad(keys, (0, 0, 0, 1))
    biases = [F.pad(bias, (0, keys.shape[2] - bias.shape[-1])) for bias in biases]
    # asked for weights, torch takes a plain softmax, and a row without any key is NaN in its output too
    return Scores(heads, keys, 1 / sqrt(heads.shape[-1]), tuple(biases), zero_masked=not given["need_weights"])


def mha_shape(*args: Any, **kwargs: Any) -> tuple[int, int, int, int]:
    """Return batch, heads, queries and keys of a call of ``multi_head_attention_forward``."""
    given = _MHA_SIGNATURE.bind(*args, **kwargs).arguments
    query, static = given["query"], given.get("static_k")
    num_keys = given["key"].shape[0] if static is None else static.shape[1]
    num_added = (given["bias_k"] is not None and static is None) + bool(given["add_zero_attn"])
    size = query.shape[1] if query.dim() == 3 else 1
    return size, int(given["num_heads"]), query.shape[0], num_keys + num_added


def _projected(query: torch.Tensor, key: torch.Tensor, given: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    if given["use_separate_proj_weight"]:
        weights = given["q_proj_weight"], given["k_proj_weight"]
    else:
        weights = given["in_proj_weight"].chunk(3)[:2]
    bias = given["in_proj_bias"]
    biases = (None, None) if bias is None else bias.chunk(3)[:2]
    projected = [
        F.linear(tensor.float(), weight.float(), None if shift is None else shift.float())
        for tensor, weight, shift in zip((query, key), weights, biases, strict=True)
    ]
    return projected[0], projected[1]


def _heads_of(tensor: torch.Tensor, num_heads: int) -> torch.Tensor:
    length, size, width = tensor.shape
    return tensor.reshape(length, size, num_heads, width // num_heads).permute(1, 2, 0, 3)


def _additive(mask: torch.Tensor) -> torch.Tensor:
    """Return a mask of multi-head attention, where True shuts a pair out, as what is added to scores."""
    if mask.dtype != torch.bool:
        return mask.float()
    return torch.zeros(mask.shape, device=mask.device).masked_fill_(mask, -torch.inf)


def flex_scores(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: ScoreMod,
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: Any = None,
    score_mod_buffers: tuple[Any, ...] = (),
    mask_mod_buffers: tuple[Any, ...] = (),
) -> Scores:
    """Return the scores of a call of the operator behind ``flex_attention``; its block mask ends in the mask itself."""

    def modify(*given: Any) -> torch.Tensor:
        return score_mod(*given, *score_mod_buffers)

    def is_kept(*given: Any) -> torch.Tensor:
        return block_mask[-1](*given, *mask_mod_buffers)

    return Scores(query, key, float(scale), modify=modify, is_kept=is_kept)


def element(scores: Scores, index: int) -> Scores:
    """Return the scores of one batch element, as a batch of one."""
    one = slice(index, index + 1)
    size = scores.query.shape[0]
    biases = tuple(bias[one] if bias.dim() == 4 and bias.shape[0] == size else bias for bias in scores.biases)
    pick = scores.modify, scores.is_kept
    if any(pick):  # these are told which element they look at
        modify, is_kept = (_shifted(function, index) for function in pick)
    else:
        modify, is_kept = pick
    return Scores(
        scores.query[one],
        scores.key[one if scores.key.shape[0] == size else slice(None)],
        scores.scale,
        biases,
        scores.is_causal,
        scores.zero_masked,
        modify,
        is_kept,
        scores.note,
    )


def _shifted(function: ScoreMod | None, index: int) -> ScoreMod | None:
    if function is None:
        return None
    return lambda *given: function(*given[:-4], given[-4] + index, *given[-3:])


def weight_chunks(scores: Scores, max_nbytes: int = MAX_NBYTES) -> Iterator[tuple[int, slice, slice, torch.Tensor]]:
    """Yield (batch element, heads, queries, weights ``[h, l, S]`` float32) until all are covered."""
    batch, heads, length, num_keys = scores.shape
    room = max(max_nbytes // (4 * _TEMPORARIES), 1)
    num_rows = max(1, min(length, room // max(num_keys, 1)))
    num_heads = max(1, min(heads, room // max(num_keys * num_rows, 1)))
    for index in range(batch):
        for head in range(0, heads, num_heads):
            for row in range(0, length, num_rows):
                part = slice(head, min(head + num_heads, heads)), slice(row, min(row + num_rows, length))
                yield index, *part, _chunk(scores, index, *part)


def _chunk(scores: Scores, index: int, heads: slice, rows: slice) -> torch.Tensor:
    query = scores.query[index, heads, rows].float()
    key = _keys(scores, index, heads)
    raw = (query @ key.transpose(-1, -2)).mul_(scores.scale)
    places = _places(index, heads, rows, key.shape[1], raw.device)
    if scores.modify is not None:
        raw = _vmapped(scores.modify, 5)(raw, *places).float()
    if scores.is_kept is not None:
        raw = raw.masked_fill(~_vmapped(scores.is_kept, 4)(*places), -torch.inf)
    for bias in scores.biases:
        part = _part(bias, index, heads, rows)
        raw = raw.masked_fill_(~part, -torch.inf) if part.dtype == torch.bool else raw.add_(part)
    if scores.is_causal:
        columns = torch.arange(key.shape[1], device=raw.device)
        raw = raw.masked_fill_(columns > places[2][:, None], -torch.inf)
    weights = torch.softmax(raw, dim=-1)
    if scores.zero_masked:
        is_shut = raw.amax(dim=-1, keepdim=True) == -torch.inf if raw.shape[-1] else None
        weights = weights if is_shut is None else weights.masked_fill_(is_shut, 0.0)
    return weights


def _keys(scores: Scores, index: int, heads: slice) -> torch.Tensor:
    """Return ``[h, S, E]``; under grouped queries several heads read one head of keys."""
    keys = scores.key[min(index, scores.key.shape[0] - 1)]
    group = scores.query.shape[1] // max(keys.shape[0], 1)
    if group <= 1:
        return keys[heads].float()
    return keys[torch.arange(heads.start, heads.stop, device=keys.device) // group].float()


def _places(index: int, heads: slice, rows: slice, num_keys: int, device: torch.device) -> tuple[torch.Tensor, ...]:
    return (
        torch.tensor(index, device=device),
        torch.arange(heads.start, heads.stop, device=device),
        torch.arange(rows.start, rows.stop, device=device),
        torch.arange(num_keys, device=device),
    )


def _vmapped(function: ScoreMod, num_arguments: int) -> ScoreMod:
    """Return ``function`` of single places as one of heads x rows x keys."""
    scored: tuple[int | None, ...] = (0,) if num_arguments == 5 else ()
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None)):
        function = torch.vmap(function, in_dims=(*scored, *dims))
    return function


def _part(bias: torch.Tensor, index: int, heads: slice, rows: slice) -> torch.Tensor:
    """Return the part of a broadcasting bias that a chunk needs."""
    while bias.dim() < 4:
        bias = bias[None]
    bias = bias[index if bias.shape[0] > 1 else 0]
    bias = bias[heads] if bias.shape[0] > 1 else bias
    return bias[:, rows] if bias.shape[1] > 1 else bias


def whole_weights(scores: Scores, max_nbytes: int = MAX_NBYTES) -> torch.Tensor:
    """Return all weights, float32 ``[B, H, L, S]``."""
    out = torch.empty(scores.shape, device=scores.query.device)
    for index, heads, rows, weights in weight_chunks(scores, max_nbytes):
        out[index, heads, rows] = weights
    return out


def pooled_weights(scores: Scores, max_side: int, max_nbytes: int = MAX_NBYTES) -> torch.Tensor:
    """Return the weights of a batch of one, float32 ``[H, l, s]`` with no side over ``max_side``.

    Where keys are pooled their weights add up, where queries are pooled they are averaged: rows still sum to one.
    """
    _, heads, length, num_keys = scores.shape
    num_rows, num_columns = min(length, max_side), min(num_keys, max_side)
    device = scores.query.device
    out = torch.zeros(heads, num_rows, num_columns, device=device)
    to_columns = _bins(num_keys, num_columns, device)
    to_rows = _bins(length, num_rows, device) * (num_rows / max(length, 1))
    for _, some, rows, weights in weight_chunks(scores, max_nbytes):
        pooled = weights if num_columns == num_keys else weights @ to_columns
        if num_rows == length:
            out[some, rows] = pooled
        else:
            out[some] += to_rows[rows].T @ pooled
    return out


def _bins(count: int, num_bins: int, device: torch.device) -> torch.Tensor:
    """Return ``[count, num_bins]``: the share of each place that lies in each of equal bins."""
    edges = torch.arange(num_bins + 1, device=device, dtype=torch.float64) * (count / max(num_bins, 1))
    places = torch.arange(count, device=device, dtype=torch.float64)[:, None]
    overlap = torch.minimum(places + 1, edges[1:]) - torch.maximum(places, edges[:-1])
    return overlap.clamp_min(0).float()
