"""Pictures: an image given to the model, or made by it."""

from __future__ import annotations

from math import isfinite, sqrt

import torch

from neural_flow.drawing import Box, Mark
from neural_flow.records import Summary
from neural_flow.summaries._base import SUMMARIES, DrawStyle, Reduced, SummaryContext
from neural_flow.summaries._colormaps import colormap
from neural_flow.summaries._evidence import BOUNDED_OPS, are_shares, last_op, meaning_of
from neural_flow.summaries._pixels import as_real, shrink
from neural_flow.summaries._planes import badge_marks, frame_marks, image_mark

_SIDE = 46.0
_MIN_PIXELS = 4


@SUMMARIES.register("image")
class Picture:
    """A grey or colour picture, shown as people see it: normalisation undone if known, else from least to most."""

    priority = 60

    @staticmethod
    def accepts(tensor: torch.Tensor, context: SummaryContext) -> bool:
        """Accept inputs of 1 or 3 channels (or a square H×W), and outputs of which something says that they are one."""
        if tensor.is_complex() or context.role not in ("input", "output"):
            return False
        shape = tuple(tensor.shape)
        if context.role == "input":
            is_plane = len(shape) == 2 and shape[0] == shape[1] and min(shape) >= 16 and not _is_index(tensor)
            return is_plane or _is_picture_shape(shape)
        return _is_picture_shape(shape) and _is_picture(tensor, context)

    @staticmethod
    def reduce(tensor: torch.Tensor, context: SummaryContext) -> Reduced:
        """Keep uint8 ``[H, W]`` or ``[H, W, 3]`` of at most ``max_side`` pixels a side."""
        planes = tensor[None] if tensor.dim() == 2 else tensor
        if planes.shape[0] not in (1, 3):
            planes = planes.permute(2, 0, 1)
        height, width = planes.shape[-2:]
        is_bytes = planes.dtype == torch.uint8
        shown = shrink(as_real(planes), context.max_side)
        low, high = _range(shown, context, is_bytes)
        if context.image_mean and len(context.image_mean) == shown.shape[0]:
            mean, std = (shown.new_tensor(value)[:, None, None] for value in (context.image_mean, context.image_std))
            shown, low, high = shown * std + mean, 0.0, 1.0
        scaled = (shown.nan_to_num(0.0, high, low) - low) * (255.0 / (high - low) if high > low else 0.0)
        pixels = scaled.clamp_(0, 255).round_().to(torch.uint8)
        facts = {"low": low, "high": high, "map_hw": (height, width), "num_channels": planes.shape[0]}
        bad = torch.isnan(shown).any(dim=0)
        if bool(bad.any()):
            pixels = pixels.expand(3, -1, -1).clone()
            pixels[:, bad] = pixels.new_tensor([0x39, 0xFF, 0x14])[:, None]  # NaN is green wherever it shows
        return {"pixels": pixels[0] if pixels.shape[0] == 1 else pixels.permute(1, 2, 0).contiguous()}, facts

    @staticmethod
    def size(summary: Summary, context: SummaryContext) -> tuple[float, float]:
        """Return 46 pt a side, in proportion."""
        return picture_size(*summary.facts["map_hw"])

    @staticmethod
    def draw(summary: Summary, box: Box, style: DrawStyle) -> tuple[Mark, ...]:
        """Draw the picture in its frame."""
        pixels = summary.arrays["pixels"]
        mark = image_mark(box, pixels, colormap("gray") if pixels.ndim == 2 else None)
        return (mark, *frame_marks(box, style), *badge_marks(summary, box, style))


def picture_size(height: int, width: int) -> tuple[float, float]:
    """Return width and height in points of a picture of so many pixels."""
    stretch = sqrt(min(max(width / max(height, 1), 1 / 3), 3.0))
    return _SIDE * stretch, _SIDE / stretch


def _is_picture_shape(shape: tuple[int, ...]) -> bool:
    if len(shape) != 3:
        return False
    is_first = shape[0] in (1, 3) and min(shape[1:]) >= _MIN_PIXELS
    return is_first or (shape[2] == 3 and min(shape[:2]) >= 16)


def _is_picture(tensor: torch.Tensor, context: SummaryContext) -> bool:
    """Return whether an output is a picture: by its name, its bounds, or because it is like the one that went in.

    One channel, or signed values of any size, may be as much a feature map, a depth, a mask.
    """
    meaning = meaning_of(context)
    channels = tensor if tensor.shape[0] in (1, 3) else tensor.permute(2, 0, 1)
    if meaning is not None:
        return meaning == "picture"
    if channels.shape[0] != 3 or are_shares(channels) or not _move_together(channels):
        return False
    if tensor.dtype == torch.uint8 or last_op(context) in BOUNDED_OPS:
        return True
    picture = context.input_picture
    # over a grey input, or one of other modalities, three channels are three classes
    if picture is None or picture.ndim == 2 or context.input_hw != channels.shape[1:] or context.input_range is None:
        return False
    (least, most), (low, high) = context.input_range, (float(end) for end in torch.aminmax(as_real(channels)))
    room = 0.25 * (most - least)
    return low >= least - room and high <= most + room and high - low >= room


def _is_index(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() and tensor.dtype != torch.uint8


def _move_together(tensor: torch.Tensor) -> bool:
    """Return whether three channels look like red, green and blue: class scores compete, colours do not."""
    rows = as_real(tensor)[:, :: max(1, tensor.shape[1] // 64), :: max(1, tensor.shape[2] // 64)].flatten(1)
    rows = rows - rows.mean(dim=1, keepdim=True)
    scale = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    if not bool((scale > 0).all()) or not bool(torch.isfinite(scale).all()):
        return False
    together = (rows / scale) @ (rows / scale).T
    return float(together.sum() - together.diagonal().sum()) / 6 > -0.1


def _range(shown: torch.Tensor, context: SummaryContext, is_bytes: bool) -> tuple[float, float]:
    if is_bytes:
        return 0.0, 255.0
    low, high = float(shown.amin()), float(shown.amax())
    if not (isfinite(low) and isfinite(high)):
        finite = shown[torch.isfinite(shown)]
        if finite.numel() == 0:
            return 0.0, 1.0
        low, high = float(finite.amin()), float(finite.amax())
    is_plain = low >= 0 and 0.5 <= high <= 1
    return (0.0, 1.0) if is_plain else (low, high)
