import itertools

import diagrams
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neural_flow.drawing import LayoutOptions
from neural_flow.layout.choose import lay_out
from neural_flow.layout.halves import Half


@st.composite
def halves(draw):
    """Draw distances between variables that have an order, with wishes and links."""
    num = draw(st.integers(1, 10))
    half = Half()
    keys = [("element", index) for index in range(num)]
    half.add(("element", -1), 0.0)
    kept = []
    for key in keys:
        half.wish(key, draw(st.floats(0, 200)))
    for far in range(num):
        near = draw(st.integers(-1, far - 1))
        for start in {near, -1}:
            distance = draw(st.floats(0, 40))
            half.keep(("element", start), keys[far], distance)
            kept.append((("element", start), keys[far], distance))
    for _ in range(draw(st.integers(0, 2 * num))):
        other = draw(st.sampled_from([None, *keys]))
        half.link(draw(st.sampled_from(keys)), other, draw(st.floats(-50, 50)), draw(st.floats(0.5, 8)))
    return half, kept


@settings(max_examples=150, deadline=None)
@given(halves())
def test_distances_are_kept_before_and_after_drawing_in(made):
    half, kept = made
    values = half.solve()
    assert all(values[far] - values[near] >= distance - 1e-6 for near, far, distance in kept)
    widest = max(values.values())
    half.draw_in(values)
    assert all(values[far] - values[near] >= distance - 1e-6 for near, far, distance in kept)
    assert values["element", -1] == 0.0
    assert max(values.values()) <= max(widest, 250.0) + 1e-6


def test_distances_that_contradict_each_other_have_no_solution():
    half = Half()
    for index in range(2):
        half.add(("element", index), 0.0)
    half.keep(("element", 0), ("element", 1), 5.0)
    half.keep(("element", 1), ("element", 0), 5.0)
    assert half.solve() is None


def test_slack_is_taken_out():
    """What stood far out without a reason comes as near as its neighbours let it."""
    half = Half()
    half.add(("element", 0), 0.0)
    half.wish(("element", 1), 90.0)
    half.keep(("element", 0), ("element", 1), 20.0)
    half.link(("element", 1), ("element", 0), 0.0, 1.0)
    values = half.solve()
    assert values["element", 1] == 90.0
    half.draw_in(values)
    assert values["element", 1] == 20.0


@pytest.mark.parametrize("direction", ["lr", "tb"])
def test_towers_stand_as_close_as_their_frames_allow(direction):
    diagram, sizes = diagrams.multimodal()
    layout = lay_out(diagram, sizes, LayoutOptions(direction=direction), "layered")
    outer = [frame.box for frame in layout.frames if diagram.frames[frame.frame_id].parent_id is None]
    spans = sorted((box.y, box.y + box.height) if direction == "lr" else (box.x, box.x + box.width) for box in outer)
    assert all(0 < low - high < 40 for (_, high), (low, _) in itertools.pairwise(spans))
