"""Vector pages: one figure a page, whose single artist lowers every mark to calls of the renderer.

Pages are in points, y downwards; devices in their own units, y upwards. No axes, no Text, no AxesImage. pyplot is
never imported and rcParams change only inside ``drawing_state``.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
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

from neural_flow.drawing import ExportOptions, Image, Mark, Path, Rect, Scene, Text
from neural_flow.export._lowering import enlarged, in_paint_order, left_of, rgba_of
from neural_flow.export.mpl._paths import drawing_state, glyph, rgba_floats, shape_outline
from neural_flow.records import Array
from neural_flow.text_metrics import Weight, glyph_places, text_runs

_MAX_ENLARGED_PIXELS = 48e6


def pdf(
    scenes: Iterable[Scene], options: ExportOptions, words: dict[str, str], scale_of: Callable[[Scene], float]
) -> bytes:
    """Return ``scenes`` as the pages of a PDF; no date and no program name is in it."""
    buffer = io.BytesIO()
    metadata: dict[str, Any] = {"CreationDate": None, "Creator": None, "Producer": None, **words}
    with drawing_state(), PdfPages(buffer, metadata=metadata) as pages:
        for scene in scenes:
            zoom = scale_of(scene)
            size = (scene.width * zoom / 72, scene.height * zoom / 72)
            figure = Figure(figsize=size, dpi=72, facecolor=scene.background or "none", edgecolor="none")
            figure.add_artist(_Marks(scene, options, zoom))
            pages.savefig(figure, dpi=72)
    return buffer.getvalue()


class _Marks(Artist):
    """All marks of a page, ``zoom`` times as large."""

    def __init__(self, scene: Scene, options: ExportOptions, zoom: float) -> None:
        super().__init__()
        self._scene = scene
        self._zoom = zoom
        self._options = options

    def draw(self, renderer: Any) -> None:
        """Draw every mark in paint order."""
        figure = self.get_figure()
        assert figure is not None
        brush = _Brush(renderer, self._zoom, figure.bbox.height, self._options, _density(self._scene))
        for mark in in_paint_order(self._scene.marks):
            brush.draw(mark)


class _Brush:
    """Draws single marks on a renderer whose unit is the point.

    ``zoom`` scales the page, ``height`` is the scaled page's, ``density`` the least number of pixels a point of
    pictures. Line widths and dashes stay in points: renderers scale these themselves.
    """

    def __init__(self, renderer: Any, zoom: float, height: float, options: ExportOptions, density: float) -> None:
        self._density = density
        self._renderer = renderer
        self._zoom = zoom
        self._height = height
        self._options = options
        self._to_device = Affine2D().scale(zoom, -zoom).translate(0, height)

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
            gc.set_linewidth(mark.stroke_width * self._zoom)
            if isinstance(mark, Path) and mark.dash:
                gc.set_dashes(0, [length * self._zoom for length in mark.dash])
        face = None if mark.fill is None else rgba_floats(mark.fill)
        self._renderer.draw_path(gc, shape_outline(mark), self._to_device, face)
        gc.restore()

    def _text(self, mark: Text) -> None:
        gc = self._renderer.new_gc()
        gc.set_foreground(rgba_floats(mark.color), isRGBA=True)
        left, y = left_of(mark, self._options.font_file), self._height - mark.y * self._zoom
        for run in text_runs(mark.text, mark.size, mark.weight, self._options.font_file):
            font = FontProperties(fname=run.file, size=mark.size * self._zoom)
            self._renderer.draw_text(gc, (left + run.x) * self._zoom, y, run.text, font, 0, ismath=False)
        gc.restore()

    def _outlined_text(self, mark: Text) -> None:
        gc = self._renderer.new_gc()
        gc.set_linewidth(0.0)
        place = left_of(mark, self._options.font_file) * self._zoom, self._height - mark.y * self._zoom
        to_device = Affine2D().scale(mark.size * self._zoom).translate(*place)
        shape = _text_outline(mark.text, mark.weight, self._options.font_file)
        self._renderer.draw_path(gc, shape, to_device, rgba_floats(mark.color))
        gc.restore()

    def _image(self, mark: Image) -> None:
        gc = self._renderer.new_gc()
        width, height = mark.width * self._zoom, mark.height * self._zoom
        pixels = rgba_of(replace(mark, pixels=enlarged(mark, self._density)))
        x, y = mark.x * self._zoom, self._height - mark.y * self._zoom - height
        self._renderer.draw_image(gc, x, y, pixels[::-1], Affine2D().scale(width, height))
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


def _density(scene: Scene) -> float:
    """Return the pixels a point that pictures are enlarged to, fewer where so many pictures would fill the memory."""
    area = sum(mark.width * mark.height for mark in scene.marks if isinstance(mark, Image))
    return min(4.0, max(1.0, sqrt(_MAX_ENLARGED_PIXELS / max(area, 1.0))))
