"""Single numbers: a loss, a count."""

from __future__ import annotations

from math import isfinite

import torch

from neural_flow.drawing import Box, Mark, Text
from neural_flow.records import Summary
from neural_flow.summaries._base import SUMMARIES, DrawStyle, Reduced, SummaryContext
from neural_flow.summaries._planes import badge_marks
from neural_flow.text_metrics import ellipsize, text_width

_SIZE = 5.8


@SUMMARIES.register("scalar")
class Scalar:
    """One number, to three significant digits."""

    priority = 100

    @staticmethod
    def accepts(tensor: torch.Tensor, context: SummaryContext) -> bool:
        """Accept a single value of any dtype."""
        return tensor.numel() == 1

    @staticmethod
    def reduce(tensor: torch.Tensor, context: SummaryContext) -> Reduced:
        """Keep the number, and its text."""
        value = tensor.reshape(()).item()
        return {}, {"text": number_text(value)}

    @staticmethod
    def size(summary: Summary, context: SummaryContext) -> tuple[float, float]:
        """Return the room that the number takes."""
        return max(text_width(summary.facts["text"], _SIZE, "bold") + 6.0, 18.0), 12.0

    @staticmethod
    def draw(summary: Summary, box: Box, style: DrawStyle) -> tuple[Mark, ...]:
        """Write the number in the middle."""
        text = ellipsize(summary.facts["text"], style.number_size, "bold", box.width)
        mark = Text(
            x=box.x + box.width / 2,
            y=box.y + box.height / 2 + style.number_size * 0.36,
            text=text,
            size=style.number_size,
            color=style.ink,
            weight="bold",
            anchor="middle",
        )
        return (mark, *badge_marks(summary, box, style))


def number_text(value: complex | float | int | bool) -> str:
    """Return a number to three significant digits; whole numbers and truth values as they are."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, complex):
        imaginary = number_text(abs(value.imag))
        return f"{number_text(value.real)}{'−' if value.imag < 0 else '+'}{imaginary}i"
    if isinstance(value, int):
        return str(value).replace("-", "−")
    if not isfinite(value):
        return {"inf": "∞", "-inf": "−∞"}.get(str(value), "NaN")
    return f"{value:.3g}".replace("-", "−")
