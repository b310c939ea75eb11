from __future__ import annotations

import re
import time
import zlib
from dataclasses import replace

from fontTools.fontBuilder import FontBuilder
from fontTools.pens.t2CharStringPen import T2CharStringPen

from neural_flow.drawing import ExportOptions, Scene, Text
from neural_flow.export._base import render_bytes


def test_words_fonts_and_no_date(picture):
    data = render_bytes(picture, ".pdf")
    assert data.startswith(b"%PDF-")
    assert b"/Title (Tiny <1>)" in data
    assert b"/Subject (one stage)" in data
    for word in (b"CreationDate", b"Producer", b"Creator", b"matplotlib"):
        assert word not in data
    assert b"/CIDFontType2" in data
    assert b"/Type3" not in data


def test_the_page_has_the_size_of_the_scene(picture):
    assert boxes(render_bytes(picture, ".pdf")) == [(120, 80)]


def boxes(data: bytes) -> list[tuple[float, float]]:
    found = re.findall(rb"/MediaBox \[ ?0 0 ([\d.]+) ([\d.]+) ?\]", data)
    return [(float(width), float(height)) for width, height in found]


def test_each_scene_is_a_page(picture, scene):
    wide = replace(scene, width=300.5)
    assert boxes(render_bytes(replace(picture, scenes=(scene, wide)), ".pdf")) == [(120, 80), (300.5, 80)]


def test_huge_pages_become_several(picture, scene):
    text = Text(x=30_000, y=40, text="far", size=8, color="#000000")
    huge = replace(scene, width=30_100.0, marks=(*scene.marks, text))
    found = boxes(render_bytes(replace(picture, scenes=(huge, scene)), ".pdf"))
    assert len(found) == 3 + 1 - 1  # the middle part of the page is empty
    assert all(max(box) <= 14_400 for box in found)
    assert found[-1] == (120, 80)


def test_the_same_picture_gives_the_same_bytes(picture):
    first = render_bytes(picture, ".pdf")
    time.sleep(1.1)  # a date would show
    assert render_bytes(picture, ".pdf") == first


def contents(data: bytes) -> bytes:
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", data, re.DOTALL)
    found = []
    for stream in streams:
        try:
            found.append(zlib.decompress(stream))
        except zlib.error:
            continue
    return b"\n".join(found)


def test_text_is_text_unless_paths_are_asked_for(picture):
    assert b"BT" in contents(render_bytes(picture, ".pdf"))
    outlines = render_bytes(picture, ".pdf", ExportOptions(has_text_as_paths=True))
    assert b"CIDFontType2" not in outlines
    assert b"BT" not in contents(outlines)


def test_a_font_that_type_42_cannot_hold_becomes_outlines(picture, tmp_path):
    shapes = {name: T2CharStringPen(900, None) for name in (".notdef", "han")}
    for point in ((0, 0), (0, 500), (500, 0)):
        (shapes["han"].lineTo if point[1] or point[0] else shapes["han"].moveTo)(point)
    shapes["han"].closePath()
    builder = FontBuilder(1000, isTTF=False)
    builder.setupGlyphOrder(list(shapes))
    builder.setupCharacterMap({0x4E2D: "han"})
    builder.setupCFF("Small", {}, {name: pen.getCharString() for name, pen in shapes.items()}, {})
    builder.setupHorizontalMetrics(dict.fromkeys(shapes, (900, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Small", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(tmp_path / "small.otf")
    text = Text(x=5, y=10, text="a中", size=8, color="#000000")
    page = Scene(width=40, height=20, marks=(text,))
    data = render_bytes(replace(picture, scenes=(page,)), ".pdf", ExportOptions(font_file=str(tmp_path / "small.otf")))
    assert b"/CIDFontType2" in data  # the letter, from DejaVu
    assert b"FontFile3" not in data
    assert contents(data).count(b" l\n") == 4 + 2  # the page and the triangle


def test_an_empty_page_is_a_page(picture):
    data = render_bytes(replace(picture, scenes=(Scene(width=10, height=20, marks=()),)), ".pdf")
    assert boxes(data) == [(10, 20)]
