from __future__ import annotations

import re
import zlib
from dataclasses import replace

import pytest

from neural_flow.drawing import ExportOptions, Scene
from neural_flow.export._base import render_bytes
from neural_flow.export.mpl.pdf import scale_of


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


def test_huge_pages_are_scaled_to_what_readers_open(picture, scene):
    huge = replace(scene, width=28_800.0, height=7_200.0)
    assert scale_of(huge) == 0.5
    assert scale_of(scene) == 1
    data = render_bytes(replace(picture, scenes=(huge,)), ".pdf")
    assert boxes(data) == [(14_400, 3_600)]
    widths = re.findall(rb"([\d.]+) w\b", contents(data))
    assert 0.525 in [pytest.approx(float(width)) for width in widths]


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


def test_an_empty_page_is_a_page(picture):
    data = render_bytes(replace(picture, scenes=(Scene(width=10, height=20, marks=()),)), ".pdf")
    assert boxes(data) == [(10, 20)]
