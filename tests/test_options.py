from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neural_flow.errors import UsageError
from neural_flow.options import MIN_PAGE_WIDTH, Options, layout_options, make_request, request_options, width_in_points
from neural_flow.theme import get_theme


@given(st.floats(2.0, 5000, allow_nan=False).map(lambda number: round(number, 2)))
def test_units_agree(number: float):
    points = width_in_points(f"{number}in")
    assert points == pytest.approx(72 * number)
    assert width_in_points(f"{number * 25.4:.4f}mm") == pytest.approx(points, rel=1e-2, abs=0.01)
    assert width_in_points(f"{points:.4f}pt") == pytest.approx(points, abs=1e-3)


@pytest.mark.parametrize("width", ["wide", "", "12", "0pt", "-3in", "1.2.3pt", "nanpt", "5 parsecs"])
def test_no_lengths(width: str):
    with pytest.raises(UsageError):
        width_in_points(width)


def test_a_width_fixes_the_page():
    assert layout_options(Options(width="column")).is_width_fixed
    assert layout_options(Options(width=300)).max_width == 300 - 2 * get_theme("light").margin
    assert not layout_options(Options()).is_width_fixed


@pytest.mark.parametrize("width", ["1mm", "20pt", 7, "0.5in"])
def test_a_width_that_holds_no_card_is_refused_with_the_least_one(width: str | float):
    with pytest.raises(UsageError, match="too narrow") as caught:
        width_in_points(width)
    assert caught.value.hint == "give at least 130pt (46mm)"
    assert width_in_points(MIN_PAGE_WIDTH) == MIN_PAGE_WIDTH


def test_a_request_asks_the_same_again():
    asked = Options(detail="op", select=["a", "b.*"], fold=False, max_stages=7, train=True, seed=3, arguments=["d=1"])
    again = Options(**request_options(make_request(asked)))
    assert make_request(again) == make_request(asked)
    assert (again.fold, again.train, again.select) == (False, True, ("a", "b.*"))
