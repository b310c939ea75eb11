from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import replace

import matplotlib
import numpy as np
import PIL.Image
import pytest

from neural_flow.drawing import ExportOptions, Image, Path, Rect, Scene, Text
from neural_flow.errors import ExportError, NeuralFlowWarning
from neural_flow.export._base import render_bytes
from neural_flow.export.mpl.png import dpi_for

SIDE = 2**23


def opened(picture, options=None) -> PIL.Image.Image:
    return PIL.Image.open(io.BytesIO(render_bytes(picture, ".png", options)))


def page(*marks, width=72.0, height=36.0, background="#FFFFFF") -> Scene:
    return Scene(width=width, height=height, marks=marks, background=background)


def pixels_of(picture, scene, dpi=72) -> np.ndarray:
    found = opened(replace(picture, scenes=(scene,)), ExportOptions(dpi=dpi))
    return np.asarray(found.convert("RGBA"))


def test_size_resolution_and_words(picture):
    found = opened(picture)
    assert found.size == (500, 334)  # 120 x 80 pt at 300 dpi, rounded up
    assert found.mode == "RGB"
    assert found.info["dpi"] == pytest.approx((300, 300), abs=0.1)
    assert found.info["Description"] == "Tiny <1>. one stage"
    assert set(found.info) == {"dpi", "Description"}


def test_a_transparent_page_has_alpha(picture, scene):
    found = opened(replace(picture, scenes=(replace(scene, background=None),)))
    assert found.mode == "RGBA"
    assert np.asarray(found)[0, 0, 3] == 0


def test_shapes_land_where_they_belong(picture):
    shown = pixels_of(picture, page(Rect(x=10, y=20, width=30, height=10, fill="#FF0000")))
    assert shown.shape == (36, 72, 4)
    is_red = (shown[..., :3] == (255, 0, 0)).all(axis=2)
    rows, columns = np.nonzero(is_red)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (20, 29, 10, 39)
    assert is_red.sum() == 300


@pytest.mark.parametrize("dpi", [72, 144, 288])
def test_line_widths_scale_with_the_resolution(picture, dpi):
    line = Path(commands=(("M", 0, 18), ("L", 72, 18)), stroke="#000000", stroke_width=2)
    column = pixels_of(picture, page(line), dpi)[:, 20, 0]
    assert (255 - column.astype(int)).sum() / 255 == pytest.approx(2 * dpi / 72, abs=0.6)


def test_images_are_upright_and_sharp(picture):
    pixels = np.zeros((2, 2, 4), np.uint8)
    pixels[..., 3] = 255
    pixels[0, 0] = (255, 0, 0, 255)
    pixels[1, 1] = (0, 0, 255, 255)
    shown = pixels_of(picture, page(Image(x=0, y=0, width=20, height=10, pixels=pixels)))
    assert (shown[:5, :10, :3] == (255, 0, 0)).all()
    assert (shown[5:10, 10:20, :3] == (0, 0, 255)).all()
    assert (shown[:5, 10:20, :3] == 0).all()
    assert (shown[10:, :, :3] == 255).all()


def test_shrunk_images_are_averaged(picture):
    pixels = np.indices((64, 64)).sum(axis=0).astype(np.uint8) % 2 * 255
    palette = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, axis=1)
    shown = pixels_of(picture, page(Image(x=0, y=0, width=16, height=16, pixels=pixels, palette=palette)))
    assert abs(int(shown[8, 8, 0]) - 127) <= 1


def test_text_has_the_width_that_layout_knew(picture):
    from neural_flow.text_metrics import text_width

    for anchor, left in (
        ("start", 36.0),
        ("middle", 36 - text_width("Hill", 10) / 2),
        ("end", 36 - text_width("Hill", 10)),
    ):
        text = Text(x=36, y=20, text="Hill", size=10, color="#000000", anchor=anchor)
        columns = np.nonzero((pixels_of(picture, page(text), 288)[..., 0] < 128).any(axis=0))[0] / 4
        assert left <= columns.min() <= left + 1.5
        assert columns.max() <= left + text_width("Hill", 10) + 0.3


def test_text_as_paths_makes_no_difference_in_pixels(picture):
    first = np.asarray(opened(picture))
    second = np.asarray(opened(picture, ExportOptions(has_text_as_paths=True)))
    np.testing.assert_array_equal(first, second)


def test_characters_without_a_glyph_are_said_once(picture):
    text = Text(x=2, y=20, text="中 a 中", size=8, color="#000000")
    with pytest.warns(NeuralFlowWarning, match=r"no glyph for 1 characters \(U\+4E2D\)") as caught:
        pixels_of(picture, page(text, text))
    assert len(caught) == 1


def test_control_characters_are_shown_without_a_word(picture):
    text = Text(x=2, y=20, text="a\tb\u202e", size=8, color="#000000")
    plain = Text(x=2, y=20, text="a\\u0009b\\u202e", size=8, color="#000000")
    np.testing.assert_array_equal(pixels_of(picture, page(text)), pixels_of(picture, page(plain)))


def test_marks_are_painted_by_layer(picture):
    over = Rect(x=0, y=0, width=9, height=9, fill="#FF0000", layer=2)
    under = Rect(x=0, y=0, width=9, height=9, fill="#0000FF", layer=1)
    assert tuple(pixels_of(picture, page(over, under))[4, 4, :3]) == (255, 0, 0)


@pytest.mark.parametrize(
    ("width", "height", "expected"),
    [
        (516, 328, 300),
        (720, 720, 300),
        (721, 300, 200),
        (1067, 600, 200),
        (2400, 2400, 150),
        (4000, 3000, 100),
        (9000, 7000, 100),
    ],
)
def test_resolution_of_a_figure_that_names_none(width, height, expected):
    assert dpi_for(page(width=width, height=height), None, SIDE) == expected


def test_an_asked_resolution_that_does_not_fit_is_lowered_with_a_warning():
    big = page(width=8000, height=6000)
    with pytest.warns(NeuralFlowWarning, match="600 dpi would make a picture of 66667 x 50000 pixels; 150 dpi"):
        assert dpi_for(big, 600, SIDE) == 150
    with pytest.warns(NeuralFlowWarning, match="1200 dpi is used instead"):
        assert dpi_for(page(width=700, height=500), 5000, SIDE) == 1200
    assert dpi_for(page(), 600, SIDE) == 600
    assert dpi_for(page(), 50, SIDE) == 50


def test_a_picture_beyond_memory_is_refused_with_a_way_on():
    with pytest.raises(ExportError, match="too large for PNG") as caught:
        dpi_for(page(width=40_000, height=20_000), None, SIDE)
    assert ".svg" in caught.value.hint


def test_an_old_renderer_has_a_smaller_side():
    tall = page(width=100, height=30_000)
    assert dpi_for(tall, 300, SIDE) == 300
    with pytest.warns(NeuralFlowWarning, match="150 dpi"):
        assert dpi_for(tall, 300, 65_535) == 150


def test_matplotlib_is_left_as_it_was(picture):
    matplotlib.rcParams["path.simplify"] = True
    matplotlib.rcParams["pdf.fonttype"] = 3
    before = {key: matplotlib.rcParams._get(key) for key in matplotlib.rcParams}
    environment = dict(os.environ)
    modules = set(sys.modules)
    try:
        render_bytes(picture, ".png")
        render_bytes(picture, ".pdf")
        assert {key: matplotlib.rcParams._get(key) for key in matplotlib.rcParams} == before
        assert dict(os.environ) == environment
        assert "matplotlib.pyplot" not in set(sys.modules) - modules
    finally:
        matplotlib.rcdefaults()


@pytest.mark.parametrize("suffix", [".png", ".pdf"])
def test_a_users_settings_do_not_show(picture, suffix):
    plain = render_bytes(picture, suffix)
    theirs = {
        "savefig.bbox": "tight", "savefig.facecolor": "red", "savefig.dpi": 20, "figure.facecolor": "blue",
        "figure.dpi": 33, "path.sketch": (3, 10, 2), "figure.autolayout": True, "agg.path.chunksize": 2,
        "savefig.transparent": True, "path.simplify": True, "font.family": ["serif"], "text.usetex": True,
        "lines.linewidth": 9, "pdf.fonttype": 3, "pdf.compression": 1, "font.size": 30, "path.snap": False,
    }  # fmt: skip
    with matplotlib.rc_context(theirs):
        assert render_bytes(picture, suffix) == plain


SCRIPT = """
import os, sys
sys.path.insert(0, {here!r})
from conftest import small_scene, small_topology
from neural_flow.drawing import Picture
from neural_flow.export._base import render_bytes
from neural_flow.records import Capture
picture = Picture(topology=small_topology(), capture=Capture(), scenes=(small_scene(),))
environment = dict(os.environ)
for suffix in (".svg", ".txt", ".md", ".json", ".html"):
    render_bytes(picture, suffix)
assert "matplotlib" not in sys.modules
assert "torch" not in sys.modules
for suffix in (".png", ".pdf"):
    assert render_bytes(picture, suffix)
import matplotlib
assert "matplotlib.pyplot" not in sys.modules
assert dict(os.environ) == environment
print(matplotlib.rcParams._get("backend").lower())
"""


def test_drawing_works_without_display_home_and_with_a_foreign_backend(tmp_path):
    here = os.path.dirname(os.path.dirname(__file__))
    env = {
        "PATH": os.environ["PATH"], "PYTHONPATH": os.getcwd(), "MPLBACKEND": "TkAgg", "DISPLAY": ":99",
        "HOME": str(tmp_path / "no" / "home"), "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(here=here)], env=env, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "tkagg"
    assert ran.stderr == ""
    assert list(tmp_path.iterdir()) == []
    assert not os.path.exists(env["HOME"])
