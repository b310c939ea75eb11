"""Words on coloured grounds, in lines as a text is set: tokens that go in, classes of tokens that come out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neural_flow.drawing import Box, Mark, Rect, Text
from neural_flow.records import Array
from neural_flow.summaries._base import DrawStyle
from neural_flow.summaries._colormaps import colormap
from neural_flow.summaries._planes import IMAGE_LAYER
from neural_flow.text_metrics import ellipsize, text_width
from neural_flow.theme import contrast

_SIZE = 5.0
_LINE, _GAP, _PAD = 9.0, 1.2, 1.8
_MAX_WIDTH, _MAX_WORD, _MAX_LINES = 84.0, 40.0, 6
_NUM_HUES = 7
_TINTS = (0.45, 0.7, 0.25, 0.9)
_VISIBLE = {" ": "␣", "\n": "⏎", "\t": "→", "": "∅"}


def chip_lines(names: Sequence[str]) -> list[list[tuple[int, str, float]]] | None:
    """Return lines of (index, shown word, width of its ground), or None where they would not fit a card."""
    lines: list[list[tuple[int, str, float]]] = [[]]
    right = 0.0
    for index, name in enumerate(names):
        word = ellipsize(_VISIBLE.get(name) or name.strip() or "␣", _SIZE, "regular", _MAX_WORD)
        width = text_width(word, _SIZE) + 2 * _PAD
        if lines[-1] and right + _GAP + width > _MAX_WIDTH:
            if len(lines) == _MAX_LINES:
                return None
            lines.append([])
            right = 0.0
        right += width + (_GAP if lines[-1] else 0.0)
        lines[-1].append((index, word, width))
    return lines


def chips_size(lines: Sequence[Sequence[tuple[int, str, float]]]) -> tuple[float, float]:
    """Return width and height of all lines in points."""
    widths = [sum(width for _, _, width in line) + _GAP * (len(line) - 1) for line in lines]
    return max(widths), len(lines) * _LINE + (len(lines) - 1) * _GAP


def chip_marks(lines: Sequence[Sequence[tuple[int, str, float]]], ids: Array, box: Box, style: DrawStyle) -> list[Mark]:
    """Draw the words; equal ``ids`` have grounds of one colour."""
    colors, cells = id_colors(style), hash_ids(ids)
    marks: list[Mark] = []
    for row, line in enumerate(lines):
        x, y = box.x, box.y + row * (_LINE + _GAP)
        for index, word, width in line:
            color = colors[cells[index]]
            fill = "#{:02X}{:02X}{:02X}".format(*(int(part) for part in color))
            marks.append(Rect(x=x, y=y, width=width, height=_LINE, radius=1.6, fill=fill, layer=IMAGE_LAYER))
            marks.append(
                Text(
                    x=x + width / 2,
                    y=y + _LINE / 2 + _SIZE * 0.36,
                    text=word,
                    size=_SIZE,
                    color=readable(color, style),
                    anchor="middle",
                )
            )
            x += width + _GAP
    return marks


def hash_ids(ids: Array) -> Array:
    """Return uint8 colours of ids: neighbours in id differ in hue, and the letters of an alphabet all differ."""
    return (ids.astype(np.uint64) % np.uint64(_NUM_HUES * len(_TINTS))).astype(np.uint8)


def id_colors(style: DrawStyle) -> Array:
    """Return 256 soft colours: the hues of the category map, each in several tints."""
    hues = colormap("okabe_ito")[:_NUM_HUES].astype(np.float32)
    numbers = np.arange(256)
    tint = np.asarray(_TINTS)[(numbers // _NUM_HUES) % len(_TINTS)][:, None]
    ground = np.full(3, 20.0 if style.is_dark else 255.0)
    return np.rint(hues[numbers % _NUM_HUES] * tint + ground * (1 - tint)).astype(np.uint8)


def readable(color: Array, style: DrawStyle) -> str:
    """Return ink or paper, whichever is better read on ``color``."""
    text = "#{:02X}{:02X}{:02X}".format(*(int(part) for part in color))
    return max((style.ink, style.paper), key=lambda ink: contrast(ink, text))
