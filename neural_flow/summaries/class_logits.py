"""Class scores: the five most probable classes as bars."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from neural_flow.drawing import Box, Mark, Rect, Text
from neural_flow.records import Summary
from neural_flow.summaries._base import SUMMARIES, DrawStyle, Reduced, SummaryContext
from neural_flow.summaries._evidence import SIGMOIDS, are_class_scores, are_shares, are_token_scores, last_op
from neural_flow.summaries._pixels import as_real, largest
from neural_flow.summaries._planes import IMAGE_LAYER, badge_marks
from neural_flow.text_metrics import ellipsize, text_width

_WIDTH, _HEIGHT = 72.0, 34.0
_TEXT_SIZE = 5.0
_NAME_GAP, _NUMBER_GAP = 2.5, 2.0
_MIN_BAR = 0.4
_CLOSE = 0.01
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
        """Return what words and bars take of 72 pt, by as many rows as there are; two where no class stands out."""
        pitch = _HEIGHT / _MAX_BARS
        if summary.facts["is_flat"]:
            lines = _flat_lines(summary)
            return max(text_width(line, _TEXT_SIZE) for line in lines), pitch * len(lines)
        return _rows(summary, _WIDTH, _TEXT_SIZE).width, pitch * len(summary.facts["names"])

    @staticmethod
    def draw(summary: Summary, box: Box, style: DrawStyle) -> tuple[Mark, ...]:
        """Draw a row for each class: its name, a bar and the probability."""
        if summary.facts["is_flat"]:
            return (*_flat_marks(summary, box, style), *badge_marks(summary, box, style))
        rows = _rows(summary, _WIDTH, style.small_size)
        if abs(rows.width - box.width) > _CLOSE:
            rows = _rows(summary, box.width, style.small_size)
        shares = summary.arrays["shares"].tolist()
        left = box.x + rows.left
        pitch = box.height / len(rows.names)
        marks: list[Mark] = []
        for index, (name, share) in enumerate(zip(rows.names, shares, strict=True)):
            middle = box.y + pitch * (index + 0.5)
            baseline = middle + style.small_size * 0.36
            bar = Rect(
                x=left,
                y=middle - pitch * 0.31,
                width=max(rows.room * share, _MIN_BAR),
                height=pitch * 0.62,
                fill=style.accent if index == 0 else style.sub,
                layer=IMAGE_LAYER,
            )
            marks += [
                Text(x=left - _NAME_GAP, y=baseline, text=name, size=style.small_size, color=style.ink, anchor="end"),
                bar,
                Text(
                    x=bar.x + bar.width + _NUMBER_GAP,
                    y=baseline,
                    text=percent(share),
                    size=style.small_size,
                    color=style.sub,
                ),
            ]
        return (*marks, *badge_marks(summary, box, style))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Names as shown, where their bars start, how long one of 100 % is, and how far the longest row reaches."""

    names: list[str]
    left: float
    room: float
    width: float


def _rows(summary: Summary, width: float, text_size: float) -> _Rows:
    """Return rows of which one of 100 % would be ``width`` long."""
    names = [ellipsize(name, text_size, "regular", width * 0.42) for name in summary.facts["names"]]
    left = max(text_width(name, text_size) for name in names) + _NAME_GAP
    room = width - left - text_width("100 %", text_size) - _NUMBER_GAP
    shares = summary.arrays["shares"].tolist()
    ends = [max(room * share, _MIN_BAR) + _NUMBER_GAP + text_width(percent(share), text_size) for share in shares]
    return _Rows(names=names, left=left, room=room, width=left + max(ends))


def percent(share: float) -> str:
    """Return a share of 0–1 as whole per cents; ``<1 %`` for little but not nothing."""
    whole = round(share * 100)
    if whole == 0 and share > 0:
        return "<1 %"
    return f"{whole} %"


def _flat_lines(summary: Summary) -> tuple[str, str]:
    return f"{summary.facts['words']},", f"none above {percent(_MIN_SHARE)}"


def _flat_marks(summary: Summary, box: Box, style: DrawStyle) -> list[Mark]:
    """Say that no class stands out, as in a model without training: five bars without length say less."""
    lines = _flat_lines(summary)
    pitch = box.height / len(lines)
    return [
        Text(x=box.x, y=box.y + pitch * (row + 0.5) + style.small_size * 0.36, text=line, size=style.small_size,
             color=style.sub)
        for row, line in enumerate(lines)
    ]  # fmt: skip
