"""Histograms: the last resort for any tensor, and the word "empty" for none."""

from __future__ import annotations

import numpy as np
import torch

from neural_flow.drawing import Box, Mark, Path, Rect, Text
from neural_flow.records import Summary
from neural_flow.summaries._base import SUMMARIES, DrawStyle, Reduced, SummaryContext
from neural_flow.summaries._pixels import as_real
from neural_flow.summaries._planes import IMAGE_LAYER, badge_marks

_NUM_BINS = 24
_MAX_VALUES = 1_000_000


@SUMMARIES.register("histogram")
class Histogram:
    """24 bins over the finite values; counts by their logarithm where the highest is over 100 times the median."""

    priority = 0

    @staticmethod
    def accepts(tensor: torch.Tensor, context: SummaryContext) -> bool:
        """Accept everything."""
        return True

    @staticmethod
    def reduce(tensor: torch.Tensor, context: SummaryContext) -> Reduced:
        """Keep the counts and the range."""
        values = tensor.reshape(-1)
        values = as_real(values[:: max(1, -(-values.numel() // _MAX_VALUES))])
        values = values[torch.isfinite(values)]
        if values.numel() == 0:
            word = "empty" if tensor.numel() == 0 else "no finite value"
            return {"counts": torch.zeros(_NUM_BINS, dtype=torch.int64)}, {"word": word, "low": 0.0, "high": 0.0}
        low, high = (float(value) for value in torch.aminmax(values))
        span = high - low
        if span > 0 and span != float("inf"):
            places = ((values - low) * (_NUM_BINS / span)).nan_to_num(0.0, _NUM_BINS, 0.0)
        else:
            places = torch.full_like(values, _NUM_BINS / 2)
        counts = torch.bincount(places.long().clamp_(0, _NUM_BINS - 1), minlength=_NUM_BINS)
        return {"counts": counts}, {"word": "", "low": low, "high": high}

    @staticmethod
    def size(summary: Summary, context: SummaryContext) -> tuple[float, float]:
        """Return 48 x 24 pt."""
        return 48.0, 24.0

    @staticmethod
    def draw(summary: Summary, box: Box, style: DrawStyle) -> tuple[Mark, ...]:
        """Draw the bars on their base line, or say why there are none."""
        if summary.facts["word"]:
            text = Text(
                x=box.x + box.width / 2,
                y=box.y + box.height / 2 + style.small_size * 0.36,
                text=summary.facts["word"],
                size=style.small_size,
                color=style.sub,
                anchor="middle",
            )
            return (text, *badge_marks(summary, box, style))
        counts = summary.arrays["counts"].astype(np.float64)
        positive = counts[counts > 0]
        if positive.max() > 100 * np.median(positive):
            counts = np.log1p(counts)
        heights = counts / counts.max() * (box.height - 0.5)
        pitch = box.width / len(heights)
        base = box.y + box.height
        line = (("M", box.x, base), ("L", box.x + box.width, base))
        marks: list[Mark] = [Path(commands=line, stroke=style.sub, stroke_width=0.4, layer=IMAGE_LAYER)]
        for index, height in enumerate(heights.tolist()):
            if height > 0:
                x = box.x + pitch * (index + 0.06)
                tall = max(height, 0.35)
                bar = Rect(x=x, y=base - tall, width=pitch * 0.88, height=tall, fill=style.sub, layer=IMAGE_LAYER)
                marks.append(bar)
        return (*marks, *badge_marks(summary, box, style))
