"""Classes of tokens: the winning class of each token, by name."""

from __future__ import annotations

import torch

from neural_flow.drawing import Box, Mark
from neural_flow.records import Summary
from neural_flow.summaries._base import SUMMARIES, DrawStyle, Reduced, SummaryContext
from neural_flow.summaries._chips import chip_lines, chip_marks, chips_size
from neural_flow.summaries._pixels import as_real
from neural_flow.summaries._planes import badge_marks

_MAX_TOKENS = 96
_MIN_VOCABULARY = 256
"""So many classes are the next token, of which only the last one is worth showing."""


@SUMMARIES.register("token_classes")
class TokenClasses:
    """Argmax of an output T×K whose K classes have names; coloured as tokens with these ids are."""

    priority = 58

    @staticmethod
    def accepts(tensor: torch.Tensor, context: SummaryContext) -> bool:
        """Accept outputs with a named class for every score, if the names fit a card."""
        if context.role != "output" or not tensor.is_floating_point() or tensor.dim() != 2 or not tensor.numel():
            return False
        if not 1 < tensor.shape[1] < _MIN_VOCABULARY or tensor.shape[0] > _MAX_TOKENS:
            return False
        if len(context.labels) != tensor.shape[1]:
            return False
        return chip_lines(_names(_winners(tensor), context)) is not None

    @staticmethod
    def reduce(tensor: torch.Tensor, context: SummaryContext) -> Reduced:
        """Keep the winning class of each token."""
        scores, winners = as_real(tensor), _winners(tensor)
        names = _names(winners, context)
        return {"ids": winners}, {
            "names": names,
            "details": (" ".join(names),),
            "num_classes": tensor.shape[1],
            "num_nan": int(scores.isnan().sum()),
            "num_inf": int(scores.isinf().sum()),
            "caption": f"most probable of {tensor.shape[1]} classes, for each of {tensor.shape[0]} tokens",
        }

    @staticmethod
    def size(summary: Summary, context: SummaryContext) -> tuple[float, float]:
        """Return the size of the lines that the names fill."""
        return chips_size(_lines(summary))

    @staticmethod
    def draw(summary: Summary, box: Box, style: DrawStyle) -> tuple[Mark, ...]:
        """Draw the names in lines."""
        return (*chip_marks(_lines(summary), summary.arrays["ids"], box, style), *badge_marks(summary, box, style))


def _winners(scores: torch.Tensor) -> torch.Tensor:
    return as_real(scores).nan_to_num(-torch.inf, torch.inf, -torch.inf).argmax(dim=1)


def _names(winners: torch.Tensor, context: SummaryContext) -> tuple[str, ...]:
    return tuple(context.labels[index] for index in winners.tolist())


def _lines(summary: Summary) -> list[list[tuple[int, str, float]]]:
    lines = chip_lines(summary.facts["names"])
    if lines is None:
        raise ValueError("the names of the classes do not fit a card")
    return lines
