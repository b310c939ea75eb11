"""Sparse matrices: where their stored elements lie."""

from __future__ import annotations

from math import sqrt

import torch

from neural_flow.drawing import Box, Mark
from neural_flow.records import Summary
from neural_flow.summaries._base import SUMMARIES, DrawStyle, Reduced, SummaryContext
from neural_flow.summaries._planes import badge_marks, frame_marks, image_mark, two_tone

_SIDE = 40.0


@SUMMARIES.register("sparse")
class Sparse:
    """The share of stored elements in each cell, on a root scale: single elements of a large matrix stay visible."""

    priority = 110

    @staticmethod
    def accepts(tensor: torch.Tensor, context: SummaryContext) -> bool:
        """Accept sparse matrices."""
        return tensor.layout != torch.strided

    @staticmethod
    def reduce(tensor: torch.Tensor, context: SummaryContext) -> Reduced:
        """Count the stored elements in a grid of at most ``max_side`` cells a side."""
        stored = (tensor if tensor.layout == torch.sparse_coo else tensor.to_sparse()).coalesce()
        height, width = stored.shape
        rows, columns = min(height, context.max_side), min(width, context.max_side)
        places = stored.indices()
        cells = (places[0] * rows // max(height, 1)) * columns + places[1] * columns // max(width, 1)
        counts = torch.bincount(cells, minlength=rows * columns).reshape(rows, columns).double()
        share = (counts / counts.max().clamp_min(1)).sqrt()
        density = places.shape[1] / max(height * width, 1)
        return {"cells": (share * 255).round().to(torch.uint8)}, {
            "map_hw": (height, width),
            "density": density,
            "caption": f"{density:.2%} of the elements are stored",
        }

    @staticmethod
    def size(summary: Summary, context: SummaryContext) -> tuple[float, float]:
        """Return 40 pt a side, in proportion."""
        height, width = summary.facts["map_hw"]
        stretch = sqrt(min(max(width / max(height, 1), 1 / 3), 3.0))
        return _SIDE * stretch, _SIDE / stretch

    @staticmethod
    def draw(summary: Summary, box: Box, style: DrawStyle) -> tuple[Mark, ...]:
        """Draw stored elements in ink on paper."""
        mark = image_mark(box, summary.arrays["cells"], two_tone(style.paper, style.ink))
        return (mark, *frame_marks(box, style), *badge_marks(summary, box, style))
