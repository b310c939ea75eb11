"""AttentionTracer: the attention weights of a model, also where fused kernels never make them visible."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from neural_flow.capture._attention_weights import (
    Scores,
    element,
    flex_scores,
    mha_scores,
    mha_shape,
    pooled_weights,
    sdpa_scores,
    whole_weights,
)
from neural_flow.module_calls import CallFrame, ModuleCallStack
from neural_flow.nested import tensor_leaves
from neural_flow.summaries.attention import grid
from neural_flow.torch_private import no_torch_function

_MAX_GRID = 16
_TARGETS: dict[str, Any] = {
    "scaled_dot_product_attention": F.scaled_dot_product_attention,
    "multi_head_attention_forward": F.multi_head_attention_forward,
    "flex_attention": None,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttentionRecord:
    """The weights of one attention call: probabilities before dropout, float32.

    Attributes:
        path: the innermost module call that ran it.
        call_index: which call of that module.
        index: which attention of that call.
        target: the function: ``scaled_dot_product_attention``, ``multi_head_attention_forward``, ``flex_attention``,
            or ``output`` where a module returned its weights.
        shape: batch, heads, queries, keys.
        weights: ``[B, H, L, S]``, where they are kept.
        maps: ``[H, l, s]`` of one batch element, pooled down to what a figure shows.
        note: what is unusual about it.
    """

    path: str
    call_index: int
    index: int
    target: str
    shape: tuple[int, int, int, int]
    weights: torch.Tensor | None = None
    maps: torch.Tensor | None = None
    note: str = ""


class AttentionTracer(TorchFunctionMode):
    """Record attention weights while a model runs.

    ::

        with AttentionTracer(model, keep="weights") as attention:
            model(x)
        attention.records[0].weights  # [B, H, L, S]

    Sees ``F.multi_head_attention_forward`` (all of ``nn.MultiheadAttention``), ``F.scaled_dot_product_attention``,
    ``flex_attention``, and attention modules that return their weights. Outputs and random numbers of the model stay
    as they are. A call whose weights cannot be computed is in ``skipped``. A context manager; it does not nest with
    itself. While it is active PyTorch's fused encoder layer takes its ordinary path.

    Args:
        model: names the calls; without it paths are empty, and modules that return their weights are not seen.
        paths: the paths of its modules, where they are known already.
        keep: ``weights`` keeps them whole; ``summary`` only maps of one batch element, which needs little memory.
        sample: the batch element of the maps.
        batch_size: size of the batch at the model's inputs; attention over windows has a multiple of it.
        max_side: longest side of all maps of a call together, in pixels.
        is_wanted: asked with the innermost call before anything is computed; of one that is not, only the shape is
            recorded.
        on_record: gets each record and its innermost call instead of ``records``.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        *,
        paths: dict[nn.Module, str] | None = None,
        keep: Literal["summary", "weights"] = "summary",
        sample: int = 0,
        batch_size: int = 1,
        max_side: int = 160,
        is_wanted: Callable[[CallFrame | None], bool] | None = None,
        on_record: Callable[[AttentionRecord, CallFrame | None], None] | None = None,
    ) -> None:
        if keep not in ("summary", "weights"):
            raise ValueError(f"keep is {keep!r}; it takes 'summary' or 'weights'")
        super().__init__()
        self.records: list[AttentionRecord] = []
        self.skipped: list[str] = []
        self._keep = keep
        self._sample = sample
        self._batch_size = max(batch_size, 1)
        self._max_side = max_side
        self._is_wanted = is_wanted
        self._on_record = on_record
        self._calls = (
            None
            if model is None
            else ModuleCallStack(model, on_enter=self._enter_call, on_exit=self._exit_call, paths=paths)
        )
        self._num_seen: dict[int, int] = {}
        self._seen_at_entry: dict[int, int] = {}
        self._total = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if self._calls is not None:
            self._stack.enter_context(self._calls)
        try:
            super().__enter__()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._stack.close()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run ``func``, then compute its weights if it is an attention function."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name in _TARGETS and (name == "flex_attention" or func is _TARGETS[name]):
            self._observe(name, args, kwargs)
        return result

    def _observe(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        frame = None if self._calls is None else self._calls.current
        self._total += 1
        is_wanted = self._is_wanted is None or self._is_wanted(frame)
        try:
            if not is_wanted:
                with no_torch_function():
                    shape = _shape_of(target, args, kwargs)
                self._record(target, frame, shape)
                return
            with torch.no_grad(), no_torch_function(), _without_autocast(args):
                if self._keep == "weights":
                    scores = _scores(target, args, kwargs, None)
                    self._record(target, frame, scores.shape, scores.note, weights=whole_weights(scores))
                else:
                    size = _batch_of(target, args, kwargs)
                    index = min(self._sample * max(size // self._batch_size, 1), max(size - 1, 0))
                    scores = _scores(target, args, kwargs, index)
                    maps = pooled_weights(scores, self._side(scores.shape[1]))
                    self._record(target, frame, (size, *scores.shape[1:]), scores.note, maps=maps)
        except Exception as error:  # the model must run on, whatever its attention looks like
            path = "" if frame is None else frame.path
            self.skipped.append(f"{path}: {target}: {type(error).__name__}: {error}")

    def _side(self, num_heads: int) -> int:
        return max(1, self._max_side // grid(min(num_heads, _MAX_GRID))[1])

    def _record(
        self,
        target: str,
        frame: CallFrame | None,
        shape: tuple[int, int, int, int],
        note: str = "",
        *,
        weights: torch.Tensor | None = None,
        maps: torch.Tensor | None = None,
    ) -> None:
        call_id = -1 if frame is None else frame.call_id
        index = self._num_seen.get(call_id, 0)
        self._num_seen[call_id] = index + 1
        record = AttentionRecord(
            path="" if frame is None else frame.path,
            call_index=0 if frame is None else frame.call_index,
            index=index,
            target=target,
            shape=shape,
            weights=weights,
            maps=maps,
            note=note,
        )
        if self._on_record is not None:
            self._on_record(record, frame)
        else:
            self.records.append(record)

    # -- modules that return their weights -------------------------------------------------------------------------

    def _enter_call(self, frame: CallFrame, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
        if is_attention(frame.module):
            self._seen_at_entry[frame.call_id] = self._total

    def _exit_call(self, frame: CallFrame, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self._seen_at_entry.pop(frame.call_id, None) != self._total or isinstance(output, torch.Tensor):
            return
        try:
            with torch.no_grad(), no_torch_function():
                found = returned_weights([leaf.detach() for _, leaf in tensor_leaves(output)])
                if found is None:
                    return
                self._total += 1
                size, num_heads, length, num_keys = found.shape
                shape = (size, num_heads, length, num_keys)
                if self._is_wanted is not None and not self._is_wanted(frame):
                    self._record("output", frame, shape)
                    return
                if self._keep == "weights":
                    self._record("output", frame, shape, weights=found.float().clone())
                    return
                index = min(self._sample * max(size // self._batch_size, 1), max(size - 1, 0))
                one = _pooled(found[index].float(), self._side(num_heads))
                self._record("output", frame, shape, maps=one)
        except Exception as error:  # as above
            self.skipped.append(f"{frame.path}: output: {type(error).__name__}: {error}")


def is_attention(module: nn.Module) -> bool:
    """Return whether a module calls itself attention, so that weights among its results are to be expected."""
    return "attention" in type(module).__name__.lower() or "attn" in type(module).__name__.lower()


def returned_weights(leaves: list[torch.Tensor]) -> torch.Tensor | None:
    """Return the leaf that holds attention probabilities ``[B, H, L, S]`` beside an output ``[B, L, D]``, if any."""
    if len(leaves) < 2 or leaves[0].dim() != 3:
        return None
    size, length = leaves[0].shape[:2]
    for leaf in leaves[1:]:
        is_shaped = leaf.dim() == 4 and leaf.is_floating_point() and (leaf.shape[0], leaf.shape[2]) == (size, length)
        if is_shaped and leaf.numel() and _is_probability(leaf[0].float()):
            return leaf
    return None


def _is_probability(weights: torch.Tensor) -> bool:
    total = weights.sum(dim=-1)
    is_row = (total - 1).abs() < 1e-2
    return bool((weights >= 0).all()) and bool((is_row | (total == 0)).all()) and bool(is_row.any())


def _pooled(weights: torch.Tensor, max_side: int) -> torch.Tensor:
    """Return ``[H, l, s]`` like ``pooled_weights``, from weights ``[H, L, S]`` that exist already."""
    length, num_keys = weights.shape[1:]
    rows, columns = min(length, max_side), min(num_keys, max_side)
    if (rows, columns) == (length, num_keys):
        return weights.clone()
    return F.adaptive_avg_pool2d(weights, (rows, columns)) * (num_keys / columns)


def _without_autocast(args: tuple[Any, ...]) -> torch.autocast:
    device = args[0].device.type if args and isinstance(args[0], torch.Tensor) else "cpu"
    return torch.autocast(device, enabled=False)


def _batch_of(target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    query = args[0] if args else kwargs["query"]
    if target == "multi_head_attention_forward":
        return int(query.shape[1]) if query.dim() == 3 else 1
    if query.is_nested:
        return int(query.size(0))
    heads = 3 if query.dim() > 3 else 2
    return int(query.shape[:-heads].numel())


def _shape_of(target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, int, int, int]:
    """Return batch, heads, queries and keys of a call, without computing anything."""
    if target == "multi_head_attention_forward":
        return mha_shape(*args, **kwargs)
    if len(args) > 1 and args[0].dim() == 4 and args[1].dim() == 4 and not args[0].is_nested:
        batch, heads, length, _ = args[0].shape
        return int(batch), int(heads), int(length), int(args[1].shape[2])
    is_nested = bool(args) and args[0].is_nested
    _, *rest = _scores(target, args, kwargs, 0 if is_nested else None).shape
    return _batch_of(target, args, kwargs), rest[0], rest[1], rest[2]


def _scores(target: str, args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None) -> Scores:
    """Return the scores of a call, of one batch element as a batch of one if ``index`` is set."""
    if target == "multi_head_attention_forward":
        return mha_scores(index, *args, **kwargs)
    make = sdpa_scores if target == "scaled_dot_product_attention" else flex_scores
    if args and args[0].is_nested:
        if index is None:
            raise ValueError("weights of a nested tensor have no common shape; keep='summary' shows one element")
        query, key, value = (part.unbind()[index][None] for part in args[:3])
        return make(query, key, value, *args[3:], **kwargs)
    scores = make(*args, **kwargs)
    return scores if index is None else element(scores, index)
