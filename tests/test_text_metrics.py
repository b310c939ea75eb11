from __future__ import annotations

import gc
import subprocess
import sys

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.t2CharStringPen import T2CharStringPen
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.ttLib import TTCollection, TTFont
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.ft2font import FT2Font, LoadFlags

from neural_flow.errors import ExportError
from neural_flow.text_metrics import (
    ellipsize,
    font_family,
    font_path,
    glyph_outline,
    glyph_places,
    has_all_glyphs,
    has_truetype_outlines,
    shown_text,
    text_runs,
    text_width,
)

LATIN = st.text(st.characters(min_codepoint=32, max_codepoint=0x17F, blacklist_categories=["Cc"]), max_size=40)


@pytest.mark.parametrize("weight", ["regular", "bold"])
@pytest.mark.parametrize("text", ["U-Net", "16×128²", "decoder.up2 (2nd call)", "pool ÷2", "0.48 M parameters"])
def test_width_agrees_with_freetype(text, weight):
    font = FT2Font(font_path(weight))
    font.set_size(100, 72)
    expected = sum(font.load_char(ord(char), flags=LoadFlags.NO_HINTING).linearHoriAdvance / 65536 for char in text)
    assert text_width(text, 100, weight) == pytest.approx(expected, rel=2e-3)


@given(LATIN, st.floats(1, 20), st.floats(6, 200))
def test_ellipsized_text_fits_and_keeps_its_ends(text, size, max_width):
    short = ellipsize(text, size, "regular", max_width)
    if short == text:
        assert text_width(text, size) <= max_width
    else:
        head, tail = short.split("…", 1) if text.count("…") == 0 else (short[:1], short[-1:])
        assert text.startswith(head)
        assert text.endswith(tail)
        assert text_width(short, size) <= max_width or short == "…"


@given(LATIN, LATIN)
def test_width_is_additive(first, second):
    assert text_width(first + second, 7) == pytest.approx(text_width(first, 7) + text_width(second, 7))


def test_a_character_without_glyph_is_written_as_its_code_point():
    assert shown_text("a中b") == "a\\u4e2db"
    assert not has_all_glyphs("中")
    assert has_all_glyphs("encoder ×÷²…·")
    assert text_width("中", 5) == pytest.approx(text_width("\\u4e2d", 5))


def test_runs_cover_the_text_with_the_given_font_first():
    runs = text_runs("a中b", 10, font_file=font_path("bold"))
    assert "".join(run.text for run in runs) == "a\\u4e2db"
    assert {run.file for run in runs} == {font_path("bold")}
    assert sum(run.width for run in runs) == pytest.approx(text_width("a中b", 10, font_file=font_path("bold")))


def test_outlines_are_closed_and_stand_on_the_baseline():
    outline = glyph_outline("H", font_path())
    assert outline[0][0] == "M"
    assert outline[-1] == ("Z",)
    ys = [value for command in outline for value in command[2::2]]
    assert min(ys) == 0
    assert 0.7 < max(ys) < 0.75
    assert glyph_outline("Ä", font_path()) != glyph_outline("A", font_path())


def test_places_leave_out_spaces():
    assert [char for char, _, _ in glyph_places("a b")] == ["a", "b"]
    assert glyph_places("a b")[1][2] == pytest.approx(text_width("a ", 1))


def test_an_unreadable_font_is_an_export_error(tmp_path):
    broken = tmp_path / "broken.ttf"
    broken.write_bytes(b"no font")
    with pytest.raises(ExportError, match="cannot be read"):
        text_width("a", 5, "regular", str(broken))


def small_font(file, advance: int, is_truetype: bool) -> str:
    """Write a font that has the one character 中, a square, and return its path."""
    builder = FontBuilder(1000, isTTF=is_truetype)
    builder.setupGlyphOrder([".notdef", "square"])
    builder.setupCharacterMap({0x4E2D: "square"})
    pen = TTGlyphPen(None) if is_truetype else T2CharStringPen(advance, None)
    pen.moveTo((0, 0))
    for point in ((0, 500), (500, 500), (500, 0)):
        pen.lineTo(point)
    pen.closePath()
    if is_truetype:
        builder.setupGlyf({".notdef": TTGlyphPen(None).glyph(), "square": pen.glyph()})
    else:
        shapes = {".notdef": T2CharStringPen(advance, None).getCharString(), "square": pen.getCharString()}
        builder.setupCFF("Small", {}, shapes, {})
    builder.setupHorizontalMetrics(dict.fromkeys((".notdef", "square"), (advance, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Small Han", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(file)
    return str(file)


@pytest.mark.parametrize("is_truetype", [False, True])
def test_fonts_of_both_kinds_are_read(tmp_path, is_truetype):
    file = small_font(tmp_path / "Small-Regular.ttf", 900, is_truetype)
    assert text_width("中", 10, font_file=file) == pytest.approx(9)
    assert glyph_outline("中", file)[0] == ("M", 0.0, 0.0)
    assert has_truetype_outlines(file) is is_truetype
    assert font_family(file) == "Small Han"


def test_bold_text_takes_the_bold_font_beside_the_given_one(tmp_path):
    regular = small_font(tmp_path / "Small-Regular.ttf", 900, is_truetype=True)
    assert text_runs("中", 10, "bold", regular)[0].file == regular
    other = tmp_path / "other"
    other.mkdir()
    regular = small_font(other / "Small-Regular.ttf", 900, is_truetype=True)
    bold = small_font(other / "Small-Bold.ttf", 1100, is_truetype=True)
    assert [text_runs("中", 10, weight, regular)[0].file for weight in ("regular", "bold")] == [regular, bold]
    assert text_width("中", 10, "bold", regular) == pytest.approx(11)


def test_a_collection_gives_its_first_font_and_stays_closed(tmp_path):
    collection = TTCollection()
    collection.fonts = [
        TTFont(small_font(tmp_path / f"{advance}.ttf", advance, is_truetype=True)) for advance in (900, 1100)
    ]
    collection.save(tmp_path / "both.ttc")
    assert text_width("中", 10, font_file=str(tmp_path / "both.ttc")) == pytest.approx(9)
    gc.collect()  # a file left open would be a ResourceWarning, which is an error


@pytest.mark.parametrize("char", ["\u202e", "\u2066"])
def test_marks_that_turn_the_direction_of_writing_are_seen(char):
    assert shown_text(f"a{char}b") == f"a\\u{ord(char):04x}b"
    assert [place[0] for place in glyph_places(f"{char}b")] == list(f"\\u{ord(char):04x}b")


def test_measuring_imports_no_matplotlib_and_no_torch():
    code = (
        "import sys; from neural_flow.text_metrics import text_width; text_width('a', 5);"
        "print([name for name in ('matplotlib', 'torch') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_name_of_several_lines_is_set_in_one():
    assert ellipsize("new\nline\ttab", 6, "regular", 500) == "new line tab"
    assert ellipsize("two  blanks", 6, "regular", 500) == "two  blanks"
