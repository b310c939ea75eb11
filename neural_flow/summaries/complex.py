"""Complex tensors: the phase as hue, the magnitude as lightness."""

from __future__ import annotations

import numpy as np
import torch

from neural_flow.drawing import Box, Mark
from neural_flow.records import Array, Summary
from neural_flow.summaries._base import SUMMARIES, DrawStyle, Reduced, SummaryContext
from neural_flow.summaries._pixels import MAX_INDEX, NOT_A_NUMBER, quantise, shrink, value_range
from neural_flow.summaries._planes import Plane, badge_marks, input_side, map_side, stack_marks
from neural_flow.theme import rgb

_STRIP = (64.0, 10.0)
_MATRIX = (60.0, 40.0)


@SUMMARIES.register("complex")
class Complex:
    """The channel whose magnitude varies most, a matrix or a strip; magnitude up to its 99th percentile."""

    priority = 90

    @staticmethod
    def accepts(tensor: torch.Tensor, context: SummaryContext) -> bool:
        """Accept complex tensor."""
        return tensor.is_complex() and tensor.numel() > 1

    @staticmethod
    def reduce(tensor: torch.Tensor, context: SummaryContext) -> Reduced:
        """Keep magnitude and phase of one plane as uint8 maps."""
        num_channels = 1
        if tensor.dim() > 2:
            planes = tensor.reshape(-1, *tensor.shape[-2:])
            num_channels = planes.shape[0]
            spread = planes.abs().flatten(1).var(dim=1, correction=0).nan_to_num(torch.inf, torch.inf)
            plane = planes[int(torch.argmax(spread))]
        else:
            plane = tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() == 2 else tensor.reshape(1, -1)
        # phases must not be averaged across their cut: real and imaginary parts are
        parts = shrink(torch.view_as_real(plane.resolve_conj()).permute(2, 0, 1), context.max_side)
        magnitude = torch.hypot(parts[0], parts[1])[None]
        _, high = value_range(magnitude, False, "stage")
        low = torch.zeros_like(high)
        phase = (torch.atan2(parts[1], parts[0]) / (2 * torch.pi) + 0.5).nan_to_num(0.0) * 255
        return {"magnitude": quantise(magnitude, low, high)[0], "phase": phase.round().to(torch.uint8)}, {
            "rank": min(tensor.dim(), 3),
            "map_hw": tuple(plane.shape),
            "num_channels": num_channels,
            "high": tuple(high.tolist()),
            "caption": "hue is the phase, lightness the magnitude",
        }

    @staticmethod
    def size(summary: Summary, context: SummaryContext) -> tuple[float, float]:
        """Return the size of the real tensor of this shape."""
        if summary.facts["rank"] < 3:
            return _STRIP if summary.facts["rank"] < 2 else _MATRIX
        height, width = summary.facts["map_hw"]
        return map_side(height, width, input_side(summary, context.input_hw))

    @staticmethod
    def draw(summary: Summary, box: Box, style: DrawStyle) -> tuple[Mark, ...]:
        """Draw the plane."""
        pixels = _pixels(summary.arrays["magnitude"], summary.arrays["phase"], style)
        return (*stack_marks(box, [Plane(pixels=pixels)], style), *badge_marks(summary, box, style))


def _pixels(magnitude: Array, phase: Array, style: DrawStyle) -> Array:
    light = np.minimum(magnitude, MAX_INDEX)[:, :, None].astype(np.float32) / MAX_INDEX
    pixels = np.rint(style.cyclic[phase].astype(np.float32) * light).astype(np.uint8)
    pixels[magnitude == NOT_A_NUMBER] = rgb(style.not_a_number)
    return pixels
