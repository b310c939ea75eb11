"""Segmentations: the winning class painted over the input picture."""

from __future__ import annotations

import numpy as np
import torch

from neural_flow.drawing import Box, Mark
from neural_flow.records import Array, Summary
from neural_flow.summaries._base import SUMMARIES, DrawStyle, Reduced, SummaryContext
from neural_flow.summaries._colormaps import colormap
from neural_flow.summaries._evidence import are_pixel_scores
from neural_flow.summaries._pixels import as_real
from neural_flow.summaries._planes import badge_marks, frame_marks, image_mark
from neural_flow.summaries.image import picture_size
from neural_flow.theme import rgb

_OVERLAY = 0.38
_MIN_SIDE = 96  # below this an outline of two pixels would cover the objects: enlarge first
_MAX_CLASSES = 256


@SUMMARIES.register("segmentation")
class Segmentation:
    """Argmax of K×H×W scores over the input; one channel is cut at 0, or at 0.5 where all values are in [0, 1]."""

    priority = 50

    @staticmethod
    def accepts(tensor: torch.Tensor, context: SummaryContext) -> bool:
        """Accept outputs with the input's height and width that are no features, depths or pictures; class maps H×W."""
        if context.role != "output" or context.input_picture is None or tensor.is_complex():
            return False
        shape = tuple(tensor.shape)
        if len(shape) == 2:
            return shape == context.input_hw and not tensor.is_floating_point()
        is_overlay = len(shape) == 3 and shape[0] <= _MAX_CLASSES and shape[1:] == context.input_hw
        return is_overlay and are_pixel_scores(tensor, context)

    @staticmethod
    def reduce(tensor: torch.Tensor, context: SummaryContext) -> Reduced:
        """Keep uint8 classes at the size of the input picture, and the picture."""
        picture = context.input_picture
        if picture is None:
            raise ValueError("a segmentation is drawn over an input picture, and there is none")
        height, width = tensor.shape[-2:]
        shown, num_classes = classes_of(sampled(tensor, picture))
        present = torch.bincount(shown.reshape(-1).long()).tolist()
        names = context.labels if len(context.labels) == num_classes else ()
        found = [k for k, count in enumerate(present) if count and k]
        return {"classes": shown.to(torch.uint8), "picture": torch.from_numpy(np.array(picture))}, {
            "map_hw": (height, width),
            "num_classes": num_classes,
            "present": tuple(found),
            "names": tuple(names[k] for k in found if k < len(names)),
            "caption": f"{len(found)} of {num_classes} classes over the input; class 0 is not painted",
        }

    @staticmethod
    def size(summary: Summary, context: SummaryContext) -> tuple[float, float]:
        """Return the size of the input picture."""
        return picture_size(*summary.facts["map_hw"])

    @staticmethod
    def draw(summary: Summary, box: Box, style: DrawStyle) -> tuple[Mark, ...]:
        """Draw the overlay in the frame of a picture."""
        pixels = overlay(summary.arrays["picture"], summary.arrays["classes"], class_colors(style))
        return (image_mark(box, pixels, None), *frame_marks(box, style), *badge_marks(summary, box, style))


def sampled(tensor: torch.Tensor, picture: Array) -> torch.Tensor:
    """Return the pixels of ``[..., H, W]`` scores that lie under those of a smaller picture, none averaged."""
    height, width = tensor.shape[-2:]
    if picture.shape[:2] == (height, width):
        return tensor
    rows = torch.linspace(0, height - 1, picture.shape[0], device=tensor.device).round().long()
    columns = torch.linspace(0, width - 1, picture.shape[1], device=tensor.device).round().long()
    return tensor[..., rows, :][..., columns]


def class_colors(style: DrawStyle) -> Array:
    """Return uint8 ``[256, 3]``: the colour of each class; the first object class has the accent colour."""
    table = np.array(colormap("okabe_ito"))
    table = np.delete(table[:8], [2, 7], axis=0)  # the accent is that green, and black cannot be seen
    accent = np.asarray([[min(part + 30, 255) for part in rgb(style.accent)]], np.uint8)
    return np.resize(np.concatenate([table[:1] * 0, accent, table]), (256, 3)).astype(np.uint8)


def overlay(picture: Array, classes: Array, colors: Array) -> Array:
    """Return uint8 ``[H, W, 3]``: the picture, classes over 0 at 38 % and their outlines, two pixels wide."""
    rgb_picture = np.repeat(picture[:, :, None], 3, axis=2) if picture.ndim == 2 else picture
    factor = max(1, -(-_MIN_SIDE // max(classes.shape)))
    classes = classes.repeat(factor, axis=0).repeat(factor, axis=1)
    base = rgb_picture.repeat(factor, axis=0).repeat(factor, axis=1).astype(np.float32)
    ink = colors[classes].astype(np.float32)
    painted = np.where((classes > 0)[:, :, None], base * (1 - _OVERLAY) + ink * _OVERLAY, base)
    inner, edge_ink = _outline(classes, ink)
    return np.rint(np.where(inner[:, :, None], edge_ink, painted)).astype(np.uint8)


def _outline(classes: Array, ink: Array) -> tuple[Array, Array]:
    """Return where outlines lie, one pixel on either side of each border, and their colours."""
    line = np.zeros(classes.shape, bool)
    color = ink.copy()
    for axis in (0, 1):
        before = [slice(None), slice(None)]
        after = [slice(None), slice(None)]
        before[axis], after[axis] = slice(None, -1), slice(1, None)
        first, second = tuple(before), tuple(after)
        differs = classes[first] != classes[second]
        for own, other in ((first, second), (second, first)):
            line[own] |= differs
            is_background = differs & (classes[own] == 0)
            color[own][is_background] = ink[other][is_background]
    return line, color


def classes_of(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return the winning class of each pixel of ``[K, ...]`` scores (or of a class map), and how many there are."""
    if tensor.dim() == 2:
        whole = tensor.long().clamp(0, _MAX_CLASSES - 1)
        return whole, int(whole.max()) + 1
    scores = as_real(tensor)
    if scores.shape[0] == 1:
        is_share = bool(((scores >= 0) & (scores <= 1)).all())
        return (scores[0] > (0.5 if is_share else 0.0)).long(), 2
    best = scores[0].nan_to_num(-torch.inf, torch.inf, -torch.inf)
    classes = torch.zeros(best.shape, dtype=torch.long, device=best.device)
    for index in range(1, scores.shape[0]):  # for few classes faster than argmax over the first dimension
        is_better = scores[index] > best
        best = torch.where(is_better, scores[index], best)
        classes.masked_fill_(is_better, index)
    return classes, scores.shape[0]
