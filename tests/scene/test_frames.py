from dataclasses import replace

import pytest

from neural_flow.drawing import Box, FramePlacement, Text
from neural_flow.scene.frames import frame_marks
from neural_flow.scene.look import make_look
from neural_flow.scene.options import SceneOptions
from neural_flow.theme import get_theme

BOX = Box(x=100, y=50, width=200, height=80)


def titles(unet, box=BOX, obstacles=(), badge="", **place):
    theme = get_theme("light")
    look = make_look(unet.diagram, unet.topology, unet.capture, theme, SceneOptions())
    frame = replace(unet.diagram.frames[0], title="decoder", badge=badge)
    marks = frame_marks(frame, FramePlacement(frame_id=frame.frame_id, box=box, **place), 0, obstacles, look)
    return [mark for mark in marks if isinstance(mark, Text)]


def test_a_title_stands_in_the_upper_left(unet):
    (title,) = titles(unet)
    assert (title.text, title.x) == ("decoder", 106)
    assert BOX.y < title.y < BOX.y + 12


@pytest.mark.parametrize(
    ("blocked", "low", "high"),
    [
        ([Box(x=100, y=50, width=60, height=20)], 250, 300),
        ([Box(x=100, y=50, width=60, height=20), Box(x=280, y=50, width=0, height=40)], 162, 278),
    ],
)
def test_a_title_goes_where_it_covers_nothing(unet, blocked, low, high):
    (title,) = titles(unet, obstacles=blocked)
    assert low <= title.x <= high - 20


def test_between_lines_a_title_finds_the_gap(unet):
    lines = [Box(x=x, y=40, width=0, height=100) for x in (110, 130, 190, 200, 210, 270, 290)]
    (title,) = titles(unet, obstacles=lines)
    assert 130 < title.x < 190 or 210 < title.x < 270
    assert not any(title.x - 1 < line.x < title.x + 24 for line in lines)


def test_the_rest_of_a_broken_frame_says_so(unet):
    (title,) = titles(unet, is_continued=True)
    assert title.text == "decoder (continued)"
    (title,) = titles(unet, box=replace(BOX, width=55), is_continued=True)
    assert title.text == "… decoder"
    badge, title = titles(unet, badge="×6", is_continued=True)
    assert (badge.text, title.text) == ("×6", "decoder (continued)")
    assert badge.x < title.x


def test_the_rest_of_a_broken_frame_has_no_title_over_other_things(unet):
    wall = [Box(x=90, y=50, width=300, height=20)]
    assert titles(unet, obstacles=wall, is_continued=True) == []
    assert len(titles(unet, obstacles=wall)) == 1, "where it begins it says what it is"
