"""Class scores: the five most probable classes as bars."""

from __future__ import annotations

import torch

from neural_flow.drawing import Box, Mark, Rect, Text
from neural_flow.records import Summary
from neural_flow.summaries._base import SUMMARIES, DrawStyle, Reduced, SummaryContext
from neural_flow.summaries._evidence import SIGMOIDS, are_class_scores, are_shares, are_token_scores, last_op
from neural_flow.summaries._pixels import as_real, largest
from neural_flow.summaries._planes import IMAGE_LAYER, badge_marks
from neural_flow.text_metrics import ellipsize, text_width

_WIDTH, _HEIGHT = 72.0, 34.0
_MAX_BARS = 5
_MIN_VOCABULARY = 256
_MAX_CLASSES = 32768
_MIN_SHARE = 0.01
"""Below this the most probable class is no find."""


@SUMMARIES.register("class_logits")
class ClassLogits:
    """Softmax of an output vector; of token scores T×V the scores of the last token, the next one's."""

    priority = 55

    @staticmethod
    def accepts(tensor: torch.Tensor, context: SummaryContext) -> bool:
        """Accept floating outputs for whose being scores of classes something speaks: labels, names, values."""
        if context.role != "output" or not tensor.is_floating_point() or tensor.numel() < 2:
            return False
        if bool(tensor.amax().isnan()):  # amax hands NaN on, and needs no mask as large as the tensor
            return False  # no class is the most probable one: the values themselves are shown
        if tensor.dim() == 2 and min(tensor.shape) > 1 and context.has_token_input:
            return tensor.shape[1] >= _MIN_VOCABULARY and are_token_scores(context)
        if max(tensor.shape) != tensor.numel() or tensor.numel() > _MAX_CLASSES:
            return False
        is_series = tensor.dim() == 2 and tensor.shape[1] == 1  # one value a step, and no class
        return not is_series and are_class_scores(tensor.reshape(-1), context)

    @staticmethod
    def reduce(tensor: torch.Tensor, context: SummaryContext) -> Reduced:
        """Keep the five largest probabilities and their classes."""
        is_sequence = tensor.dim() == 2 and min(tensor.shape) > 1
        scores = as_real(tensor[-1] if is_sequence else tensor.reshape(-1)).double()
        # what a sigmoid made are probabilities of their own, which a softmax would flatten
        is_independent = last_op(context) in SIGMOIDS and not are_shares(scores)
        is_probability = is_independent or (bool((scores >= 0).all()) and are_shares(scores))
        shares = scores if is_probability else torch.softmax(scores.nan_to_num(-torch.inf, 1e300, -torch.inf), dim=0)
        shares = shares.nan_to_num(0.0, 1.0, 0.0)
        best = largest(shares, min(_MAX_BARS, scores.numel()))
        classes = best.tolist()
        has_labels = len(context.labels) == scores.numel()
        # one score for each token that went in: where a span starts, what a word is attended by
        is_over_tokens = not is_sequence and not has_labels and scores.numel() == context.num_tokens
        word = "token" if is_sequence or is_over_tokens else "class"
        known = context.labels if has_labels else context.tokens if is_over_tokens else ()
        names = tuple(known[index] if len(known) == scores.numel() else f"{word} {index}" for index in classes)
        what = "largest of {} independent probabilities" if is_independent else f"most probable {word} of {{}}"
        return {"shares": shares[best]}, {
            "classes": tuple(classes),
            "names": names,
            "words": f"{scores.numel()} {'tokens' if word == 'token' else 'classes'}",
            "is_flat": float(shares[best[0]]) < _MIN_SHARE,
            "num_classes": scores.numel(),
            "caption": what.format(scores.numel()),
            "details": tuple(
                f"{name} {100 * share:.3g} %" for name, share in zip(names, shares[best].tolist(), strict=True)
            ),
        }

    @staticmethod
    def size(summary: Summary, context: SummaryContext) -> tuple[float, float]:
        """Return 72 pt by as many rows as there are bars; two where no class stands out."""
        num_rows = 2 if summary.facts["is_flat"] else len(summary.facts["names"])
        return _WIDTH, _HEIGHT * num_rows / _MAX_BARS

    @staticmethod
    def draw(summary: Summary, box: Box, style: DrawStyle) -> tuple[Mark, ...]:
        """Draw a row for each class: its name, a bar and the probability."""
        if summary.facts["is_flat"]:
            return (*_flat_marks(summary, box, style), *badge_marks(summary, box, style))
        shares = summary.arrays["shares"].tolist()
        names = [ellipsize(name, style.small_size, "regular", box.width * 0.42) for name in summary.facts["names"]]
        number_width = text_width("100 %", style.small_size)
        name_width = max(text_width(name, style.small_size) for name in names)
        left = box.x + name_width + 2.5
        room = box.width - name_width - 2.5 - number_width - 2.0
        pitch = box.height / len(names)
        marks: list[Mark] = []
        for index, (name, share) in enumerate(zip(names, shares, strict=True)):
            middle = box.y + pitch * (index + 0.5)
            baseline = middle + style.small_size * 0.36
            bar = Rect(
                x=left,
                y=middle - pitch * 0.31,
                width=max(room * share, 0.4),
                height=pitch * 0.62,
                fill=style.accent if index == 0 else style.sub,
                layer=IMAGE_LAYER,
            )
            marks += [
                Text(x=left - 2.5, y=baseline, text=name, size=style.small_size, color=style.ink, anchor="end"),
                bar,
                Text(
                    x=bar.x + bar.width + 2.0,
                    y=baseline,
                    text=percent(share),
                    size=style.small_size,
                    color=style.sub,
                ),
            ]
        return (*marks, *badge_marks(summary, box, style))


def percent(share: float) -> str:
    """Return a share of 0–1 as whole per cents; ``<1 %`` for little but not nothing."""
    whole = round(share * 100)
    if whole == 0 and share > 0:
        return "<1 %"
    return f"{whole} %"


def _flat_marks(summary: Summary, box: Box, style: DrawStyle) -> list[Mark]:
    """Say that no class stands out, as in a model without training: five bars without length say less."""
    lines = (f"{summary.facts['words']},", f"none above {percent(_MIN_SHARE)}")
    pitch = box.height / len(lines)
    return [
        Text(x=box.x, y=box.y + pitch * (row + 0.5) + style.small_size * 0.36, text=line, size=style.small_size,
             color=style.sub)
        for row, line in enumerate(lines)
    ]  # fmt: skip
