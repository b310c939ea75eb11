from itertools import pairwise

import diagrams
import oracle
import pytest

from neural_flow.drawing import Box, LayoutOptions
from neural_flow.layout.choose import lay_out
from neural_flow.layout.frame_places import place_frames
from neural_flow.layout.frames import build_tree


def boxes(layout):
    return {frame.frame_id: frame.box for frame in layout.frames if not frame.is_bracket}


def test_frames_leave_room_for_padding_and_title():
    diagram, sizes = diagrams.transformer()
    layout = lay_out(diagram, sizes, LayoutOptions())
    (box,) = boxes(layout).values()
    members = [place for place in layout.placements if place.node_id in diagram.frames[0].node_ids]
    bodies = [place.body for place in members]
    labels = [place.label for place in members if place.label]
    assert box.x == min(body.x for body in bodies) - 9 - 15, "the padding, and the split of the residual"
    assert min(label.y for label in labels) - box.y == 9 + 8 + 1
    assert box.x + box.width - max(body.x + body.width for body in bodies) >= 8


def test_a_residual_line_stays_inside_the_frame_of_its_block():
    diagram, sizes = diagrams.transformer()
    layout = lay_out(diagram, sizes, LayoutOptions())
    (box,) = boxes(layout).values()
    for route in layout.routes:
        if diagram.arrows[route.arrow_id].kind == "skip":
            own = route.points[route.num_shared_points - 1 :]
            assert all(box.x < x < box.x + box.width and box.y < y < box.y + box.height for x, y in own)


def test_frames_nest():
    diagram, sizes = diagrams.multimodal()
    layout = lay_out(diagram, sizes, LayoutOptions())
    found = boxes(layout)
    inner = next(frame for frame in diagram.frames if frame.parent_id is not None)
    outer, box = found[inner.parent_id], found[inner.frame_id]
    assert outer.x + 8 <= box.x
    assert box.x + box.width + 8 <= outer.x + outer.width
    assert outer.y + 8 <= box.y
    assert box.y + box.height + 8 <= outer.y + outer.height


def test_frames_side_by_side_share_their_borders():
    diagram, sizes = diagrams.resnet()
    layout = lay_out(diagram, sizes, LayoutOptions(direction="lr"), "layered")
    assert len({(box.y, box.height) for box in boxes(layout).values()}) == 1


def chain_with_frame(num_cards, members):
    build = diagrams.Builder()
    for _ in range(num_cards):
        build.card()
    for node in range(num_cards - 1):
        build.arrow(node, node + 1)
    build.frame("group", "ends", members)
    return build.done()


def test_a_box_that_would_hold_a_foreign_node_becomes_a_bracket_over_the_longest_run():
    diagram, sizes = chain_with_frame(6, [1, 3, 4, 5])
    layout = lay_out(diagram, sizes, LayoutOptions(direction="lr"))
    (frame,) = layout.frames
    assert frame.is_bracket
    body = {place.node_id: place.body for place in layout.placements}
    assert body[2].x + body[2].width < frame.box.x <= body[3].x
    assert frame.box.x + frame.box.width >= body[5].x + body[5].width
    assert oracle.faults(layout, diagram, sizes) == []


@pytest.mark.parametrize("direction", ["lr", "tb"])
def test_nothing_claims_a_foreign_card_between_two_members(direction):
    diagram, sizes = chain_with_frame(5, [1, 3])
    layout = lay_out(diagram, sizes, LayoutOptions(direction=direction))
    assert layout.frames == ()
    assert oracle.faults(layout, diagram, sizes) == []


@pytest.mark.parametrize("direction", ["lr", "tb"])
def test_a_second_stack_with_a_beginning_of_its_own_does_not_reach_beside_the_first(direction):
    """What a decoder does before it reads the encoder stands past the encoder, so that one box holds all of it."""
    build = diagrams.Builder()
    encoder = [build.card() for _ in range(5)]
    query = build.card()
    decoder = [build.card() for _ in range(5)]
    for stack in (encoder, [query, *decoder]):
        for source, target in pairwise(stack):
            build.arrow(source, target)
    build.arrow(encoder[-1], decoder[2], "merge")
    build.frame("group", "encoder", encoder[1:-1])
    build.frame("fold", "decoder", decoder, "×3")
    diagram, sizes = build.done()
    layout = lay_out(diagram, sizes, LayoutOptions(direction=direction))
    assert not any(frame.is_bracket for frame in layout.frames)
    assert oracle.faults(layout, diagram, sizes) == []


def test_frames_that_overlap_as_sets_do_not_both_become_boxes():
    build = diagrams.Builder()
    for _ in range(6):
        build.card()
    for node in range(5):
        build.arrow(node, node + 1)
    build.frame("group", "first", [0, 1, 2, 3])
    build.frame("group", "second", [2, 3, 4])
    diagram, sizes = build.done()
    layout = lay_out(diagram, sizes, LayoutOptions())
    assert sorted(frame.is_bracket for frame in layout.frames) == [False, True]
    assert oracle.faults(layout, diagram, sizes) == []


def test_members_of_children_belong_to_their_parents():
    build = diagrams.Builder()
    for _ in range(3):
        build.card()
    parent = build.frame("group", "outer", [0])
    build.frame("fold", "inner", [1, 2], "×2", parent)
    diagram, sizes = build.done()
    tree = build_tree(diagram.frames, {0: 0, 1: 1, 2: 2}, sizes)
    assert tree.members == [frozenset({0, 1, 2}), frozenset({1, 2})]
    assert tree.parent == [-1, 0]


def test_a_bracket_without_a_free_place_is_not_drawn():
    build = diagrams.Builder()
    for _ in range(3):
        build.card()
    build.frame("group", "ends", [0, 2])
    diagram, sizes = build.done()
    tree = build_tree(diagram.frames, {0: 0, 1: 1, 2: 2}, sizes)
    wall = Box(x=-500, y=-500, width=1000, height=1000)
    assert place_frames(tree, {0: Box(x=0, y=0, width=50, height=50)}, [(1, wall)]) == []


def test_a_frame_over_two_parts_has_its_title_in_both():
    """What is called twice on inputs of their own is drawn twice; the second call is no rest of the first."""
    build = diagrams.Builder()
    for _ in range(6):
        build.card()
    for node in (0, 1, 3, 4):
        build.arrow(node, node + 1)
    build.frame("group", "twice", [1, 2, 4, 5])
    diagram, sizes = build.done()
    layout = lay_out(diagram, sizes, LayoutOptions())
    assert [frame.is_continued for frame in layout.frames] == [False, False]
    assert oracle.faults(layout, diagram, sizes) == []
