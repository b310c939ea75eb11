from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.transforms import Affine2D

from neural_flow.drawing import ExportOptions, Image, Path, Rect, Scene, Text
from neural_flow.export.mpl import _raster
from neural_flow.export.mpl._paths import glyph
from neural_flow.text_metrics import glyph_places

SIDE = 90.0
PALETTE = np.random.default_rng(0).integers(0, 256, (256, 3)).astype(np.uint8)


def whole(scene: Scene, dpi: int, max_pixels: int) -> np.ndarray:
    with _raster.drawing_state():
        return np.concatenate([band.copy() for band in _raster.bands(scene, dpi, ExportOptions(), max_pixels)])


def weighted(pixels: np.ndarray) -> np.ndarray:
    """Return colours times alpha, with alpha: a pixel that is all but clear has all but no colour."""
    alpha = pixels[..., 3:].astype(float)
    return np.concatenate([pixels[..., :3] * alpha / 255, alpha], axis=2)


places = st.floats(-20, SIDE + 10)
lengths = st.floats(0.1, 60)
colors = st.sampled_from(["#D55E00", "#0072B280", "#000000"])
layers = st.sampled_from([1.0, 2.0, 3.0])
rects = st.builds(
    Rect, x=places, y=places, width=lengths, height=lengths, radius=st.sampled_from([0.0, 4.0]),
    fill=st.none() | colors, stroke=st.none() | colors, stroke_width=st.floats(0.2, 5), layer=layers,
)  # fmt: skip
lines = st.builds(
    lambda points, **look: Path(commands=(("M", *points[0]), *(("L", *point) for point in points[1:])), **look),
    st.lists(st.tuples(places, places), min_size=2, max_size=5),
    stroke=colors, stroke_width=st.floats(0.2, 6), dash=st.sampled_from([(), (4.0, 2.0)]), layer=layers,
)  # fmt: skip
texts = st.builds(
    Text, x=places, y=places, text=st.text("Tgé×.W 中", max_size=6), size=st.floats(3, 30), color=colors,
    anchor=st.sampled_from(["start", "middle", "end"]), layer=layers,
)  # fmt: skip


def picture_mark(seed: int, rows: int, columns: int, kind: str, **box) -> Image:
    shape = (rows, columns, 4) if kind == "alpha" else (rows, columns)
    pixels = np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)
    return Image(pixels=pixels, palette=PALETTE if kind == "palette" else None, **box)


pictures = st.builds(
    picture_mark, st.integers(0, 99), st.integers(1, 40), st.integers(1, 40), st.sampled_from(["alpha", "palette"]),
    x=places, y=places, width=lengths, height=lengths, layer=layers,
)  # fmt: skip


@settings(max_examples=30)
@given(
    st.lists(rects | lines | texts | pictures, max_size=8),
    st.sampled_from([60, 72, 150]),
    st.sampled_from([None, "#0F161C"]),
)
def test_bands_do_not_show(marks, dpi, background):
    scene = Scene(width=SIDE, height=SIDE * 2.5, marks=tuple(marks), background=background)
    one = whole(scene, dpi, 10**9)
    many = whole(scene, dpi, 1)
    assert one.shape == many.shape == (*reversed(_raster.pixel_size(scene, dpi)), 4)
    # Agg cuts at the border of a band to 1/256 of a pixel: two levels of 255 a mark are no seam.
    assert np.abs(weighted(one) - weighted(many)).max(initial=0) <= 2 * len(marks)


def test_a_page_is_drawn_in_more_than_one_band_only_if_it_is_large():
    def count(width, height):
        scene = Scene(width=width, height=height, marks=(), background="#FFFFFF")
        with _raster.drawing_state():
            return [len(band) for band in _raster.bands(scene, 72, ExportOptions(), 100_000)]

    assert count(100, 500) == [500]
    assert count(1000, 250) == [100, 100, 50]
    assert count(50_000, 130) == [64, 64, 2]


@pytest.mark.parametrize("dpi", [100, 150, 300])
def test_glyphs_lie_where_the_outline_of_the_whole_text_lies(dpi):
    scale, x, y = dpi / 72, 7.3, 15.0
    text = Text(x=x, y=y, text="down0.convÅ 16×128²", size=5.2, color="#000000")
    ours = 255 - whole(Scene(width=90, height=24, marks=(text,), background="#FFFFFF"), dpi, 10**9)[..., 0].astype(
        float
    )
    height, width = ours.shape
    renderer = RendererAgg(width, height, dpi)
    gc = renderer.new_gc()
    gc.set_linewidth(0.0)
    gc.set_snap(False)
    for char, file, offset in glyph_places(text.text):
        place = ((x + offset * text.size) * scale, height - round(y * scale))
        renderer.draw_path(gc, glyph(char, file), Affine2D().scale(text.size * scale).translate(*place), (0, 0, 0, 1))
    theirs = np.asarray(renderer.buffer_rgba())[..., 3].astype(float)
    # The same ink in the same rows, and no glyph further off than an eighth of a pixel.
    np.testing.assert_allclose(ours.sum(axis=1), theirs.sum(axis=1), rtol=0.02, atol=60)
    np.testing.assert_allclose(ours.cumsum(axis=1)[:, -1], theirs.cumsum(axis=1)[:, -1], rtol=0.02, atol=60)
    middle = [(ink.sum(axis=0) * np.arange(width)).sum() / ink.sum() for ink in (ours, theirs)]
    assert abs(middle[0] - middle[1]) < 0.05
    assert np.abs(ours - theirs).mean() < 0.03 * 255


def test_opaque_pictures_are_exact_and_clear_ones_are_blended():
    pixels = np.zeros((2, 2, 4), np.uint8)
    pixels[0] = (200, 100, 0, 255)
    half = pixels.copy()
    half[..., 3] = 128
    marks = (Image(x=0, y=0, width=4, height=4, pixels=pixels), Image(x=4, y=0, width=4, height=4, pixels=half))
    shown = whole(Scene(width=8, height=4, marks=marks, background="#FFFFFF"), 72, 10**9)
    assert (shown[:2, :4] == (200, 100, 0, 255)).all()
    assert (np.abs(shown[:2, 4:, :3].astype(int) - (227, 177, 127)) <= 1).all()
    assert (np.abs(shown[2:, 4:, :3].astype(int) - 127) <= 1).all()
