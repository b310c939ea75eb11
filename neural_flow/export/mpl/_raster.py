"""Raster pages: Agg draws one horizontal band after the other, so that memory follows the width of a page only.

Marks that follow each other in paint order and are of one kind are drawn together: shapes by one call, the glyphs of
all texts by one call for each glyph, size and colour, pictures pasted into the pixels. Page and device are in pixels
here, y downwards on the page and upwards in matplotlib.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from math import ceil
from typing import Any, Protocol

import matplotlib
import numpy as np
import PIL.Image
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.path import Path as Outline
from matplotlib.transforms import Affine2D, IdentityTransform

from neural_flow.drawing import ExportOptions, Image, Path, Rect, Scene, Text
from neural_flow.export._lowering import in_paint_order, left_of, rgba_of
from neural_flow.export.mpl._paths import drawing_state, glyph, rgba_floats, shape_outline
from neural_flow.records import Array
from neural_flow.text_metrics import glyph_places
from neural_flow.theme import rgb

__all__ = ["bands", "drawing_state", "max_side", "pixel_size"]

BAND_PIXELS = 4_000_000
_MIN_ROWS = 64
_PHASES = 4
"""Places of a glyph within a pixel that are told apart, from left to right."""
_NOWHERE = np.zeros((1, 2))
_ALWAYS = np.array([True])


def max_side() -> int:
    """Return how many pixels a side of a raster page may have."""
    version: tuple[int, ...] = tuple(matplotlib.__version_info__[:2])
    return 2**23 - 1 if version >= (3, 10) else 65_535


def pixel_size(scene: Scene, dpi: float) -> tuple[int, int]:
    """Return width and height of the page in pixels."""
    return ceil(scene.width * dpi / 72 - 0.01), ceil(scene.height * dpi / 72 - 0.01)


def bands(scene: Scene, dpi: int, options: ExportOptions, max_pixels: int = BAND_PIXELS) -> Iterator[Array]:
    """Yield the page from top to bottom, as uint8 ``[rows, width, 4]`` of at most about ``max_pixels``.

    Every band lies in the same memory: use it before asking for the next. To be iterated inside ``drawing_state``.
    """
    width, height = pixel_size(scene, dpi)
    rows = min(height, max(_MIN_ROWS, max_pixels // width))
    batches = _batches(scene, dpi / 72, options)
    band = None
    for top in range(0, height, rows):
        if band is None or height - top < rows:
            band = _Band(width, min(rows, height - top), dpi)
        band.move_to(top, scene.background)
        for batch in batches:
            batch.draw(band)
        yield band.pixels


class _Band:
    """Some rows of the page: a renderer and its pixels."""

    def __init__(self, width: int, num_rows: int, dpi: int) -> None:
        self.renderer: Any = RendererAgg(width, num_rows, dpi)
        self.pixels: Array = np.asarray(self.renderer.buffer_rgba())
        self.words = self.pixels.view(np.uint32)[..., 0]
        self.num_rows = num_rows
        self.top = 0
        self.bottom = num_rows

    def move_to(self, top: int, background: str | None) -> None:
        """Empty the band and let it stand for the rows from ``top`` on."""
        self.top, self.bottom = top, top + self.num_rows
        color = (255, 255, 255, 0) if background is None else (*rgb(background), 255)
        self.words[:] = np.array(color, np.uint8).view(np.uint32)

    def holds(self, tops: Array, bottoms: Array) -> Array:
        """Return the indices of what lies in the band at least in part."""
        return np.flatnonzero((tops < self.bottom) & (bottoms > self.top))

    def paste(self, words: Array, rows: Array, columns: Array, left: int, top: int) -> None:
        """Replace pixels by those of a picture: ``rows`` and ``columns`` of ``words`` from (``left``, ``top``) on."""
        first, start = max(top, self.top), max(left, 0)
        rows = rows[first - top : self.bottom - top]
        columns = columns[start - left : max(0, self.words.shape[1] - left)]
        block = words.take(columns, axis=1).take(rows, axis=0)
        self.words[first - self.top :, start:][: block.shape[0], : block.shape[1]] = block


class _Batch(Protocol):
    def draw(self, band: _Band) -> None: ...


def _batches(scene: Scene, scale: float, options: ExportOptions) -> list[_Batch]:
    makers: dict[type, Callable[[Any], _Batch]] = {
        Rect: lambda marks: _Shapes(marks, scale, "miter"),
        Path: lambda marks: _Shapes(marks, scale, "round"),
        Text: lambda marks: _Glyphs(marks, scale, options.font_file),
        Image: lambda marks: _Pictures(marks, scale),
    }
    return [makers[kind](list(marks)) for kind, marks in groupby(in_paint_order(scene.marks), type)]


class _Shapes:
    """Rectangles or paths that one call draws."""

    def __init__(self, marks: Sequence[Rect | Path], scale: float, join: str) -> None:
        self._scale = scale
        self._join = join
        self._outlines = [shape_outline(mark) for mark in marks]
        nothing = (0.0, 0.0, 0.0, 0.0)
        self._faces = np.array([rgba_floats(mark.fill) if mark.fill else nothing for mark in marks])
        self._edges = np.array([rgba_floats(mark.stroke) if mark.stroke else nothing for mark in marks])
        self._widths = np.array([mark.stroke_width if mark.stroke else 0.0 for mark in marks])
        self._dashes = [_dash(mark) for mark in marks]
        heights = [np.asarray(outline.vertices)[:, 1] for outline in self._outlines]
        margin = self._widths * scale + 2
        self._tops = np.array([ys.min() for ys in heights]) * scale - margin
        self._bottoms = np.array([ys.max() for ys in heights]) * scale + margin

    def draw(self, band: _Band) -> None:
        found = band.holds(self._tops, self._bottoms)
        if not len(found):
            return
        gc = band.renderer.new_gc()
        gc.set_joinstyle(self._join)
        gc.set_capstyle("butt")
        band.renderer.draw_path_collection(
            gc,
            Affine2D().scale(self._scale, -self._scale).translate(0, band.bottom),
            [self._outlines[index] for index in found],
            np.zeros((0, 3, 3)),
            _NOWHERE,
            IdentityTransform(),
            self._faces[found],
            self._edges[found],
            self._widths[found],
            [self._dashes[index] for index in found],
            _ALWAYS,
            [None],
            "screen",
        )
        gc.restore()


def _dash(mark: Rect | Path) -> tuple[float, list[float] | None]:
    return (0.0, list(mark.dash)) if isinstance(mark, Path) and mark.dash else (0.0, None)


class _Glyphs:
    """The glyphs of all texts, those that look alike side by side.

    Baselines lie on whole pixels, which keeps small text crisp; along them glyphs keep their places to a quarter of
    a pixel.
    """

    def __init__(self, marks: Sequence[Text], scale: float, font_file: str | None) -> None:
        shapes: dict[tuple[str, str], int] = {}
        styles: dict[tuple[float, str], int] = {}
        x: list[float] = []
        glyphs: list[int] = []
        counts: list[int] = []
        for mark in marks:
            left, size = left_of(mark, font_file), mark.size
            places = glyph_places(mark.text, mark.weight, font_file)
            for char, file, offset in places:
                glyphs.append(shapes.setdefault((char, file), len(shapes)))
                x.append(left + offset * size)
            counts.append(len(places))
        of_mark = [styles.setdefault((mark.size * scale, mark.color), len(styles)) for mark in marks]
        columns, phases = np.divmod(np.rint(np.array(x) * scale * _PHASES).astype(np.int64), _PHASES)
        rows = np.rint(np.array([mark.y for mark in marks]) * scale).astype(np.int64).repeat(counts)
        looks = np.array(of_mark, np.int64).repeat(counts) * len(shapes) + np.array(glyphs, np.int64)
        looks = looks * _PHASES + phases
        order = np.argsort(looks, kind="stable")
        self._looks, self._columns, self._rows = looks[order], columns[order], rows[order]
        self._shapes, self._styles = list(shapes), list(styles)
        sizes = np.array([size for size, _ in styles])
        heights = sizes[self._looks // (max(1, len(shapes)) * _PHASES)] if len(looks) else np.zeros(0)
        self._tops, self._bottoms = self._rows - 2 * heights, self._rows + heights

    def draw(self, band: _Band) -> None:
        found = band.holds(self._tops, self._bottoms)
        if not len(found):
            return
        looks = self._looks[found]
        places = np.stack([self._columns[found], band.bottom - self._rows[found]], axis=1).astype(float)
        starts = np.flatnonzero(np.diff(looks, prepend=-1))
        gc = band.renderer.new_gc()
        gc.set_linewidth(0.0)
        gc.set_snap(False)
        for start, end in zip(starts, [*starts[1:], len(looks)], strict=True):
            look, phase = divmod(int(looks[start]), _PHASES)
            style, shape = divmod(look, len(self._shapes))
            size, color = self._styles[style]
            band.renderer.draw_markers(
                gc,
                glyph(*self._shapes[shape]),
                _to_marker(size, phase),
                Outline(places[start:end]),
                IdentityTransform(),
                rgba_floats(color),
            )
        gc.restore()


@lru_cache(maxsize=256)
def _to_marker(size: float, phase: int) -> Affine2D:
    # The renderer lets the origin of a marker be the middle of a pixel; ours is the corner.
    return Affine2D().scale(size).translate(phase / _PHASES - 0.5, 0.5)


class _Pictures:
    """Pictures, pasted where they are opaque."""

    def __init__(self, marks: Sequence[Image], scale: float) -> None:
        self._marks = marks
        self._tables: dict[int, Array] = {}
        ends = np.array([(mark.x, mark.y, mark.x + mark.width, mark.y + mark.height) for mark in marks]) * scale
        self._boxes = np.rint(ends).astype(np.int64)
        self._boxes[:, 2:] = np.maximum(self._boxes[:, 2:], self._boxes[:, :2] + 1)

    def draw(self, band: _Band) -> None:
        for index in band.holds(self._boxes[:, 1], self._boxes[:, 3]):
            mark = self._marks[index]
            left, top, right, bottom = map(int, self._boxes[index])
            width, height = right - left, bottom - top
            if mark.pixels.shape[0] > height or mark.pixels.shape[1] > width:
                small = PIL.Image.fromarray(np.ascontiguousarray(rgba_of(mark)))
                pixels = np.asarray(small.resize((width, height), PIL.Image.Resampling.BOX))
            else:
                pixels = self._colors(mark)
            words = pixels.view(np.uint32)[..., 0]
            rows, columns = _nearest(words.shape[0], height), _nearest(words.shape[1], width)
            if (pixels[..., 3] == 255).all():
                band.paste(words, rows, columns, left, top)
            else:
                gc = band.renderer.new_gc()
                block = words[rows[:, None], columns][..., None].view(np.uint8)
                band.renderer.draw_image(gc, left, band.bottom - bottom, block[::-1])
                gc.restore()

    def _colors(self, mark: Image) -> Array:
        """Return the pixels of ``mark`` as contiguous uint8 ``[H, W, 4]``."""
        if mark.palette is None:
            return np.ascontiguousarray(mark.pixels)
        table = self._tables.get(id(mark.palette))
        if table is None:
            opaque = np.full((len(mark.palette), 1), 255, np.uint8)
            table = self._tables[id(mark.palette)] = np.concatenate([mark.palette, opaque], axis=1)
        return table[mark.pixels]


@lru_cache(maxsize=256)
def _nearest(source: int, target: int) -> Array:
    """Return for each of ``target`` places the nearest of ``source`` ones."""
    return ((np.arange(target) + 0.5) * source / target).astype(np.int64)
