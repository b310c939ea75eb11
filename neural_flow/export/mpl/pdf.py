"""PDF: one page a scene, real text in embedded Type 42 fonts."""

from __future__ import annotations

from neural_flow.drawing import ExportOptions, Picture, Scene
from neural_flow.export._base import EXPORTERS, first_scene
from neural_flow.export._lowering import legal_text, warn_of_missing_glyphs
from neural_flow.export.mpl._import import load_drawing

MAX_SIDE = 14_400.0
"""Points; readers refuse larger pages."""


@EXPORTERS.register(".pdf")
def export_pdf(picture: Picture, options: ExportOptions) -> bytes:
    """Return all pages of ``picture`` as PDF. A page beyond what readers accept is scaled down."""
    first = first_scene(picture, ".pdf")
    for scene in picture.scenes:
        warn_of_missing_glyphs(scene, options)
    words = {"Title": legal_text(first.title), "Subject": legal_text(first.description)}
    return load_drawing("_vector").pdf(picture.scenes, options, words, scale_of)


def scale_of(scene: Scene) -> float:
    """Return by what a page is scaled so that readers open it; 1 for all but huge ones."""
    return min(1.0, MAX_SIDE / max(scene.width, scene.height))
