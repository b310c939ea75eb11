"""Attention inside the capture pass: which calls are drawn, which heads were asked for, and whether to look at all."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from torch import nn

from neural_flow.capture._op_watch import OpWatch
from neural_flow.capture._pictures import Pictures
from neural_flow.capture._plan import Plan
from neural_flow.capture.attention import AttentionRecord, AttentionTracer, is_attention
from neural_flow.errors import UsageError
from neural_flow.module_calls import CallFrame
from neural_flow.records import Stage, Trace

Heads = tuple[tuple[re.Pattern[str], tuple[int, ...]], ...]
_FUNCTIONS = ("scaled_dot_product_attention", "multi_head_attention_forward", "flex_attention")


def has_attention_calls(model: nn.Module, trace: Trace | None) -> bool:
    """Return whether watching every function can bring any weights; it costs a few percent of a forward."""
    if trace is None or not trace.has_dataflow:
        return True
    if any(op.target.endswith(_FUNCTIONS) or op.role == "opaque" for op in trace.ops):
        return True
    return any(is_attention(module) for module in model.modules())


def attention_watch(
    model: nn.Module,
    paths: dict[nn.Module, str],
    plan: Plan,
    pictures: Pictures,
    heads: Heads,
    op_watch: OpWatch | None,
) -> AttentionTracer:
    """Return a tracer that hands the weights of each drawn stage to ``pictures``; ``paths`` are the model's modules."""

    def owner(frame: CallFrame | None) -> Stage | None:
        if op_watch is not None and op_watch.current is not None:
            return op_watch.current
        while frame is not None:
            stage = plan.owners.get((frame.path, frame.call_index))
            if stage is not None:
                return stage
            frame = frame.parent
        return None

    def take(record: AttentionRecord, frame: CallFrame | None) -> None:
        stage = owner(frame)
        if stage is None:
            return
        facts = {
            "path": record.path,
            "call_index": record.call_index,
            "index": record.index,
            "length": record.shape[2:],
            "note": record.note,
        }
        asked = heads_for(heads, record.path)
        if record.maps is None:
            pictures.note_attention(stage, record.shape[1], facts, asked)
        else:
            pictures.take_attention(stage, record.maps, facts, asked)

    return AttentionTracer(
        model,
        paths=paths,
        sample=pictures.context.sample,
        batch_size=pictures.batch.size,
        max_side=pictures.context.max_side,
        is_wanted=lambda frame: (stage := owner(frame)) is not None and pictures.is_wanted(stage),
        on_record=take,
    )


def parse_heads(heads: str | Mapping[str, Sequence[int]] | None) -> Heads:
    """Return what ``h.5:0-3,7`` asks for: patterns of module paths and the heads to show there.

    Several requests are parted by spaces. ``*`` stays inside one path segment, ``**`` crosses dots.

    Raises:
        UsageError: the text has another form.
    """
    if heads is None:
        return ()
    if isinstance(heads, str):
        heads = dict(_parse_request(text) for text in heads.split())
    return tuple((re.compile(_regex(glob)), tuple(numbers)) for glob, numbers in heads.items())


def _parse_request(text: str) -> tuple[str, tuple[int, ...]]:
    glob, colon, ranges = text.rpartition(":")
    found: list[int] = []
    for part in ranges.split(","):
        ends = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if not glob or not colon or ends is None:
            raise UsageError(f"heads {text!r} have another form than expected", hint="write --heads h.5:0-3 or h.*:0,4")
        found += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return glob, tuple(found)


def _regex(glob: str) -> str:
    parts = re.split(r"(\*\*|\*|\?)", glob)
    words = {"**": ".*", "*": r"[^.]*", "?": r"[^.]"}
    return "".join(words.get(part, re.escape(part)) for part in parts)


def heads_for(heads: Heads, path: str) -> tuple[int, ...]:
    """Return the heads asked for at ``path`` or at a module that holds it; () where nothing was asked."""
    parts = path.split(".")
    for pattern, numbers in heads:
        if any(pattern.fullmatch(".".join(parts[:end])) for end in range(1, len(parts) + 1)):
            return numbers
    return ()
