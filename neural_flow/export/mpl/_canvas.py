"""One figure for one page: a single artist lowers every mark to calls of the renderer.

Pages are in points, y downwards; devices in pixels, y upwards. No axes, no Text, no AxesImage: 500 cards draw faster
than their PNG is compressed. pyplot is never imported and rcParams change only inside ``drawing_state``.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from functools import lru_cache
from math import ceil, sqrt
from typing import Any, assert_never

import matplotlib
import numpy as np
import PIL.Image
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path as Outline
from matplotlib.transforms import Affine2D

from neural_flow.drawing import ExportOptions, Image, Mark, Path, Rect, Scene, Text
from neural_flow.export._lowering import alpha_of, enlarged, in_paint_order, outline_of, rgba_of
from neural_flow.records import Array
from neural_flow.text_metrics import Weight, glyph_outline, glyph_places, text_runs, text_width

_CODES = {"M": (1,), "L": (2,), "Q": (3, 3), "C": (4, 4, 4), "Z": (79,)}
_RECT_CODES = np.array([1, 2, 2, 2, 79], np.uint8)
_MAX_ENLARGED_PIXELS = 48e6
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


def max_side() -> int:
    """Return how many pixels a side of a raster page may have."""
    version: tuple[int, ...] = tuple(matplotlib.__version_info__[:2])
    return 2**23 - 1 if version >= (3, 10) else 65_535


def raster(scene: Scene, dpi: int, options: ExportOptions) -> tuple[tuple[int, int], memoryview]:
    """Return ``scene`` at ``dpi`` pixels an inch: width and height, and rows of red, green, blue and alpha bytes."""
    width, height = pixel_size(scene, dpi)
    # The renderer truncates: a hundredth of a pixel keeps a rounding error from costing a row.
    figure = page(scene, ((width + 0.01) / dpi, (height + 0.01) / dpi), dpi, options)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return (width, height), canvas.buffer_rgba()


def page(
    scene: Scene,
    size: tuple[float, float],
    dpi: float,
    options: ExportOptions,
    zoom: float = 1.0,
    density: float = 4.0,
) -> Figure:
    """Return a figure of ``size`` inches that draws the marks of ``scene``, ``zoom`` times as large.

    ``density`` is the least number of pixels a point of pictures in vector files.
    """
    figure = Figure(figsize=size, dpi=dpi, facecolor=scene.background or "none", edgecolor="none")
    figure.add_artist(_Marks(scene, options, zoom, density))
    return figure


def pixel_size(scene: Scene, dpi: float) -> tuple[int, int]:
    """Return width and height of the page in pixels."""
    return ceil(scene.width * dpi / 72 - 0.01), ceil(scene.height * dpi / 72 - 0.01)


class _Marks(Artist):
    """All marks of a page."""

    def __init__(self, scene: Scene, options: ExportOptions, zoom: float, density: float) -> None:
        super().__init__()
        self._density = density
        self._scene = scene
        self._zoom = zoom
        self._options = options

    def draw(self, renderer: Any) -> None:
        """Draw every mark in paint order."""
        figure = self.get_figure()
        assert figure is not None
        brush = _Brush(renderer, figure.dpi / 72, self._zoom, figure.bbox.height, self._options, self._density)
        for mark in in_paint_order(self._scene.marks):
            brush.draw(mark)


class _Brush:
    """Draws single marks on one renderer.

    ``zoom`` scales the page; ``pixels`` are device pixels a point, ``height`` the page in pixels. Line widths and
    dashes stay in points: renderers scale these themselves.
    """

    def __init__(
        self, renderer: Any, pixels: float, zoom: float, height: float, options: ExportOptions, density: float
    ) -> None:
        self._density = density
        scale = pixels * zoom
        self._renderer = renderer
        self._scale = scale
        self._zoom = zoom
        self._height = height
        self._options = options
        self._is_vector = bool(renderer.option_scale_image())
        self._to_device = Affine2D().scale(scale, -scale).translate(0, height)

    def draw(self, mark: Mark) -> None:
        match mark:
            case Rect() | Path():
                self._shape(mark)
            case Text():
                if self._is_vector and not self._options.has_text_as_paths:
                    self._text(mark)
                else:
                    self._outlined_text(mark)
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
            gc.set_foreground(_rgba(mark.stroke), isRGBA=True)
            gc.set_linewidth(mark.stroke_width * self._zoom)
            if isinstance(mark, Path) and mark.dash:
                gc.set_dashes(0, [length * self._zoom for length in mark.dash])
        face = None if mark.fill is None else _rgba(mark.fill)
        self._renderer.draw_path(gc, _shape_outline(mark), self._to_device, face)
        gc.restore()

    def _left(self, mark: Text) -> float:
        shift = {"start": 0.0, "middle": 0.5, "end": 1.0}[mark.anchor]
        return mark.x - shift * text_width(mark.text, mark.size, mark.weight, self._options.font_file)

    def _text(self, mark: Text) -> None:
        gc = self._renderer.new_gc()
        gc.set_foreground(_rgba(mark.color), isRGBA=True)
        left, y = self._left(mark), self._height - mark.y * self._scale
        for run in text_runs(mark.text, mark.size, mark.weight, self._options.font_file):
            font = FontProperties(fname=run.file, size=mark.size * self._scale)
            self._renderer.draw_text(gc, (left + run.x) * self._scale, y, run.text, font, 0, ismath=False)
        gc.restore()

    def _outlined_text(self, mark: Text) -> None:
        gc = self._renderer.new_gc()
        gc.set_linewidth(0.0)
        gc.set_snap(False)
        y = self._height - mark.y * self._scale
        # A baseline on a whole pixel keeps small text crisp; glyphs keep their exact places along it.
        place = (self._left(mark) * self._scale, y if self._is_vector else round(y))
        to_device = Affine2D().scale(mark.size * self._scale).translate(*place)
        shape = _text_outline(mark.text, mark.weight, self._options.font_file)
        self._renderer.draw_path(gc, shape, to_device, _rgba(mark.color))
        gc.restore()

    def _image(self, mark: Image) -> None:
        gc = self._renderer.new_gc()
        if self._is_vector:
            width, height = mark.width * self._scale, mark.height * self._scale
            pixels = rgba_of(replace(mark, pixels=enlarged(mark, self._density)))
            x, y = mark.x * self._scale, self._height - mark.y * self._scale - height
            self._renderer.draw_image(gc, x, y, pixels[::-1], Affine2D().scale(width, height))
        else:
            left, right = round(mark.x * self._scale), round((mark.x + mark.width) * self._scale)
            top, bottom = round(mark.y * self._scale), round((mark.y + mark.height) * self._scale)
            pixels = _resized(rgba_of(mark), max(1, right - left), max(1, bottom - top))
            self._renderer.draw_image(gc, left, round(self._height) - max(bottom, top + 1), pixels[::-1])
        gc.restore()


def _resized(pixels: Array, width: int, height: int) -> Array:
    is_smaller = width < pixels.shape[1] or height < pixels.shape[0]
    how = PIL.Image.Resampling.BOX if is_smaller else PIL.Image.Resampling.NEAREST
    return np.asarray(PIL.Image.fromarray(np.ascontiguousarray(pixels)).resize((width, height), how))


def _shape_outline(mark: Rect | Path) -> Outline:
    if isinstance(mark, Path) or mark.radius > 0:
        return outline(outline_of(mark))
    right, bottom = mark.x + mark.width, mark.y + mark.height
    corners = [(mark.x, mark.y), (right, mark.y), (right, bottom), (mark.x, bottom), (mark.x, mark.y)]
    return Outline(np.array(corners), _RECT_CODES)


def outline(commands: Iterable[tuple[Any, ...]]) -> Outline:
    """Return path commands as a matplotlib path."""
    points: list[tuple[float, float]] = []
    codes: list[int] = []
    for letter, *values in commands:
        codes += _CODES[letter]
        points += list(zip(values[::2], values[1::2], strict=True)) or [(0.0, 0.0)]
    return Outline(np.array(points).reshape(-1, 2), np.array(codes, np.uint8))


@lru_cache(maxsize=4096)
def _text_outline(text: str, weight: Weight, font_file: str | None) -> Outline:
    """Return all glyphs of ``text`` as one path in units of the font size, y upwards."""
    points: list[Array] = [np.zeros((1, 2))]
    codes: list[Array] = [np.array([1], np.uint8)]
    for char, file, offset in glyph_places(text, weight, font_file):
        glyph = _glyph(char, file)
        points.append(np.asarray(glyph.vertices) + np.array([offset, 0.0]))
        codes.append(np.asarray(glyph.codes))
    return Outline(np.concatenate(points), np.concatenate(codes))


@lru_cache(maxsize=2048)
def _glyph(char: str, file: str) -> Outline:
    return outline(glyph_outline(char, file))


@lru_cache(maxsize=1024)
def _rgba(color: str) -> tuple[float, float, float, float]:
    red, green, blue = (int(color[start : start + 2], 16) / 255 for start in (1, 3, 5))
    return red, green, blue, alpha_of(color)


def _density(scene: Scene) -> float:
    """Return the pixels a point that pictures are enlarged to, fewer where so many pictures would fill the memory."""
    area = sum(mark.width * mark.height for mark in scene.marks if isinstance(mark, Image))
    return min(4.0, max(1.0, sqrt(_MAX_ENLARGED_PIXELS / max(area, 1.0))))


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
            pages.savefig(page(scene, size, 72, options, zoom, _density(scene)), dpi=72)
    return buffer.getvalue()
