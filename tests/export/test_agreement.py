"""SVG and PNG are written by code that shares nothing below the marks: a third renderer compares them."""

from __future__ import annotations

import io

import numpy as np
import PIL.Image
import pytest

from neural_flow.drawing import ExportOptions
from neural_flow.export._base import render_bytes


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_svg_and_png_show_the_same(picture):
    cairosvg = pytest.importorskip("cairosvg")
    options = ExportOptions(dpi=288, has_text_as_paths=True)
    ours = PIL.Image.open(io.BytesIO(render_bytes(picture, ".png", options))).convert("RGB")
    svg = render_bytes(picture, ".svg", options)
    theirs = cairosvg.svg2png(svg, output_width=ours.width, output_height=ours.height)
    first = np.asarray(ours, float)
    second = np.asarray(PIL.Image.open(io.BytesIO(theirs)).convert("RGB"), float)
    difference = np.abs(first - second).max(axis=2)
    # Edges may differ by how they are smoothed; no area may.
    assert difference.mean() < 2.5
    inner = difference.reshape(difference.shape[0] // 4, 4, -1, 4).min(axis=(1, 3))
    assert (inner > 60).mean() < 0.002
