"""Vector pages: one figure a page, whose single artist lowers every mark to calls of the renderer.

Pages are in points, y downwards; devices in their own units, y upwards. No axes, no Text, no AxesImage. pyplot is
never imported and rcParams change only inside ``drawing_state``.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import sqrt
from typing import Any, assert_never

import numpy as np
from matplotlib.artist import Artist
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path as Outline
from matplotlib.transforms import Affine2D

from neural_flow.drawing import Box, ExportOptions, Image, Mark, Path, Rect, Scene, Text
from neural_flow.export._lowering import enlarged, in_paint_order, left_of, rgba_of
from neural_flow.export.mpl._paths import drawing_state, glyph, rgba_floats, shape_outline
from neural_flow.records import Array
from neural_flow.text_metrics import Weight, glyph_places, has_truetype_outlines, text_runs

_DENSITY = 3.0
_MAX_ENLARGED_PIXELS = 32e6


def pdf(pages: Iterable[tuple[Scene, Box, Sequence[Mark]]], options: ExportOptions, words: dict[str, str]) -> bytes:
    """Return a PDF of pages: the scene, the window of it that the page shows, and the marks in that window.

    No date and no program name is in it.
    """
    buffer = io.BytesIO()
    metadata: dict[str, Any] = {"CreationDate": None, "Creator": None, "Producer": None, **words}
    with drawing_state(), PdfPages(buffer, metadata=metadata) as file:
        for scene, window, marks in pages:
            size = (window.width / 72, window.height / 72)
            figure = Figure(figsize=size, dpi=72, facecolor=scene.background or "none", edgecolor="none")
            figure.add_artist(_Marks(marks, window, options, _density(scene)))
            file.savefig(figure, dpi=72)
    return buffer.getvalue()


class _Marks(Artist):
    """All marks of a page."""

    def __init__(self, marks: Sequence[Mark], window: Box, options: ExportOptions, density: float) -> None:
        super().__init__()
        self._marks = marks
        self._window = window
        self._options = options
        self._density = density

    def draw(self, renderer: Any) -> None:
        """Draw every mark in paint order."""
        brush = _Brush(renderer, self._window, self._options, self._density)
        for mark in in_paint_order(self._marks):
            brush.draw(mark)


class _Brush:
    """Draws single marks on a renderer whose unit is the point; ``density`` is the least pixels a point of pictures."""

    def __init__(self, renderer: Any, window: Box, options: ExportOptions, density: float) -> None:
        self._density = density
        self._renderer = renderer
        self._left, self._bottom = window.x, window.y + window.height
        self._options = options
        self._to_device = Affine2D().scale(1, -1).translate(-self._left, self._bottom)

    def draw(self, mark: Mark) -> None:
        match mark:
            case Rect() | Path():
                self._shape(mark)
            case Text():
                if self._options.has_text_as_paths:
                    self._outlined_text(mark)
                else:
                    self._text(mark)
            case Image():
                self._image(mark)
            case _:
                assert_never(mark)

    def _shape(self, mark: Rect | Path) -> None:
        gc = self._renderer.new_gc()
        gc.set_joinstyle("miter" if isinstance(mark, Rect) else "round")
        gc.set_capstyle("butt")
        if mark.stroke is None:
            gc.set_linewidth(0.0)
        else:
            gc.set_foreground(rgba_floats(mark.stroke), isRGBA=True)
            gc.set_linewidth(mark.stroke_width)
            if isinstance(mark, Path) and mark.dash:
                gc.set_dashes(0, list(mark.dash))
        face = None if mark.fill is None else rgba_floats(mark.fill)
        self._renderer.draw_path(gc, shape_outline(mark), self._to_device, face)
        gc.restore()

    def _text(self, mark: Text) -> None:
        gc = self._renderer.new_gc()
        gc.set_foreground(rgba_floats(mark.color), isRGBA=True)
        left, y = left_of(mark, self._options.font_file) - self._left, self._bottom - mark.y
        for run in text_runs(mark.text, mark.size, mark.weight, self._options.font_file):
            if has_truetype_outlines(run.file):
                font = FontProperties(fname=run.file, size=mark.size)
                self._renderer.draw_text(gc, left + run.x, y, run.text, font, 0, ismath=False)
            else:
                self._outlines(mark, run.text, left + run.x, y)
        gc.restore()

    def _outlined_text(self, mark: Text) -> None:
        left = left_of(mark, self._options.font_file) - self._left
        self._outlines(mark, mark.text, left, self._bottom - mark.y)

    def _outlines(self, mark: Text, text: str, x: float, y: float) -> None:
        gc = self._renderer.new_gc()
        gc.set_linewidth(0.0)
        shape = _text_outline(text, mark.weight, self._options.font_file)
        self._renderer.draw_path(gc, shape, Affine2D().scale(mark.size).translate(x, y), rgba_floats(mark.color))
        gc.restore()

    def _image(self, mark: Image) -> None:
        gc = self._renderer.new_gc()
        pixels = enlarged(replace(mark, pixels=_opaque(mark), palette=None), self._density)
        x, y = mark.x - self._left, self._bottom - mark.y - mark.height
        self._renderer.draw_image(gc, x, y, pixels[::-1], Affine2D().scale(mark.width, mark.height))
        gc.restore()


@lru_cache(maxsize=4096)
def _text_outline(text: str, weight: Weight, font_file: str | None) -> Outline:
    """Return all glyphs of ``text`` as one path in units of the font size, y upwards."""
    points: list[Array] = [np.zeros((1, 2))]
    codes: list[Array] = [np.array([1], np.uint8)]
    for char, file, offset in glyph_places(text, weight, font_file):
        shape = glyph(char, file)
        points.append(np.asarray(shape.vertices) + np.array([offset, 0.0]))
        codes.append(np.asarray(shape.codes))
    return Outline(np.concatenate(points), np.concatenate(codes))


def _opaque(mark: Image) -> Array:
    """Return the pixels of ``mark`` as colours, with alpha only where it says something: all are kept till the end."""
    rgba = rgba_of(mark)
    return rgba[..., :3] if (rgba[..., 3] == 255).all() else rgba


def _density(scene: Scene) -> float:
    """Return the pixels a point that pictures are enlarged to, fewer where so many pictures would fill the memory."""
    area = sum(mark.width * mark.height for mark in scene.marks if isinstance(mark, Image))
    return min(_DENSITY, max(1.0, sqrt(_MAX_ENLARGED_PIXELS / max(area, 1.0))))
