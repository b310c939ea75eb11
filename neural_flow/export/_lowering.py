"""What every exporter does to marks before it writes them: paint order, tile pixels, colours."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from neural_flow.drawing import ExportOptions, Image, Mark, Path, Rect, Scene, Text
from neural_flow.errors import NeuralFlowWarning
from neural_flow.records import Array
from neural_flow.text_metrics import has_all_glyphs, text_width

# Marks that turn the direction of writing make a name read as another one.
_ILLEGAL = re.compile(
    "[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]|[\\u202a-\\u202e\\u2066-\\u2069]"
)
KAPPA = 0.5522847498
"""Length of the handles of a cubic that draws a quarter of a unit circle."""


def in_paint_order(marks: Iterable[Mark]) -> list[Mark]:
    """Return ``marks`` by layer; within one layer the order stays."""
    return sorted(marks, key=lambda mark: mark.layer)


def rect_commands(rect: Rect) -> tuple[tuple[Any, ...], ...]:
    """Return the outline of ``rect`` as path commands."""
    x, y, right, bottom = rect.x, rect.y, rect.x + rect.width, rect.y + rect.height
    radius = min(rect.radius, rect.width / 2, rect.height / 2)
    if radius <= 0:
        return (("M", x, y), ("L", right, y), ("L", right, bottom), ("L", x, bottom), ("Z",))
    handle = radius * (1 - KAPPA)
    return (
        ("M", x + radius, y),
        ("L", right - radius, y),
        ("C", right - handle, y, right, y + handle, right, y + radius),
        ("L", right, bottom - radius),
        ("C", right, bottom - handle, right - handle, bottom, right - radius, bottom),
        ("L", x + radius, bottom),
        ("C", x + handle, bottom, x, bottom - handle, x, bottom - radius),
        ("L", x, y + radius),
        ("C", x, y + handle, x + handle, y, x + radius, y),
        ("Z",),
    )


def left_of(text: Text, font_file: str | None) -> float:
    """Return where the first glyph of ``text`` starts, in points."""
    if text.anchor == "start":
        return text.x
    share = 0.5 if text.anchor == "middle" else 1.0
    return text.x - share * text_width(text.text, text.size, text.weight, font_file)


def outline_of(mark: Rect | Path) -> tuple[tuple[Any, ...], ...]:
    """Return the path commands of a shape."""
    return rect_commands(mark) if isinstance(mark, Rect) else mark.commands


def enlarged(image: Image, pixels_per_point: float = 4.0) -> Array:
    """Return the pixels of ``image``, repeated by a whole factor so that viewers that smooth do no harm."""
    height, width = image.pixels.shape[:2]
    factor_x = max(1, int(np.ceil(image.width * pixels_per_point / width)))
    factor_y = max(1, int(np.ceil(image.height * pixels_per_point / height)))
    return image.pixels.repeat(factor_y, axis=0).repeat(factor_x, axis=1)


def rgba_of(image: Image) -> Array:
    """Return the pixels of ``image`` as uint8 ``[H, W, 4]``, through its palette where it has one."""
    if image.palette is None:
        return image.pixels
    opaque = np.full((*image.pixels.shape, 1), 255, np.uint8)
    return np.concatenate([image.palette[image.pixels], opaque], axis=2)


def alpha_of(color: str) -> float:
    """Return the opacity of ``#rrggbb`` or ``#rrggbbaa``, 0-1."""
    return int(color[7:9], 16) / 255 if len(color) == 9 else 1.0


def warn_of_missing_glyphs(scene: Scene, options: ExportOptions) -> None:
    """Say once which characters of ``scene`` no font file has; they are drawn as their code points.

    Of control characters, which no font has, nothing is said.
    """
    missing = {
        char
        for mark in scene.marks
        if isinstance(mark, Text) and not mark.text.isascii()
        for char in mark.text
        if unicodedata.category(char) not in ("Cc", "Cf") and not has_all_glyphs(char, mark.weight, options.font_file)
    }
    if missing:
        shown = ", ".join(f"U+{ord(char):04X}" for char in sorted(missing)[:8])
        warnings.warn(
            f"no glyph for {len(missing)} characters ({shown}): they are written as code points; "
            "name a font that has them with --font",
            NeuralFlowWarning,
            stacklevel=4,
        )


def alt_text(scene: Scene) -> str:
    """Return the words that stand for the picture where it cannot be seen."""
    return legal_text(f"{scene.title}. {scene.description}" if scene.description else scene.title)


def legal_text(text: str) -> str:
    """Return ``text`` with what XML forbids and marks that turn the direction of writing as their code points."""
    return _ILLEGAL.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def path_data(commands: Iterable[tuple[Any, ...]]) -> str:
    """Return path commands as the ``d`` attribute of SVG."""
    return "".join(f"{letter}{' '.join(map(number, values))}" for letter, *values in commands)


def number(value: float) -> str:
    """Return ``value`` with at most two decimals, so that the last bits of floats never show."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text
