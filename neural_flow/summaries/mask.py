"""Boolean masks: two tones, paper for false and ink for true."""

from __future__ import annotations

from math import sqrt

import torch

from neural_flow.drawing import Box, Mark
from neural_flow.records import Summary
from neural_flow.summaries._base import SUMMARIES, DrawStyle, Reduced, SummaryContext
from neural_flow.summaries._pixels import shrink
from neural_flow.summaries._planes import badge_marks, frame_marks, image_mark, two_tone

_SIDE = 36.0


@SUMMARIES.register("mask")
class Mask:
    """A mask; where it is shrunk, the tone is the share of true. Leading dimensions show their first element."""

    priority = 75

    @staticmethod
    def accepts(tensor: torch.Tensor, context: SummaryContext) -> bool:
        """Accept booleans, and rows of zeros and ones that are given to the model."""
        if tensor.dtype == torch.bool:
            return tensor.numel() > 0
        is_row = tensor.dim() == 1 and not tensor.is_floating_point() and not tensor.is_complex()
        return context.role == "input" and is_row and tensor.numel() > 1 and bool(((tensor == 0) | (tensor == 1)).all())

    @staticmethod
    def reduce(tensor: torch.Tensor, context: SummaryContext) -> Reduced:
        """Keep a uint8 map, 0 false to 255 true."""
        plane = tensor.reshape(1, -1) if tensor.dim() < 2 else tensor
        while plane.dim() > 2:
            plane = plane[0]
        share = shrink(plane.to(torch.float32)[None], context.max_side)[0]
        facts = {"map_hw": tuple(plane.shape), "true_fraction": float(plane.to(torch.float32).mean())}
        return {"cells": (share * 255).round().to(torch.uint8)}, facts

    @staticmethod
    def size(summary: Summary, context: SummaryContext) -> tuple[float, float]:
        """Return a row of 72 x 10 pt, or 36 pt a side in proportion."""
        height, width = summary.facts["map_hw"]
        if height == 1:
            return 72.0, 10.0
        stretch = sqrt(min(max(width / height, 1 / 3), 3.0))
        return _SIDE * stretch, _SIDE / stretch

    @staticmethod
    def draw(summary: Summary, box: Box, style: DrawStyle) -> tuple[Mark, ...]:
        """Draw the two tones."""
        mark = image_mark(box, summary.arrays["cells"], two_tone(style.paper, style.ink))
        return (mark, *frame_marks(box, style), *badge_marks(summary, box, style))
