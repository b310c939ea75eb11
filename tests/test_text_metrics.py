from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.ft2font import FT2Font, LoadFlags

from neural_flow.errors import ExportError
from neural_flow.text_metrics import (
    ellipsize,
    font_path,
    glyph_outline,
    glyph_places,
    has_all_glyphs,
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
