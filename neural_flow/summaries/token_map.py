"""Sequences T×D: a heat map, tokens downwards, features to the right."""

from __future__ import annotations

import torch

from neural_flow.drawing import Box, Mark
from neural_flow.records import Summary
from neural_flow.summaries._base import SUMMARIES, DrawStyle, Reduced, SummaryContext
from neural_flow.summaries._pixels import as_real, largest, shrink, to_indices
from neural_flow.summaries._planes import badge_marks, cell_marks, frame_marks

_MAX_COLUMNS = 96
_MAX_BLOCK = 1 << 19  # values of the temporaries: scores of a whole vocabulary are as large as all else together


@SUMMARIES.register("token_map")
class TokenMap:
    """A matrix of tokens by features; of many features the 96 that vary most over the tokens, in their order."""

    priority = 30

    @staticmethod
    def accepts(tensor: torch.Tensor, context: SummaryContext) -> bool:
        """Accept any real matrix."""
        return tensor.dim() == 2 and not tensor.is_complex() and tensor.numel() > 0

    @staticmethod
    def reduce(tensor: torch.Tensor, context: SummaryContext) -> Reduced:
        """Keep a uint8 map of at most ``max_side`` x 96 cells."""
        num_tokens, num_features = tensor.shape
        shown = tensor
        columns: tuple[int, ...] = ()
        if num_features > _MAX_COLUMNS:
            kept = largest(_spread(tensor[:: max(1, num_tokens // 256)]), _MAX_COLUMNS).sort().values
            columns, shown = tuple(kept.tolist()), tensor[:, kept]
        indices, facts = to_indices(shrink(as_real(shown)[None], context.max_side), "stage")
        return {"cells": indices[0]}, {
            **facts,
            "num_tokens": num_tokens,
            "num_features": num_features,
            "columns": columns,
        }

    @staticmethod
    def size(summary: Summary, context: SummaryContext) -> tuple[float, float]:
        """Return 60 x 40 pt."""
        return 60.0, 40.0

    @staticmethod
    def draw(summary: Summary, box: Box, style: DrawStyle) -> tuple[Mark, ...]:
        """Draw the map in a thin frame."""
        return (*cell_marks(box, summary, style), *frame_marks(box, style), *badge_marks(summary, box, style))


def _spread(rows: torch.Tensor) -> torch.Tensor:
    """Return the variance of each column, infinite where not all is finite."""
    blocks = rows.split(max(1, _MAX_BLOCK // rows.shape[0]), dim=1)
    return torch.cat([_block_spread(as_real(block)) for block in blocks]).nan_to_num(torch.inf, torch.inf)


def _block_spread(rows: torch.Tensor) -> torch.Tensor:
    # torch.var over the first dimension is twenty times slower
    return (rows - rows.mean(dim=0)).square_().mean(dim=0)
