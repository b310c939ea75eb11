"""What raster and vector pages share: the settings of matplotlib, outlines as its paths, colours as its tuples."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable
from functools import lru_cache
from typing import Any

import matplotlib
import numpy as np
from matplotlib.path import Path as Outline

from neural_flow.drawing import Path, Rect
from neural_flow.export._lowering import alpha_of, outline_of
from neural_flow.text_metrics import glyph_outline

_CODES = {"M": (1,), "L": (2,), "Q": (3, 3), "C": (4, 4, 4), "Z": (79,)}
_RECT_CODES = np.array([1, 2, 2, 2, 79], np.uint8)
# All that a user's own settings could change in our pages.
_STATE: dict[Any, Any] = {
    "savefig.bbox": None,
    "savefig.facecolor": "auto",
    "savefig.edgecolor": "auto",
    "savefig.transparent": False,
    "figure.autolayout": False,
    "figure.constrained_layout.use": False,
    "path.sketch": None,
    "path.snap": True,
    "path.effects": [],
    "agg.path.chunksize": 0,
    "pdf.inheritcolor": False,
    "path.simplify": False,
    "image.composite_image": False,
    "pdf.fonttype": 42,
    "pdf.compression": 6,
    "pdf.use14corefonts": False,
    "text.usetex": False,
    "text.hinting": "none",
    "axes.unicode_minus": True,
}


@contextlib.contextmanager
def drawing_state() -> Generator[None]:
    """Set the rcParams that drawing needs; on leaving, all are as before. Nests."""
    with matplotlib.rc_context(_STATE):
        yield


def shape_outline(mark: Rect | Path) -> Outline:
    """Return the outline of a shape, in points."""
    if isinstance(mark, Path) or mark.radius > 0:
        return outline(outline_of(mark))
    right, bottom = mark.x + mark.width, mark.y + mark.height
    corners = [(mark.x, mark.y), (right, mark.y), (right, bottom), (mark.x, bottom), (mark.x, mark.y)]
    return Outline(np.array(corners), _RECT_CODES)


def outline(commands: Iterable[tuple[Any, ...]]) -> Outline:
    """Return path commands as a matplotlib path."""
    values: list[float] = []
    codes: list[int] = []
    for letter, *numbers in commands:
        codes += _CODES[letter]
        values += numbers or (0.0, 0.0)
    return Outline(np.array(values).reshape(-1, 2), np.array(codes, np.uint8))


@lru_cache(maxsize=2048)
def glyph(char: str, file: str) -> Outline:
    """Return the glyph of ``char`` in units of the font size, y upwards."""
    return outline(glyph_outline(char, file))


@lru_cache(maxsize=1024)
def rgba_floats(color: str) -> tuple[float, float, float, float]:
    """Return ``#rrggbb`` or ``#rrggbbaa`` as four numbers, 0-1."""
    red, green, blue = (int(color[start : start + 2], 16) / 255 for start in (1, 3, 5))
    return red, green, blue, alpha_of(color)
