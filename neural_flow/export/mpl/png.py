"""PNG: drawn and compressed band by band, so that no page stands in memory as a whole."""

from __future__ import annotations

import warnings

from neural_flow.drawing import ExportOptions, Picture, Scene
from neural_flow.errors import ExportError, NeuralFlowWarning
from neural_flow.export._base import EXPORTERS, first_scene
from neural_flow.export._lowering import alt_text, warn_of_missing_glyphs
from neural_flow.export._png import stream_png
from neural_flow.export.mpl._import import load_drawing

SMALL_FIGURE = 10 * 72.0
"""Points; figures up to this side get 300 dpi."""
FINER_DPI = (2400, 1200, 600)
GOOD_DPI = 300
COARSER_DPI = (200, 150, 100)
COMFORT_PIXELS = 40e6
MAX_PIXELS = 250e6


@EXPORTERS.register(".png")
def export_png(picture: Picture, options: ExportOptions) -> bytes:
    """Return the first page of ``picture`` as PNG.

    Raises:
        ExportError: the page is too large for a raster picture even at 100 dpi.
    """
    scene = first_scene(picture, ".png")
    warn_of_missing_glyphs(scene, options)
    canvas = load_drawing("_raster")
    dpi = dpi_for(scene, options.dpi, canvas.max_side())
    with canvas.drawing_state():
        bands = canvas.bands(scene, dpi, options)
        return stream_png(
            canvas.pixel_size(scene, dpi),
            bands,
            has_alpha=scene.background is None,
            dpi=dpi,
            description=alt_text(scene),
        )


def dpi_for(scene: Scene, asked: int | None, max_side: int) -> int:
    """Return the dots per inch to draw ``scene`` with: what was asked for, if it fits into memory.

    Raises:
        ExportError: the page does not fit at 100 dpi either.
    """
    if asked is not None:
        if _fits(scene, asked, MAX_PIXELS, max_side):
            return asked
        usual = (dpi for dpi in (*FINER_DPI, GOOD_DPI, *COARSER_DPI) if dpi < asked)
        lower = [dpi for dpi in usual if _fits(scene, dpi, MAX_PIXELS, max_side)]
        if lower:
            warnings.warn(
                f"{asked} dpi would make a picture of {_size(scene, asked)} pixels; {lower[0]} dpi is used instead",
                NeuralFlowWarning,
                stacklevel=2,
            )
            return lower[0]
    else:
        is_small = max(scene.width, scene.height) <= SMALL_FIGURE
        choices = (GOOD_DPI, *COARSER_DPI) if is_small else COARSER_DPI
        for dpi in choices:
            if _fits(scene, dpi, COMFORT_PIXELS, max_side):
                return dpi
        if _fits(scene, choices[-1], MAX_PIXELS, max_side):
            return choices[-1]
    raise ExportError(
        f"a picture of {_size(scene, COARSER_DPI[-1])} pixels at {COARSER_DPI[-1]} dpi is too large for PNG",
        hint="write .svg or .pdf, or draw fewer stages: --max-stages 24, --fold",
    )


def _fits(scene: Scene, dpi: int, max_pixels: float, max_side: int) -> bool:
    width, height = scene.width * dpi / 72, scene.height * dpi / 72
    return width * height <= max_pixels and max(width, height) <= max_side


def _size(scene: Scene, dpi: int) -> str:
    return f"{scene.width * dpi / 72:.0f} x {scene.height * dpi / 72:.0f}"
