from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neural_flow.drawing import Box
from neural_flow.scene.legend import Block, place_block
from neural_flow.scene.space import bounds, is_free

BOXES = st.lists(
    st.builds(Box, x=st.floats(0, 300), y=st.floats(0, 200), width=st.floats(1, 120), height=st.floats(1, 80)),
    max_size=12,
)
BLOCKS = st.builds(Block, st.floats(20, 200), st.floats(8, 60), st.integers(1, 4))


@given(BOXES, BLOCKS, st.sampled_from(["left", "right"]))
def test_blocks_cover_nothing_and_stay_within_the_width(obstacles, block, side):
    page = Box(x=8, y=20, width=320, height=200)
    x, y = place_block(block, page, obstacles, side)
    assert x >= page.x
    assert x + block.width <= page.x + page.width + 1e-9
    assert is_free(Box(x=x, y=y, width=block.width, height=block.height), obstacles, gap=0)


def test_an_empty_page_takes_the_corner_and_does_not_grow():
    page = Box(x=8, y=20, width=320, height=200)
    block = Block(100, 30, 2)
    assert place_block(block, page, [], "left") == (8, 190)
    assert place_block(block, page, [], "right") == (228, 190)


def test_a_full_page_grows():
    page = Box(x=0, y=0, width=100, height=100)
    block = Block(50, 20, 1)
    _, y = place_block(block, page, [page], "left")
    assert y >= 100


@given(BOXES)
def test_bounds_hold_every_box(boxes):
    hull = bounds(boxes)
    for box in boxes:
        assert hull.x <= box.x
        assert box.x + box.width <= hull.x + hull.width + 1e-9
