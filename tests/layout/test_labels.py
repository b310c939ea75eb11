from dataclasses import replace

import diagrams
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neural_flow.drawing import Box, LayoutOptions, Route
from neural_flow.layout.choose import lay_out
from neural_flow.layout.labels import Occupancy, place_arrow_labels


def straight(arrow_id, *points):
    return Route(arrow_id=arrow_id, style="orthogonal", points=points)


def test_a_label_stands_above_a_level_line():
    (route,) = place_arrow_labels([straight(0, (0, 0), (60, 0))], {0: (30.0, 6.0)}, [], prefers_level=True)
    assert route.label == Box(x=12.0, y=-9.0, width=30.0, height=6.0)


def test_a_label_goes_below_where_above_is_taken():
    taken = [Box(x=-10, y=-20, width=100, height=19)]
    (route,) = place_arrow_labels([straight(0, (0, 0), (60, 0))], {0: (30.0, 6.0)}, taken, prefers_level=True)
    assert route.label.y == 3.0


def test_a_label_stands_left_of_a_line_down_and_right_of_a_line_up():
    down, up = straight(0, (0, 0), (0, 40)), straight(1, (200, 40), (200, 0))
    labelled = place_arrow_labels([down, up], {0: (30.0, 6.0), 1: (30.0, 6.0)}, [], prefers_level=None)
    assert labelled[0].label.x == -34.0
    assert labelled[1].label.x == 204.0


def test_a_label_without_a_free_place_is_dropped():
    wall = [Box(x=-100, y=-100, width=300, height=300)]
    (route,) = place_arrow_labels([straight(0, (0, 0), (60, 0))], {0: (30.0, 6.0)}, wall, prefers_level=True)
    assert route.label is None
    (route,) = place_arrow_labels([straight(0, (0, 0), (20, 0))], {0: (30.0, 6.0)}, [], prefers_level=True)
    assert route.label is None


def test_labels_keep_off_the_part_that_another_arrow_drew():
    shared = replace(straight(0, (0, 0), (90, 0), (90, 50), (200, 50)), num_shared_points=2)
    (route,) = place_arrow_labels([shared], {0: (30.0, 6.0)}, [], prefers_level=True)
    assert route.label.y > 30


def test_words_that_stand_at_the_shared_stretch_are_not_said_again():
    whole = straight(0, (0, 0), (200, 0))
    branch = replace(straight(1, (0, 0), (160, 0), (160, 50), (260, 50)), num_shared_points=2)
    sizes = {0: (30.0, 6.0), 1: (30.0, 6.0)}
    words = {0: (7, "pool"), 1: (7, "pool")}
    first, second = place_arrow_labels([whole, branch], sizes, [], prefers_level=True, words=words)
    assert first.label.x < 100
    assert second.label is None
    for others in ({0: (7, "pool"), 1: (7, "up")}, {}):
        _, second = place_arrow_labels([whole, branch], sizes, [], prefers_level=True, words=others)
        assert second.label.y > 30


def test_a_label_stands_in_the_middle_of_what_is_free():
    taken = [Box(x=0, y=-30, width=25, height=60), Box(x=85, y=-30, width=80, height=60)]
    (route,) = place_arrow_labels([straight(0, (0, 0), (100, 0))], {0: (40.0, 6.0)}, taken, prefers_level=True)
    assert abs(route.label.x + 20 - 55) <= 2


@pytest.mark.parametrize(("end", "x"), [((300, 0), 5.0), ((-300, 0), -35.0)])
def test_beside_a_long_line_a_label_stands_near_its_start(end, x):
    (route,) = place_arrow_labels([straight(0, (0, 0), end)], {0: (30.0, 6.0)}, [], prefers_level=True)
    assert route.label.x == pytest.approx(x)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(*[st.floats(-200, 200)] * 2, *[st.floats(0, 90)] * 2), max_size=20),
    st.tuples(*[st.floats(-200, 200)] * 2, *[st.floats(1, 90)] * 2),
)
def test_occupancy_agrees_with_every_pair(taken, asked):
    boxes = [Box(x=x, y=y, width=width, height=height) for x, y, width, height in taken]
    box = Box(x=asked[0], y=asked[1], width=asked[2], height=asked[3])
    if Occupancy(boxes).is_free(box):
        assert oracle.overlap_pairs([box], boxes) == []


@pytest.mark.parametrize("name", ["unet", "resnet", "multimodal"])
def test_texts_of_the_usual_nets_find_room(name):
    diagram, sizes = diagrams.NETS[name]()
    layout = lay_out(diagram, sizes, LayoutOptions())
    dropped = set(sizes.arrow_labels) - {route.arrow_id for route in layout.routes if route.label}
    assert len(dropped) <= 1
