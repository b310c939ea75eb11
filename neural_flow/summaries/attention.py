"""Attention weights heads×L×S: a grid of heads, queries downwards, keys to the right."""

from __future__ import annotations

from functools import lru_cache
from math import ceil, sqrt
from typing import Any

import numpy as np
import torch

from neural_flow.drawing import Box, Mark
from neural_flow.records import Array, Summary
from neural_flow.summaries._base import SUMMARIES, DrawStyle, Reduced, SummaryContext
from neural_flow.summaries._pixels import as_real, quantise, shrink
from neural_flow.summaries._planes import badge_marks, frame_marks, image_mark, palette
from neural_flow.theme import rgb

_SIDE = 48.0
_GUTTER = 1.0
_MAX_HEADS = 16
_BLANK = 253
"""Index of a cell that no head looks at, such as the future under a causal mask."""


@SUMMARIES.register("attention")
class Attention:
    """Each head on its own scale from 0 to its largest weight; of many heads 16, spread evenly by entropy.

    The scale reaches at least to twice an even weight, so that a head that looks everywhere is of a middling colour
    and not as bright as one that looks at something.
    """

    priority = 80

    @staticmethod
    def accepts(tensor: torch.Tensor, context: SummaryContext) -> bool:
        """Accept weights that the attention tracer brings."""
        return context.role == "attention" and tensor.dim() == 3 and tensor.numel() > 0

    @staticmethod
    def reduce(tensor: torch.Tensor, context: SummaryContext) -> Reduced:
        """Keep the drawn heads within ``max_side``² pixels together."""
        num_heads, num_queries, num_keys = tensor.shape
        heads = [head for head in context.heads if head < num_heads] or _spread(tensor)
        columns = grid(len(heads))[1]
        maps = shrink(as_real(tensor), max(1, context.max_side // columns))
        is_blank = (maps == 0).all(dim=0)
        shown = maps[heads]
        peak = shown.flatten(1).nan_to_num(0.0).amax(dim=1)
        num_seen = max(int((~is_blank).any(dim=0).sum()) * num_keys / maps.shape[2], 1)
        top = peak.clamp_min(min(2 / num_seen, 1.0))
        cells = quantise(shown, torch.zeros_like(top), top)
        cells[:, is_blank] = _BLANK
        return {"heads": cells}, {
            "heads": tuple(heads),
            "num_heads": num_heads,
            "length": (num_queries, num_keys),
            "low": (0.0,) * len(heads),
            "high": tuple(top.tolist()),
            "is_even": bool((top > peak).any()),
            "caption": caption(len(heads), num_heads),
        }

    @staticmethod
    def size(summary: Summary, context: SummaryContext) -> tuple[float, float]:
        """Return 48 pt by as many rows as the grid has."""
        rows, columns = grid(len(summary.facts["heads"]))
        queries, keys = summary.facts["length"]
        cell = (_SIDE - _GUTTER * (columns - 1)) / columns
        height = cell * min(max(queries / max(keys, 1), 1 / 3), 1.0)
        return _SIDE, height * rows + _GUTTER * (rows - 1)

    @staticmethod
    def draw(summary: Summary, box: Box, style: DrawStyle) -> tuple[Mark, ...]:
        """Draw the grid."""
        cells = summary.arrays["heads"]
        rows, columns = grid(len(cells))
        width = (box.width - _GUTTER * (columns - 1)) / columns
        height = (box.height - _GUTTER * (rows - 1)) / rows
        colors = _with_blank(palette(style, False).tobytes(), style.paper)
        marks: list[Mark] = []
        for index, head in enumerate(cells):
            row, column = divmod(index, columns)
            x, y = box.x + column * (width + _GUTTER), box.y + row * (height + _GUTTER)
            place = Box(x=x, y=y, width=width, height=height)
            marks.append(image_mark(place, head, colors))
            marks += frame_marks(place, style, color=style.sub, width=0.35)
        return (*marks, *badge_marks(summary, box, style))


def caption(num_shown: int, num_heads: int) -> str:
    """Return the words under the maps of one attention call."""
    return f"attention of {num_shown} of {num_heads} heads, each on its own scale"


def describe(num_heads: int, heads: tuple[int, ...]) -> dict[str, Any]:
    """Return the facts of a call that gets no picture: how many heads it has, and how many would be shown."""
    asked = sum(head < num_heads for head in heads)
    return {
        "num_heads": num_heads,
        "caption": caption(asked or min(num_heads, _MAX_HEADS), num_heads),
        "is_drawn": False,
    }


def grid(count: int) -> tuple[int, int]:
    """Return rows and columns for so many heads."""
    columns = ceil(sqrt(max(count, 1)))
    return ceil(max(count, 1) / columns), columns


def _spread(weights: torch.Tensor) -> list[int]:
    """Return up to 16 heads in their order, evenly spread over the ranks of their entropy."""
    count = weights.shape[0]
    if count <= _MAX_HEADS:
        return list(range(count))
    shares = as_real(weights).nan_to_num(0.0).clamp_min(0)
    entropy = -(shares * shares.clamp_min(1e-30).log()).sum(dim=(1, 2))
    ranked = torch.sort(entropy, stable=True).indices.tolist()
    return sorted(ranked[round(step * (count - 1) / (_MAX_HEADS - 1))] for step in range(_MAX_HEADS))


@lru_cache(maxsize=16)
def _with_blank(colors: bytes, paper: str) -> Array:
    table = np.frombuffer(colors, np.uint8).reshape(256, 3).copy()
    table[_BLANK] = rgb(paper)
    table.flags.writeable = False
    return table
