from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neural_flow.drawing import ExportOptions, Image, MarkGroup, Path, Picture, Rect, Scene, Text
from neural_flow.errors import NeuralFlowWarning
from neural_flow.export._base import render_bytes
from neural_flow.export._lowering import number
from neural_flow.export.svg import FONT_FAMILY, safe_id, svg_text
from neural_flow.text_metrics import font_path, has_all_glyphs, shown_text, text_width

NS = {"svg": "http://www.w3.org/2000/svg"}
OPTIONS = ExportOptions()


def parsed(scene: Scene, options: ExportOptions = OPTIONS) -> ElementTree.Element:
    return ElementTree.fromstring(svg_text(scene, options))


def test_root_says_what_it_shows(scene):
    root = parsed(scene)
    assert root.get("role") == "img"
    assert root.get("viewBox") == "0 0 120 80"
    assert (root.get("width"), root.get("height")) == ("120pt", "80pt")
    title, desc = root[0], root[1]
    assert root.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"
    assert (title.text, desc.text) == ("Tiny <1>", "one stage")
    assert len(root.findall("svg:title", NS)) == 1


def test_no_doctype_no_date_and_a_utf8_declaration(picture):
    data = render_bytes(picture, ".svg")
    assert data.startswith(b'<?xml version="1.0" encoding="UTF-8"?>\n<svg ')
    assert b"DOCTYPE" not in data
    assert b"date" not in data.lower()


def test_each_group_is_one_element_with_tooltip_and_data(scene):
    root = parsed(scene)
    groups = {group.get("id"): group for group in root.findall("svg:g", NS)}
    assert list(groups) == ["edge-1", "stage-1"]
    stage = groups["stage-1"]
    assert stage.find("svg:title", NS).text == "a|b<c>\nConv2d"
    assert stage.get("tabindex") == "0"
    assert stage.get("class") == "nf-stage"
    assert stage.get("data-module") == 'a"b'
    assert (groups["edge-1"].get("data-src"), groups["edge-1"].get("data-dst")) == ("1", "2")
    assert len(stage) == 4  # title, image, frame, label


def test_text_is_text_with_the_width_that_layout_knew(scene):
    texts = parsed(scene).findall(".//svg:text", NS)
    title = next(text for text in texts if text.text == "Tiny & <small>")
    assert float(title.get("textLength")) == pytest.approx(text_width("Tiny & <small>", 8, "bold"), abs=0.006)
    assert title.get("lengthAdjust") == "spacingAndGlyphs"


def test_what_no_font_has_is_left_to_the_viewer_or_said():
    scene = Scene(width=99, height=9, marks=(Text(x=0, y=5, text="中文", size=5, color="#000000"),), title="T")
    text = parsed(scene).find(".//svg:text", NS)
    assert text.text == "中文"
    assert text.get("textLength") is None
    picture = Picture(topology=None, capture=None, scenes=(scene,))
    assert "中文".encode() in render_bytes(picture, ".svg")
    with pytest.warns(NeuralFlowWarning, match=r"no glyph for 2 characters \(U\+4E2D, U\+6587\).*--font"):
        render_bytes(picture, ".svg", ExportOptions(has_text_as_paths=True))


def test_a_name_cannot_turn_the_direction_of_writing():
    name = "\u202elive\tname"
    mark = Text(x=0, y=5, text=name, size=5, color="#000000", group="stage-1")
    group = MarkGroup(group_id="stage-1", title=f"{name}\nConv2d")
    root = parsed(Scene(width=99, height=9, marks=(mark,), groups=(group,), title=name))
    assert root.find(".//svg:text", NS).text == r"\u202elive\u0009name" == shown_text(name)
    assert root.find(".//svg:g/svg:title", NS).text == "\\u202elive\tname\nConv2d"  # tooltips have lines
    assert not has_all_glyphs(name[0])


def test_the_given_font_is_asked_for_first(scene):
    family = parsed(scene, ExportOptions(font_file=font_path("bold"))).get("font-family")
    assert family == "'DejaVu Sans', " + FONT_FAMILY
    assert parsed(scene).get("font-family") == FONT_FAMILY


def test_text_as_paths_needs_no_font(scene):
    root = parsed(scene, ExportOptions(has_text_as_paths=True))
    assert root.findall(".//svg:text", NS) == []
    outlines = [path for path in root.findall(".//svg:path", NS) if path.get("aria-label")]
    assert {path.get("aria-label") for path in outlines} == {"Tiny & <small>", "a|b<c> é"}
    title = next(path for path in outlines if path.get("aria-label").startswith("Tiny"))
    xs = [float(x) for x, _ in re.findall(r"(-?[\d.]+) (-?[\d.]+)", title.get("d"))]
    assert min(xs) >= 10
    assert max(xs) <= 10 + text_width("Tiny & <small>", 8, "bold")


def test_tiles_are_palette_pngs_enlarged_by_a_whole_factor(scene):
    mark = next(mark for mark in scene.marks if isinstance(mark, Image))
    root = parsed(scene)
    element = root.find(".//svg:image", NS)
    assert "image-rendering:pixelated" in root.get("style")  # inherited by every image
    assert element.get("preserveAspectRatio") == "none"
    tile = PIL.Image.open(io.BytesIO(base64.b64decode(element.get("href").split(",")[1])))
    assert tile.mode == "P"
    assert tile.width % 4 == tile.height % 3 == 0
    assert tile.width >= 4 * mark.width
    assert tile.height >= 4 * mark.height
    shown = np.asarray(tile.convert("RGB"))[:: tile.height // 3, :: tile.width // 4]
    np.testing.assert_array_equal(shown, mark.palette[mark.pixels])


@pytest.mark.parametrize("has_alpha", [False, True])
def test_tiles_without_palette_keep_their_colors(has_alpha):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 4, 4)).astype(np.uint8)
    if not has_alpha:
        pixels[..., 3] = 255
    scene = Scene(width=9, height=9, marks=(Image(x=0, y=0, width=2, height=1, pixels=pixels),))
    element = parsed(scene).find(".//svg:image", NS)
    tile = PIL.Image.open(io.BytesIO(base64.b64decode(element.get("href").split(",")[1])))
    assert tile.mode == ("RGBA" if has_alpha else "RGB")
    np.testing.assert_array_equal(np.asarray(tile.convert("RGBA"))[:: tile.height // 5, :: tile.width // 4], pixels)


@pytest.mark.parametrize("has_text_as_paths", [False, True])
def test_nothing_outside_the_file_is_asked_for(scene, has_text_as_paths):
    text = svg_text(scene, ExportOptions(has_text_as_paths=has_text_as_paths))
    assert set(re.findall(r"https?://[^\"' <]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in text
    assert "@import" not in text
    root = ElementTree.fromstring(text)
    tags = {element.tag.split("}")[1] for element in root.iter()}
    assert not tags & {"script", "style", "use", "foreignObject", "iframe"}
    links = [value for element in root.iter() for name, value in element.attrib.items() if name.endswith("href")]
    assert links
    assert all(link.startswith("data:image/png;base64,") for link in links)


def test_a_transparent_page_has_no_ground(scene):
    assert "#FFFFFF" not in svg_text(replace(scene, background=None), OPTIONS)
    assert '<rect width="120" height="80" fill="#FFFFFF"/>' in svg_text(scene, OPTIONS)


def test_marks_of_lower_layers_come_first():
    marks = (
        Rect(x=0, y=0, width=1, height=1, fill="#000001", layer=5),
        Rect(x=0, y=0, width=1, height=1, fill="#000002", layer=1),
        Path(commands=(("M", 0, 0), ("L", 1, 1)), stroke="#000003", stroke_width=1, layer=3),
    )
    text = svg_text(Scene(width=1, height=1, marks=marks), OPTIONS)
    assert text.index("#000002") < text.index("#000003") < text.index("#000001")


def test_links_and_prefixes():
    mark = Rect(x=0, y=0, width=1, height=1, fill="#000000", group="stage-1")
    group = MarkGroup(group_id="stage-1", title="t", href='https://example.org/?a="1"&b')
    text = svg_text(Scene(width=1, height=1, marks=(mark,), groups=(group,), title="T"), OPTIONS, prefix="p1-")
    root = ElementTree.fromstring(text)
    assert root.find(".//svg:a", NS).get("href") == 'https://example.org/?a="1"&b'
    assert [element.get("id") for element in root.iter() if element.get("id")] == [
        "p1-nf-title",
        "p1-nf-desc",
        "p1-stage-1",
    ]


ANY_TEXT = st.text(max_size=30)


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_any_name_gives_well_formed_xml(name, title, key):
    mark = Text(x=0, y=0, text=name, size=5, color="#000000", group=name)
    group = MarkGroup(group_id=name, title=title, css_class=title, data=((key or "a", name),))
    scene = Scene(width=9, height=9, marks=(mark,), groups=(group,), title=title, description=name)
    for options in (OPTIONS, ExportOptions(has_text_as_paths=True)):
        root = ElementTree.fromstring(svg_text(scene, options).encode())
        ids = [element.get("id") for element in root.iter() if element.get("id")]
        assert all(re.fullmatch("[A-Za-z0-9_-]*", found) for found in ids)


@given(st.floats(-1e6, 1e6))
def test_numbers_have_at_most_two_decimals(value):
    text = number(value)
    assert re.fullmatch(r"-?\d+(\.\d{1,2})?", text)
    assert float(text) == pytest.approx(value, abs=0.00501)
    assert text != "-0"


def test_ids_hold_nothing_but_letters_digits_and_dashes():
    assert safe_id('stage-1"><script>') == "stage-1___script_"
