"""Segmentations of volumes: the winning class painted over the middle slices of the input."""

from __future__ import annotations

import numpy as np
import torch

from neural_flow.drawing import Box, Mark
from neural_flow.records import Summary
from neural_flow.summaries._base import SUMMARIES, DrawStyle, Reduced, SummaryContext
from neural_flow.summaries._evidence import are_pixel_scores
from neural_flow.summaries._planes import badge_marks
from neural_flow.summaries.segmentation import class_colors, classes_of, overlay, sampled
from neural_flow.summaries.volume import AXES, SLICES_SIZE, middle_slices, slice_marks

_MAX_CLASSES = 256


@SUMMARIES.register("volume_segmentation")
class VolumeSegmentation:
    """Argmax of K×D×H×W scores in the slices across z, y and x."""

    priority = 50

    @staticmethod
    def accepts(tensor: torch.Tensor, context: SummaryContext) -> bool:
        """Accept outputs with the depth, height and width of the input volume."""
        if context.role != "output" or context.input_slices is None or tensor.is_complex():
            return False
        is_overlay = tensor.dim() == 4 and tensor.shape[0] <= _MAX_CLASSES
        return is_overlay and tuple(tensor.shape[1:]) == context.input_dhw and are_pixel_scores(tensor, context)

    @staticmethod
    def reduce(tensor: torch.Tensor, context: SummaryContext) -> Reduced:
        """Keep uint8 classes and picture of each slice."""
        if context.input_slices is None:
            raise ValueError("a segmentation is drawn over an input volume, and there is none")
        arrays: dict[str, torch.Tensor] = {}
        present: set[int] = set()
        num_classes = 0
        for axis, scores, picture in zip(AXES, middle_slices(tensor), context.input_slices, strict=True):
            classes, num_classes = classes_of(sampled(scores, picture))
            present.update(classes.unique().tolist())
            arrays[axis] = classes.to(torch.uint8)
            arrays[f"{axis}_picture"] = torch.from_numpy(np.array(picture))
        found = sorted(present - {0})
        names = context.labels if len(context.labels) == num_classes else ()
        return arrays, {
            "num_classes": num_classes,
            "present": tuple(found),
            "names": tuple(names[k] for k in found if k < len(names)),
            "caption": f"{len(found)} of {num_classes} classes over the middle slices; class 0 is not painted",
        }

    @staticmethod
    def size(summary: Summary, context: SummaryContext) -> tuple[float, float]:
        """Return the size of a volume's slices."""
        return SLICES_SIZE

    @staticmethod
    def draw(summary: Summary, box: Box, style: DrawStyle) -> tuple[Mark, ...]:
        """Draw the three overlays."""
        colors = class_colors(style)
        pictures = [(overlay(summary.arrays[f"{axis}_picture"], summary.arrays[axis], colors), None) for axis in AXES]
        return (*slice_marks(box, pictures, style), *badge_marks(summary, box, style))
