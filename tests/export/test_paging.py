from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neural_flow.drawing import Box, Image, MarkGroup, Path, Rect, Scene, Text
from neural_flow.export._paging import pages_of

SIDE = 400.0


def card(index: int, x: float, y: float, width: float, height: float) -> tuple[list, MarkGroup]:
    name = f"stage-{index}"
    marks = [
        Rect(x=x, y=y + 10, width=width, height=height, fill="#000000", group=name),
        Text(x=x, y=y + 7, text="i", size=7, color="#000000", group=name),
    ]
    return marks, MarkGroup(group_id=name, css_class="nf-stage")


def page(cards, lines=(), **size) -> Scene:
    parts = [card(index, *box) for index, box in enumerate(cards)]
    marks = [mark for own, _ in parts for mark in own] + list(lines)
    return Scene(marks=tuple(marks), groups=tuple(group for _, group in parts), **size)


@given(
    st.lists(
        st.tuples(st.floats(0, 1900), st.floats(0, 900), st.floats(5, 60), st.floats(5, 60)), min_size=1, max_size=60
    )
)
def test_no_card_is_lost_or_torn(cards):
    scene = page(cards, width=2000.0, height=1000.0)
    seen = set()
    for window, marks in pages_of(scene, SIDE):
        assert 0 < window.width <= SIDE
        assert 0 < window.height <= SIDE
        shown = {mark.group for mark in marks}
        seen |= shown
        assert len(marks) == 2 * len(shown)  # both marks of a card or none
        for mark in marks:
            if isinstance(mark, Rect):
                assert window.x <= mark.x
                assert mark.x + mark.width <= window.x + window.width
                assert window.y <= mark.y
                assert mark.y + mark.height <= window.y + window.height
    assert seen == {f"stage-{index}" for index in range(len(cards))}


@given(st.floats(1, 5000), st.floats(1, 5000))
def test_windows_cover_the_page(width, height):
    line = Path(commands=(("M", 0, 0), ("L", width, height)), stroke="#000000", stroke_width=width + height)
    windows = [window for window, _ in pages_of(Scene(width=width, height=height, marks=(line,)), SIDE)]
    assert sum(window.width * window.height for window in windows) == pytest.approx(width * height)
    assert max(window.x + window.width for window in windows) == pytest.approx(width)
    assert max(window.y + window.height for window in windows) == pytest.approx(height)


def test_a_page_that_fits_is_left_alone():
    scene = page([(0, 0, 10, 10)], width=SIDE, height=SIDE)
    assert list(pages_of(scene, SIDE)) == [(Box(x=0, y=0, width=SIDE, height=SIDE), scene.marks)]


def test_cuts_run_between_rows_and_lines_go_on():
    line = Path(commands=(("M", 50.0, 0.0), ("L", 50.0, 1000.0)), stroke="#000000", stroke_width=1.0)
    scene = page([(0, 100.0 * row, 40, 60) for row in range(10)], [line], width=100.0, height=1000.0)
    pages = list(pages_of(scene, SIDE))
    assert sum(len(marks) for _, marks in pages) == 20 + len(pages)  # each card once, the line everywhere
    for window, marks in pages[1:]:
        assert 70 < window.y % 100 < 100  # between the end of one row and the start of the next
        assert line in marks


def test_what_is_larger_than_a_page_is_drawn_all_the_same():
    picture = Image(x=0, y=0, width=1000, height=50, pixels=[[0]])
    pages = list(pages_of(Scene(width=1000.0, height=60.0, marks=(picture,)), SIDE))
    assert len(pages) >= 3
    assert all(marks == (picture,) for _, marks in pages)
