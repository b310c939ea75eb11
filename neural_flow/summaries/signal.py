"""Signals C×L, as one-dimensional convolutions make them: time to the right."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np
import torch

from neural_flow.drawing import Box, Mark, Path
from neural_flow.records import Summary
from neural_flow.summaries._base import SUMMARIES, DrawStyle, Reduced, SummaryContext
from neural_flow.summaries._pixels import as_real, shrink, to_indices
from neural_flow.summaries._planes import (
    IMAGE_LAYER,
    badge_marks,
    frame_marks,
    image_mark,
    infinity_marks,
    palette,
)

_WIDTH, _HEIGHT = 72.0, 28.0
_MAX_LINES = 8
_MIN_LENGTH = 8
_MIN_SERIES = 16
_MIN_RECORDING = 1000  # a longer input vector is a recording sooner than a row of a table


@SUMMARIES.register("signal")
class Signal:
    """Up to eight channels as lines (the range of values at each moment), more as a heat map."""

    priority = 48

    @staticmethod
    def accepts(tensor: torch.Tensor, context: SummaryContext) -> bool:
        """Accept C×L where convolutions over one dimension are at work, long narrow inputs, and series T×1."""
        if tensor.dim() == 1:
            return context.role == "input" and tensor.is_floating_point() and tensor.numel() >= _MIN_RECORDING
        if tensor.dim() != 2 or tensor.is_complex() or tensor.shape[1] < 1 or tensor.shape[0] < 1:
            return False
        channels, length = tensor.shape
        if _is_series(tensor):
            return True
        if length < 2:
            return False
        is_one_dimensional = context.has_conv1d or context.class_name.endswith("1d")
        is_recording = context.role == "input" and length >= _MIN_LENGTH and length >= 4 * channels
        return is_one_dimensional or (is_recording and tensor.is_floating_point())

    @staticmethod
    def reduce(tensor: torch.Tensor, context: SummaryContext) -> Reduced:
        """Keep the lowest and highest value of each moment, or a uint8 map."""
        tensor = tensor.T if tensor.dim() == 2 and _is_series(tensor) else torch.atleast_2d(tensor)
        channels, length = tensor.shape
        if channels <= _MAX_LINES:
            low, high = _envelope(as_real(tensor), context.max_side)
            return {"low": low, "high": high}, {"num_channels": channels, "length": length}
        indices, facts = to_indices(shrink(as_real(tensor)[None], context.max_side), "stage")
        return {"cells": indices[0]}, {**facts, "num_channels": channels, "length": length}

    @staticmethod
    def size(summary: Summary, context: SummaryContext) -> tuple[float, float]:
        """Return 72 x 28 pt."""
        return _WIDTH, _HEIGHT

    @staticmethod
    def draw(summary: Summary, box: Box, style: DrawStyle) -> tuple[Mark, ...]:
        """Draw lines, or the map in its frame."""
        if "cells" in summary.arrays:
            cells = summary.arrays["cells"]
            marks: list[Mark] = [image_mark(box, cells, palette(style, bool(summary.facts["is_signed"])))]
            marks += [*infinity_marks(box, cells, style), *frame_marks(box, style)]
        else:
            marks = _lines(summary, box, style)
        return (*marks, *badge_marks(summary, box, style))


def _is_series(tensor: torch.Tensor) -> bool:
    """Return whether a matrix T×1 is one value after the other: what goes into a recurrent network, and comes out."""
    return tensor.shape[1] == 1 and tensor.shape[0] >= _MIN_SERIES and tensor.is_floating_point()


def _envelope(rows: torch.Tensor, most: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return lowest and highest value ``[C, n]`` of n ≤ ``most`` equal spans; NaN where a span holds none finite."""
    channels, length = rows.shape
    span = -(-length // most)
    rows = torch.where(torch.isfinite(rows), rows, torch.nan)
    rows = torch.nn.functional.pad(rows, (0, -length % span), value=torch.nan).reshape(channels, -1, span)
    low = rows.nan_to_num(torch.inf).amin(dim=2)
    high = rows.nan_to_num(-torch.inf).amax(dim=2)
    is_empty = low > high
    return low.masked_fill(is_empty, torch.nan).float(), high.masked_fill(is_empty, torch.nan).float()


def _lines(summary: Summary, box: Box, style: DrawStyle) -> list[Mark]:
    low, high = summary.arrays["low"], summary.arrays["high"]
    pitch = box.height / len(low)
    marks: list[Mark] = []
    for index in range(len(low)):
        top = box.y + pitch * index + pitch * 0.08
        room = pitch * 0.84
        finite = [value for value in (*low[index].tolist(), *high[index].tolist()) if isfinite(value)]
        least, most = (min(finite), max(finite)) if finite else (0.0, 1.0)
        scale = room / (most - least) if most > least else 0.0
        offset = 0.0 if most > least else room / 2
        step = box.width / max(low.shape[1] - 1, 1)
        xs = box.x + np.arange(low.shape[1]) * step
        lows = top + room - offset - (low[index] - least) * scale
        highs = top + room - offset - (high[index] - least) * scale
        middle = top + room / 2
        rule = (("M", box.x, middle), ("L", box.x + box.width, middle))
        marks.append(Path(commands=rule, stroke=style.hair, stroke_width=0.3, layer=IMAGE_LAYER))
        commands = _zigzag(xs.tolist(), lows.tolist(), highs.tolist())
        if commands:
            marks.append(Path(commands=commands, stroke=style.ink, stroke_width=0.5, layer=IMAGE_LAYER + 0.1))
    return marks


def _zigzag(xs: list[float], lows: list[float], highs: list[float]) -> tuple[tuple[Any, ...], ...]:
    """Return one line through the low and high end of every span, broken where a span holds no value."""
    commands: list[tuple[Any, ...]] = []
    is_down = False
    for x, low, high in zip(xs, lows, highs, strict=True):
        if not (isfinite(low) and isfinite(high)):
            is_down = False
            continue
        ends = (low,) if low == high else (low, high)
        for y in ends:
            commands.append(("L" if is_down else "M", x, y))
            is_down = True
    return tuple(commands)
