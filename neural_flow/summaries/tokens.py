"""Integer tokens: their words where they are known, else a row of cells, coloured by id."""

from __future__ import annotations

import torch

from neural_flow.drawing import Box, Mark, Text
from neural_flow.records import Summary
from neural_flow.summaries._base import SUMMARIES, DrawStyle, Reduced, SummaryContext
from neural_flow.summaries._chips import chip_lines, chip_marks, chips_size, hash_ids, id_colors, readable
from neural_flow.summaries._planes import badge_marks, frame_marks, image_mark
from neural_flow.text_metrics import text_width

_WIDTH, _HEIGHT = 72.0, 10.0
_MAX_LABELLED = 12
_MAX_CELLS = 144


@SUMMARIES.register("tokens")
class Tokens:
    """Ids along one dimension. Equal ids have equal colours; where two ids share one, order tells them apart."""

    priority = 70

    @staticmethod
    def accepts(tensor: torch.Tensor, context: SummaryContext) -> bool:
        """Accept integers along one dimension."""
        is_whole = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)
        return is_whole and tensor.numel() > 0 and tensor.numel() == max(tensor.shape, default=1)

    @staticmethod
    def reduce(tensor: torch.Tensor, context: SummaryContext) -> Reduced:
        """Keep the ids; of a long row every n-th."""
        ids = tensor.reshape(-1).long()
        step = -(-ids.numel() // _MAX_CELLS)
        # the words are those of the text: positions, kinds of tokens and lengths are as long, and are none
        is_text = context.role == "input" and not context.has_token_input
        names = context.tokens if is_text and len(context.tokens) == ids.numel() else ()
        return {"ids": ids[::step].clone()}, {
            "num_tokens": ids.numel(),
            "step": step,
            "names": tuple(names[::step]),
            "details": (" ".join(names),) if names else (),
        }

    @staticmethod
    def size(summary: Summary, context: SummaryContext) -> tuple[float, float]:
        """Return 72 x 10 pt; a few tokens take less, words the lines that they fill."""
        lines = _lines(summary)
        if lines is not None:
            return chips_size(lines)
        return min(_WIDTH, max(_HEIGHT * len(summary.arrays["ids"]), 2 * _HEIGHT)), _HEIGHT

    @staticmethod
    def draw(summary: Summary, box: Box, style: DrawStyle) -> tuple[Mark, ...]:
        """Draw the words in lines, or cells with the ids where they fit."""
        ids = summary.arrays["ids"]
        lines = _lines(summary)
        if lines is not None:
            return (*chip_marks(lines, ids, box, style), *badge_marks(summary, box, style))
        colors = id_colors(style)
        cells = hash_ids(ids)
        marks: list[Mark] = [image_mark(box, cells[None, :], colors)]
        marks += frame_marks(box, style, color=style.sub, width=0.4)
        pitch = box.width / len(ids)
        texts = [str(number) for number in ids.tolist()]
        if len(ids) <= _MAX_LABELLED and all(text_width(text, style.small_size) <= pitch - 0.6 for text in texts):
            for index, text in enumerate(texts):
                marks.append(
                    Text(
                        x=box.x + pitch * (index + 0.5),
                        y=box.y + box.height / 2 + style.small_size * 0.36,
                        text=text,
                        size=style.small_size,
                        color=readable(colors[cells[index]], style),
                        anchor="middle",
                    )
                )
        return (*marks, *badge_marks(summary, box, style))


def _lines(summary: Summary) -> list[list[tuple[int, str, float]]] | None:
    names = summary.facts["names"]
    return chip_lines(names) if names and summary.facts["step"] == 1 else None
