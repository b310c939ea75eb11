"""PDF: one page a scene, real text in embedded Type 42 fonts."""

from __future__ import annotations

from neural_flow.drawing import ExportOptions, Picture
from neural_flow.export._base import EXPORTERS, first_scene
from neural_flow.export._lowering import legal_text, warn_of_missing_glyphs
from neural_flow.export._paging import pages_of
from neural_flow.export.mpl._import import load_drawing

MAX_SIDE = 14_400.0
"""Points: what the format allows a side of a page."""


@EXPORTERS.register(".pdf")
def export_pdf(picture: Picture, options: ExportOptions) -> bytes:
    """Return all scenes of ``picture`` as PDF, each on one page if readers open one so large, else on several."""
    first = first_scene(picture, ".pdf")
    for scene in picture.scenes:
        warn_of_missing_glyphs(scene, options)
    words = {"Title": legal_text(first.title), "Subject": legal_text(first.description)}
    pages = ((scene, *page) for scene in picture.scenes for page in pages_of(scene, MAX_SIDE, options.font_file))
    return load_drawing("_vector").pdf(pages, options, words)
