from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neural_flow.errors import UnknownNameError
from neural_flow.theme import THEMES, Theme, contrast, get_theme, luminance, mix

COLORS = st.builds("#{:06X}".format, st.integers(0, 0xFFFFFF))


def colors_of(theme: Theme) -> dict[str, str]:
    found = {}
    for field in dataclasses.fields(theme):
        value = getattr(theme, field.name)
        if isinstance(value, str) and value.startswith("#"):
            found[field.name] = value
    return found | dict(theme.families)


@pytest.mark.parametrize("name", sorted(THEMES))
def test_every_color_is_six_hex_digits(name):
    for field, color in colors_of(get_theme(name)).items():
        assert re.fullmatch("#[0-9A-F]{6}", color), (field, color)


@pytest.mark.parametrize("name", sorted(THEMES))
def test_text_is_readable_on_paper_and_in_groups(name):
    theme = get_theme(name)
    for ground in (theme.paper, theme.group_fill, theme.fold_fill, theme.plate):
        assert contrast(theme.ink, ground) >= 7
        assert contrast(theme.sub, ground) >= 4.5
        for line in (theme.trunk, theme.skip, theme.merge, theme.failure):
            assert contrast(line, ground) >= 3, (line, ground)
        assert contrast(theme.inferred, ground) >= 2.8


def test_no_theme_may_have_text_below_five_points():
    with pytest.raises(ValueError, match="5"):
        dataclasses.replace(get_theme("light"), shape_size=4.9)
    for theme in THEMES.values():
        sizes = [getattr(theme, field.name) for field in dataclasses.fields(theme) if field.name.endswith("_size")]
        assert min(sizes) >= 5


def test_unknown_theme_names_the_choices():
    with pytest.raises(UnknownNameError, match="unknown theme 'drak'") as caught:
        get_theme("drak")
    assert "dark" in caught.value.hint
    assert set(caught.value.choices) == {"light", "dark", "print"}


@given(COLORS, COLORS)
def test_mixing_ends_at_both_colors(first, second):
    assert mix(first, second, 1) == first
    assert mix(first, second, 0) == second


@given(COLORS, COLORS)
def test_contrast_is_symmetric_and_bounded(first, second):
    assert contrast(first, second) == contrast(second, first)
    assert 1 <= contrast(first, second) <= 21.0001
    assert (luminance(first) > luminance(second)) == (luminance(second) < luminance(first))


def test_contrast_of_black_on_white_is_the_largest():
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    # 767676 is the lightest grey that WCAG lets pass on white.
    assert contrast("#767676", "#FFFFFF") == pytest.approx(4.54, abs=0.01)
