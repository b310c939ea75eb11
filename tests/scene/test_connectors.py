from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neural_flow.scene.connectors import RING_WORDS, glyph_of, ring_at
from neural_flow.text_metrics import has_all_glyphs, text_width
from neural_flow.theme import get_theme

THEME = get_theme("light")


def drawn(symbol: str):
    """Return what is inside the ring of an operation: its glyph, or the strokes of one."""
    mark = ring_at((0.0, 0.0), symbol, THEME)[1]
    return getattr(mark, "text", None) or mark.commands


def test_operations_of_different_names_have_different_glyphs():
    of_words = {}
    for symbol, words in RING_WORDS.items():
        of_words.setdefault(words.rstrip("s"), set()).add(drawn(symbol))
    signs = [sign for found in of_words.values() for sign in found]
    losses = {"squared error", "absolute error", "cross entropy", "KL divergence"}
    assert all(len(found) == 1 for found in of_words.values()), "one sign a word"
    assert len(set(signs)) == len(signs), sorted(map(str, signs))
    assert losses <= set(RING_WORDS.values())


@given(st.text("abcdefghijklmnopqrstuvwxyz_0123456789", max_size=20))
def test_an_unknown_operation_never_looks_like_a_known_one(name):
    if name in RING_WORDS or name in ("sum", "gate"):
        return
    glyph = glyph_of(name)
    assert glyph not in {drawn(symbol) for symbol in ("concat", "attention")}
    assert glyph == "∘" or glyph.lower() in name


def test_glyphs_are_in_the_font_and_fit_the_ring():
    for symbol in RING_WORDS:
        glyph = drawn(symbol)
        if isinstance(glyph, str):
            assert has_all_glyphs(glyph, "bold")
            assert text_width(glyph, THEME.ring_glyph_size, "bold") <= 2 * (THEME.ring_radius - THEME.ring_width)
