"""Feature maps C×H×W: a stack of front-facing planes, the most telling channel in front."""

from __future__ import annotations

import torch

from neural_flow.drawing import Box, Mark
from neural_flow.records import Summary
from neural_flow.summaries._base import SUMMARIES, DrawStyle, Reduced, SummaryContext
from neural_flow.summaries._pixels import MAX_INDEX, as_real, largest, shrink, to_indices
from neural_flow.summaries._planes import (
    Plane,
    badge_marks,
    input_side,
    map_side,
    num_planes,
    palette,
    stack_marks,
)


@SUMMARIES.register("feature_maps")
class FeatureMaps:
    """Top channels by spatial variance, ties by index; channels that hold NaN or infinity come first of all."""

    priority = 40

    @staticmethod
    def accepts(tensor: torch.Tensor, context: SummaryContext) -> bool:
        """Accept C×H×W with more than one pixel, channels first or last, outputs H×W as large as the image, groups."""
        if tensor.dim() == 2:
            is_map = context.role == "output" and context.input_picture is not None and tensor.is_floating_point()
            return is_map and tuple(tensor.shape) == context.input_hw
        if tensor.dim() == 4 and not context.has_volumes and context.role != "input":
            return not tensor.is_complex() and tensor.numel() > 0 and max(tensor.shape[2:]) > 1
        return tensor.dim() == 3 and not tensor.is_complex() and max(_channels_first(tensor, context).shape[1:]) > 1

    @staticmethod
    def reduce(tensor: torch.Tensor, context: SummaryContext) -> Reduced:
        """Keep the drawn channels, and more if asked, as uint8 maps of at most ``max_side`` pixels."""
        if tensor.dim() == 3:
            maps = _channels_first(tensor, context)
        else:  # heads or windows of maps are as many channels
            maps = tensor.reshape(-1, *tensor.shape[-2:])
        maps = maps if maps.is_floating_point() else as_real(maps)
        num_channels, height, width = maps.shape
        variance, is_zero = channel_moments(maps)
        drawn = num_planes(num_channels, context.max_planes)
        kept = max(drawn, min(context.max_channels, num_channels))
        order = largest(variance, kept)
        shown = shrink(as_real(maps[order]), context.max_side)
        indices, facts = to_indices(shown, context.norm, is_grey=context.role == "input")
        return {"planes": indices}, {
            **facts,
            "channels": tuple(order.tolist()),
            "num_channels": num_channels,
            "num_planes": drawn,
            "map_hw": (height, width),
            "dead": tuple(is_zero[order[:drawn]].tolist()),
            "num_dead": int(is_zero.sum()),
            "caption": f"{drawn} of {num_channels} channels",
        }

    @staticmethod
    def size(summary: Summary, context: SummaryContext) -> tuple[float, float]:
        """Return the front plane's size by resolution, plus the planes behind it."""
        height, width = summary.facts["map_hw"]
        side = map_side(height, width, input_side(summary, context.input_hw))
        depth = 2.3 * (summary.facts["num_planes"] - 1)
        return side[0] + depth, side[1] + depth

    @staticmethod
    def draw(summary: Summary, box: Box, style: DrawStyle) -> tuple[Mark, ...]:
        """Draw the stack."""
        facts = summary.facts
        colors = palette(style, bool(facts.get("is_signed")), is_grey=bool(facts.get("is_grey")))
        shown = summary.arrays["planes"][: facts["num_planes"]]
        planes = [
            Plane(pixels=pixels, palette=colors, is_dead=is_dead, is_constant=is_constant)
            for pixels, is_dead, is_constant in zip(shown, facts["dead"], constant_planes(summary), strict=True)
        ]
        return (*stack_marks(box, planes, style), *badge_marks(summary, box, style))


def constant_planes(summary: Summary) -> list[bool]:
    """Return for each drawn channel whether it is constant without being dead; nothing for other kinds."""
    if summary.kind != "feature_maps" or "planes" not in summary.arrays:
        return []
    shown = summary.arrays["planes"][: summary.facts["num_planes"]]
    return [
        not is_dead and bool((pixels == MAX_INDEX // 2).all())
        for pixels, is_dead in zip(shown, summary.facts["dead"], strict=True)
    ]


def _channels_first(tensor: torch.Tensor, context: SummaryContext) -> torch.Tensor:
    """Return ``[C, H, W]``; some vision transformers hand on ``[H, W, C]``, which only its proportions tell."""
    first, second, third = tensor.shape
    if context.input_hw is None or min(context.input_hw) == 0:
        is_last = first == second != third and first > 3
    else:
        aspect = context.input_hw[0] / context.input_hw[1]
        is_last = _misfit(first, second, aspect) < 0.05 and _misfit(second, third, aspect) > 0.2
    return tensor.permute(2, 0, 1) if is_last else tensor


def _misfit(height: int, width: int, aspect: float) -> float:
    return abs(height / width / aspect - 1) if width else torch.inf


def channel_moments(maps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return variance ``[C]`` float64 (infinite where not all is finite) and whether a channel is all zero."""
    count = maps.shape[1] * maps.shape[2]
    kind = torch.float64 if maps.dtype == torch.float64 else torch.float32
    # Two passes of sums cost a tenth of torch.var; where they cancel, the exact way is taken for these channels only.
    mean = maps.sum(dim=(1, 2), dtype=kind).double() / count
    norm = torch.linalg.vector_norm(maps, dim=(1, 2), dtype=kind).double()
    square = norm * norm / count
    variance = square - mean * mean
    is_cancelled = (variance < 1e-4 * square) & torch.isfinite(square)
    if bool(is_cancelled.any()):
        variance[is_cancelled] = as_real(maps[is_cancelled]).flatten(1).var(dim=1, correction=0).double()
    is_zero = norm == 0
    if bool(is_zero.any()):  # squares of tiny values vanish, the values do not
        is_zero[is_zero.clone()] = (maps[is_zero] == 0).flatten(1).all(dim=1)
    variance[~torch.isfinite(variance)] = torch.inf
    variance[is_zero] = -1.0  # a constant channel says more than a dead one
    return variance, is_zero
