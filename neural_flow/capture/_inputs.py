"""What the model's inputs tell about its other tensors: pictures that an output may be painted over, and their size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from neural_flow.records import Array
from neural_flow.summaries._base import SUMMARIES, SummaryContext, read_only
from neural_flow.summaries._pixels import MAX_INDEX
from neural_flow.summaries.volume import AXES

Arrays = dict[str, torch.Tensor]
Slices = tuple[Array, Array, Array]


@dataclass(slots=True)
class InputPictures:
    """Pictures and middle slices of the inputs, by their spatial size."""

    pictures: dict[tuple[int, ...], Array] = field(default_factory=dict[tuple[int, ...], Array])
    slices: dict[tuple[int, ...], Slices] = field(default_factory=dict[tuple[int, ...], Slices])
    ranges: dict[tuple[int, ...], tuple[float, float]] = field(
        default_factory=dict[tuple[int, ...], tuple[float, float]]
    )

    def note(
        self, sample: torch.Tensor, kind: str, arrays: Arrays, facts: Mapping[str, Any], context: SummaryContext
    ) -> SummaryContext:
        """Remember an input and return the context that the rest of the pass goes by.

        Args:
            sample: the input without batch.
            kind: how it is shown.
            arrays: its reduced form.
            facts: what was found out while it was reduced.
            context: the context until now.
        """
        if kind == "tokens":
            return replace(context, has_token_input=True, num_tokens=context.num_tokens or sample.numel())
        picture: Array | None = None
        size = tuple(sample.shape[-2:])
        if kind == "image":
            picture = read_only(arrays)["pixels"]
            size = tuple(sample.shape[:2]) if sample.dim() == 3 and sample.shape[0] not in (1, 3) else size
            self.ranges.setdefault(size, (facts["low"], facts["high"]))
        elif kind == "feature_maps":  # other modalities than colour: the first one carries the overlay
            picture = read_only(SUMMARIES.get("image").reduce(sample[:1], context)[0])["pixels"]
        elif kind == "volume":
            self.slices.setdefault(tuple(sample.shape[1:]), _grey_slices(arrays))
        else:
            return context
        if picture is not None:
            self.pictures.setdefault(size, picture)
        return context if context.input_hw is not None else replace(context, input_hw=(int(size[0]), int(size[1])))

    def context_of_output(self, leaf: torch.Tensor, context: SummaryContext) -> SummaryContext:
        """Return ``context`` with the input that has the height and width (and depth) of ``leaf``, if there is one."""
        if leaf.is_nested:
            return context
        size = tuple(leaf.shape[-2:])
        if size in self.pictures:
            context = replace(
                context,
                input_hw=(int(size[0]), int(size[1])),
                input_picture=self.pictures[size],
                input_range=self.ranges.get(size),
            )
        size = tuple(leaf.shape[-3:])
        if size in self.slices:
            depth, height, width = (int(side) for side in size)
            context = replace(context, input_dhw=(depth, height, width), input_slices=self.slices[size])
        return context


def _grey_slices(arrays: Arrays) -> Slices:
    table = np.full(256, 255, np.uint8)
    table[: MAX_INDEX + 1] = np.rint(np.linspace(0, 255, MAX_INDEX + 1))
    first, second, third = (table[read_only(arrays)[axis]] for axis in AXES)
    return first, second, third
