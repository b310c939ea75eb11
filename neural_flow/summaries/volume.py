"""Volumes C×D×H×W: the three middle slices of the most telling channel."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from neural_flow.drawing import Box, Mark, Text
from neural_flow.records import Array, Summary
from neural_flow.summaries._base import SUMMARIES, DrawStyle, Reduced, SummaryContext
from neural_flow.summaries._pixels import as_real, is_signed, quantise, shrink, value_range
from neural_flow.summaries._planes import badge_marks, frame_marks, image_mark, palette, two_tone
from neural_flow.summaries.feature_maps import channel_moments

_SLICE, _GAP, _TAG = 24.0, 3.0, 6.5
AXES = "zyx"
SLICES_SIZE = (3 * _SLICE + 2 * _GAP, _SLICE + _TAG)


@SUMMARIES.register("volume")
class Volume:
    """Slices across the z, y and x axis, on one scale; of an input in grey."""

    priority = 40

    @staticmethod
    def accepts(tensor: torch.Tensor, context: SummaryContext) -> bool:
        """Accept C×D×H×W with an extent, in a model that works on volumes."""
        is_volume = tensor.dim() == 4 and (context.has_volumes or context.role == "input")
        return is_volume and not tensor.is_complex() and tensor.numel() > 0 and max(tensor.shape[1:]) > 1

    @staticmethod
    def reduce(tensor: torch.Tensor, context: SummaryContext) -> Reduced:
        """Keep three uint8 slices."""
        volume = tensor if tensor.is_floating_point() else as_real(tensor)
        channels = volume.shape[0]
        variance, is_zero = channel_moments(volume.flatten(1, 2))
        top = int(torch.argmax(variance))
        chosen = volume[top]
        shown = [shrink(as_real(plane)[None], context.max_side // 2)[0] for plane in middle_slices(chosen)]
        values = torch.cat([plane.reshape(-1) for plane in shown])[None]
        is_grey = context.role == "input"
        signed = not is_grey and is_signed(values)
        low, high = value_range(values, signed, "stage")
        arrays = {axis: quantise(plane[None], low, high)[0] for axis, plane in zip(AXES, shown, strict=True)}
        return arrays, {
            **({"is_grey": True} if is_grey else {"is_signed": signed}),
            "low": tuple(low.tolist()),
            "high": tuple(high.tolist()),
            "channel": top,
            "num_channels": channels,
            "num_dead": int(is_zero.sum()),
            "dead": (bool(is_zero[top]),),
            "caption": f"middle slices of channel {top}, 1 of {channels}",
        }

    @staticmethod
    def size(summary: Summary, context: SummaryContext) -> tuple[float, float]:
        """Return three slices of 24 pt and their tags."""
        return SLICES_SIZE

    @staticmethod
    def draw(summary: Summary, box: Box, style: DrawStyle) -> tuple[Mark, ...]:
        """Draw the slices side by side, each tagged with the axis that it cuts across."""
        colors = _colors(summary, style)
        pictures = [(summary.arrays[axis], colors) for axis in AXES]
        return (*slice_marks(box, pictures, style), *badge_marks(summary, box, style))


def middle_slices(volume: torch.Tensor) -> list[torch.Tensor]:
    """Return the slices ``[..., H, W]``, ``[..., D, W]``, ``[..., D, H]`` through the middle of ``[..., D, H, W]``."""
    depth, height, width = volume.shape[-3:]
    return [volume.select(-3, depth // 2), volume.select(-2, height // 2), volume.select(-1, width // 2)]


def slice_marks(box: Box, pictures: Sequence[tuple[Array, Array | None]], style: DrawStyle) -> list[Mark]:
    """Return three slices (pixels and their palette) side by side, with tags."""
    side = min((box.width - 2 * _GAP) / 3, box.height - _TAG)
    marks: list[Mark] = []
    for index, ((pixels, colors), axis) in enumerate(zip(pictures, AXES, strict=True)):
        x = box.x + index * ((box.width - side) / 2)
        place = _fitted(pixels, x, box.y, side)
        marks += [image_mark(place, pixels, colors), *frame_marks(place, style)]
        tag = Text(
            x=x + side / 2,
            y=box.y + side + _TAG - 1.2,
            text=axis,
            size=style.small_size,
            color=style.sub,
            anchor="middle",
        )
        marks.append(tag)
    return marks


def _colors(summary: Summary, style: DrawStyle) -> Array:
    if summary.facts["dead"][0]:
        return two_tone(style.dead, style.dead)
    return palette(style, bool(summary.facts.get("is_signed")), is_grey=bool(summary.facts.get("is_grey")))


def _fitted(cells: Array, x: float, y: float, side: float) -> Box:
    """Return the largest box of the slice's proportions in a square, in its middle; very flat slices are stretched."""
    aspect = min(max(cells.shape[0] / cells.shape[1], 0.2), 5.0)
    wide, tall = (side, side * aspect) if aspect <= 1 else (side / aspect, side)
    return Box(x=x + (side - wide) / 2, y=y + (side - tall) / 2, width=wide, height=tall)
