"""Vectors: bars up to 16 values, else a strip of colours."""

from __future__ import annotations

import torch

from neural_flow.drawing import Box, Mark, Path, Rect
from neural_flow.records import Summary
from neural_flow.summaries._base import SUMMARIES, DrawStyle, Reduced, SummaryContext
from neural_flow.summaries._pixels import MAX_INDEX, NOT_A_NUMBER, POSITIVE_INFINITY, as_real, shrink, to_indices
from neural_flow.summaries._planes import (
    IMAGE_LAYER,
    badge_marks,
    cell_marks,
    frame_marks,
    palette,
    triangle,
)

_WIDTH, _HEIGHT, _STRIP = 64.0, 10.0, 7.0
_MAX_BARS = 16
_BAR_COLOR = 0.88
"""Place in the signed map from which bars above zero take their colour; those below have its mirror image."""


@SUMMARIES.register("vector")
class Vector:
    """A vector D; also C×1×1, what a pooled map is."""

    priority = 45

    @staticmethod
    def accepts(tensor: torch.Tensor, context: SummaryContext) -> bool:
        """Accept real values along one dimension."""
        return tensor.numel() > 1 and not tensor.is_complex() and max(tensor.shape) == tensor.numel()

    @staticmethod
    def reduce(tensor: torch.Tensor, context: SummaryContext) -> Reduced:
        """Keep at most ``max_side`` uint8 cells."""
        values = as_real(tensor.reshape(1, 1, -1))
        indices, facts = to_indices(shrink(values, context.max_side), "stage")
        return {"cells": indices[0]}, {**facts, "length": values.numel()}

    @staticmethod
    def size(summary: Summary, context: SummaryContext) -> tuple[float, float]:
        """Return 64 x 10 pt."""
        return _WIDTH, _HEIGHT

    @staticmethod
    def draw(summary: Summary, box: Box, style: DrawStyle) -> tuple[Mark, ...]:
        """Draw bars from the zero line, or a strip."""
        if has_bars(summary):
            return (*_bars(summary, box, style), *badge_marks(summary, box, style))
        height = box.height * _STRIP / _HEIGHT
        strip = Box(x=box.x, y=box.y + (box.height - height) / 2, width=box.width, height=height)
        return (
            *cell_marks(strip, summary, style),
            *frame_marks(strip, style, color=style.sub, width=0.4),
            *badge_marks(summary, box, style),
        )


def has_bars(summary: Summary) -> bool:
    """Return whether a vector is short enough for bars."""
    return summary.kind == "vector" and summary.arrays["cells"].shape[1] <= _MAX_BARS


def _bars(summary: Summary, box: Box, style: DrawStyle) -> list[Mark]:
    """Bars grow from zero; a range that does not reach zero grows from its low end."""
    cells = [int(cell) for cell in summary.arrays["cells"][0]]
    low, high = float(summary.facts["low"][0]), float(summary.facts["high"][0])
    zero = min(max(-low / (high - low), 0.0), 1.0) if high > low else 0.0
    pitch = box.width / len(cells)
    colors = palette(style, bool(summary.facts["is_signed"]))
    base = box.y + box.height * (1 - zero)
    marks: list[Mark] = [
        Path(
            commands=(("M", box.x, base), ("L", box.x + box.width, base)),
            stroke=style.hair,
            stroke_width=0.4,
            layer=IMAGE_LAYER,
        )
    ]
    for index, cell in enumerate(cells):
        if cell > MAX_INDEX and cell != NOT_A_NUMBER:
            way = -1 if cell == POSITIVE_INFINITY else 1
            half = min(1.8, pitch / 2)
            y = box.y + half if way < 0 else box.y + box.height - half
            marks.append(triangle(box.x + pitch * (index + 0.5), y, half, way, style))
            continue
        is_value = cell <= MAX_INDEX
        share = cell / MAX_INDEX if is_value else 1.0
        top, bottom = sorted((1 - share, 1 - zero))
        # Length tells how much; a colour by value too would let small bars vanish in the paper.
        end = int(_BAR_COLOR * MAX_INDEX) if share > zero else int((1 - _BAR_COLOR) * MAX_INDEX)
        color = "#{:02X}{:02X}{:02X}".format(*(int(part) for part in colors[end if is_value else cell]))
        marks.append(
            Rect(
                x=box.x + pitch * (index + 0.1),
                y=box.y + box.height * top,
                width=pitch * 0.8,
                height=max(
                    box.height * (bottom - top), 0.3 if box.y + box.height * bottom <= box.y + box.height - 0.3 else 0.0
                ),
                fill=style.sub if is_value and not summary.facts["is_signed"] else color,
                layer=IMAGE_LAYER + 0.1,
            )
        )
    return marks
