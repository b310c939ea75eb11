from __future__ import annotations

import numpy as np
import pytest

from neural_flow.drawing import Box, Image, Path, Rect
from neural_flow.summaries._base import DrawStyle, style_of
from neural_flow.summaries._planes import (
    Plane,
    infinity_marks,
    map_side,
    num_planes,
    palette,
    stack_marks,
    two_tone,
)
from neural_flow.theme import THEMES


def test_maps_get_smaller_with_their_resolution() -> None:
    sides = [map_side(side, side, 128)[0] for side in (128, 64, 32, 16)]
    assert sides == pytest.approx([56, 44.8, 35.84, 28.672])
    assert map_side(1, 1, 1024) == (18, 18)
    assert map_side(512, 512, 64) == (64, 64)
    wide = map_side(32, 64, 64)
    assert wide[0] / wide[1] == pytest.approx(2)
    assert map_side(10, 1000, 100)[0] / map_side(10, 1000, 100)[1] == pytest.approx(3)
    assert map_side(8, 8, 0) == (56, 56)


def test_planes_grow_with_the_logarithm_of_the_channels() -> None:
    assert [num_planes(count) for count in (1, 2, 3, 8, 16, 32, 64, 128, 256, 4096)] == [1, 2, 2, 2, 3, 4, 5, 6, 6, 6]
    assert num_planes(1024, most=64) == 9


@pytest.mark.parametrize("count", [1, 2, 6, 12])
def test_a_stack_is_painted_back_to_front_with_the_front_at_the_lower_left(count: int) -> None:
    box = Box(x=10.0, y=20.0, width=60.0, height=50.0)
    planes = [
        Plane(pixels=np.full((4, 4), index, np.uint8), palette=two_tone("#000000", "#FFFFFF")) for index in range(count)
    ]
    style = DrawStyle()
    marks = stack_marks(box, planes, style)
    images = sorted((mark for mark in marks if isinstance(mark, Image)), key=lambda mark: mark.layer)
    assert [int(image.pixels[0, 0]) for image in images] == list(reversed(range(count)))
    assert len({image.layer for image in images}) == count
    depth = style.plane_offset * (count - 1)
    front, back = images[-1], images[0]
    assert (front.x, front.y) == pytest.approx((10.0, 20.0 + depth))
    assert (front.width, front.height) == pytest.approx((60.0 - depth, 50.0 - depth))
    assert (back.x + back.width, back.y) == pytest.approx((70.0, 20.0))
    separators = [mark for mark in marks if isinstance(mark, Rect) and mark.stroke == style.separator]
    assert len(separators) == count - 1
    for image, separator in zip(images, sorted(separators, key=lambda mark: mark.layer), strict=False):
        assert image.layer < separator.layer
        assert (separator.x, separator.y) == pytest.approx((image.x, image.y))
    for separator, above in zip(sorted(separators, key=lambda mark: mark.layer), images[1:], strict=True):
        assert separator.layer < above.layer < 3.9
    (frame,) = [mark for mark in marks if isinstance(mark, Rect) and mark.stroke == style.frame]
    assert frame.layer == 3.9
    assert (frame.x, frame.y, frame.width) == pytest.approx((front.x, front.y, front.width))


def test_dead_planes_are_grey_and_struck_through_constant_ones_hatched() -> None:
    style = style_of(THEMES["dark"])
    box = Box(x=0.0, y=0.0, width=30.0, height=30.0)
    dead = stack_marks(box, [Plane(pixels=np.zeros((2, 2), np.uint8), is_dead=True)], style)
    assert not any(isinstance(mark, Image) for mark in dead)
    assert any(isinstance(mark, Rect) and mark.fill == style.dead for mark in dead)
    assert sum(isinstance(mark, Path) for mark in dead) == 1
    flat = stack_marks(box, [Plane(fill="#123456", is_constant=True)], style)
    assert any(isinstance(mark, Rect) and mark.fill == "#123456" for mark in flat)
    assert sum(isinstance(mark, Path) for mark in flat) == 1


def test_palettes_keep_three_colours_for_what_is_not_finite() -> None:
    style = DrawStyle()
    for signed, table in ((False, style.sequential), (True, style.diverging)):
        colors = palette(style, signed)
        assert np.array_equal(colors[[0, 252]], table[[0, 255]])
        assert np.array_equal(colors[[253, 254]], table[[0, 255]])
        assert tuple(colors[255]) == (0x39, 0xFF, 0x14)
        assert palette(style, signed) is colors
    assert np.abs(palette(style, True)[126].astype(int) - 247).max() <= 2  # zero is the paper-white middle


def test_infinities_are_told_by_shape() -> None:
    pixels = np.zeros((10, 10), np.uint8)
    pixels[2, 3], pixels[9, 9] = 254, 253
    box = Box(x=0.0, y=0.0, width=50.0, height=50.0)
    up, down = infinity_marks(box, pixels, DrawStyle())
    assert isinstance(up, Path)
    assert isinstance(down, Path)
    tip, base = up.commands[2][2], up.commands[0][2]
    assert tip < base
    assert down.commands[2][2] > down.commands[0][2]
    pixels[:] = 254
    assert len(infinity_marks(box, pixels, DrawStyle())) == 4
