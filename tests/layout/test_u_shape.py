from itertools import pairwise

import diagrams
import oracle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neural_flow.drawing import LayoutOptions
from neural_flow.layout.choose import lay_out
from neural_flow.layout.graph import build_graph
from neural_flow.layout.u_find import find_u
from neural_flow.layout.u_shape import lay_out_u

U_NETS = {name: make for name, make in diagrams.NETS.items() if "unet" in name}


def drawn(make):
    diagram, sizes = make()
    return lay_out_u(diagram, sizes, LayoutOptions()), diagram, sizes


def body_of(layout):
    return {place.node_id: place.body for place in layout.placements}


@pytest.mark.parametrize("name", U_NETS)
def test_u_nets_are_recognised_and_drawn_without_a_fault(name):
    layout, diagram, sizes = drawn(U_NETS[name])
    assert layout.style == "u"
    assert oracle.faults(layout, diagram, sizes) == []


@pytest.mark.parametrize("name", sorted(set(U_NETS) - {"diffusion unet", "diffusion unet merging in cards"}))
def test_nothing_crosses(name):
    layout, diagram, _ = drawn(U_NETS[name])
    assert oracle.crossings(layout, diagram) == 0


def test_a_second_skip_into_the_level_above_rises_left_of_the_way_up():
    layout, diagram, _ = drawn(diagrams.shifted_skip_unet)
    body = body_of(layout)
    by_label = {node.label: node.node_id for node in diagram.nodes}
    routes = {(diagram.arrows[r.arrow_id].source, diagram.arrows[r.arrow_id].target): r for r in layout.routes}
    way_up = routes[by_label["up1"], by_label["up2"]]
    lift = routes[by_label["down0"], by_label["up2"]]
    bottom = body[by_label["up2"]].y + body[by_label["up2"]].height
    assert lift.points[-1][1] > bottom
    assert lift.points[-1][0] < way_up.points[-1][0]
    assert lift.points[-2][1] - bottom > 8.0, "long enough for an arrow head"


def test_a_time_embedding_crosses_nothing_either():
    for merge in ("concat", "card"):
        layout, diagram, _ = drawn(lambda merge=merge: diagrams.diffusion_unet(merge))
        assert oracle.crossings(layout, diagram) == 0


@pytest.mark.parametrize("name", ["resnet", "transformer", "multimodal", "densenet", "chain"])
def test_other_nets_are_none(name):
    diagram, sizes = diagrams.NETS[name]()
    assert find_u(build_graph(diagram), sizes) is None
    layout = lay_out_u(diagram, sizes, LayoutOptions())
    assert layout.style == "layered"
    assert oracle.faults(layout, diagram, sizes) == []


def test_without_resolutions_there_is_no_u():
    """The skips of a net of one resolution nest as well, but nothing goes down."""
    diagram, sizes = diagrams.unet()
    flat = {node: type(size)(**{**as_dict(size), "resolution": 64}) for node, size in sizes.nodes.items()}
    assert find_u(build_graph(diagram), type(sizes)(nodes=flat)) is None


def as_dict(record):
    return {name: getattr(record, name) for name in record.__slots__}


def test_one_skip_makes_no_u_and_two_do():
    for levels, is_u in ((1, False), (2, True)):
        diagram, sizes = diagrams.unet(levels, has_frames=False)
        assert (find_u(build_graph(diagram), sizes) is not None) == is_u


@pytest.mark.parametrize("levels", [2, 3, 4])
def test_geometry_of_the_staircase(levels):
    """Rows go down and up again; skips are level; merges stand above what rises into them."""
    layout, diagram, _ = drawn(lambda: diagrams.unet(levels))
    body = body_of(layout)
    down = [node.node_id for node in diagram.nodes if node.label.startswith("down")]
    up = [node.node_id for node in diagram.nodes if node.label.startswith("up")]
    mid = next(node.node_id for node in diagram.nodes if node.label == "mid")
    stairs = [*down, mid]
    for upper, lower in pairwise(stairs):
        gap = body[lower].y - (body[upper].y + body[upper].height)
        assert 18.9 <= gap <= 27.0, "rows are about 19 pt apart"
        assert body[lower].x > body[upper].x, "each step goes right"
    for left, right in zip(down, reversed(up), strict=False):
        assert body[left].y == body[right].y
    for route in layout.routes:
        arrow = diagram.arrows[route.arrow_id]
        if arrow.kind == "skip":
            assert oracle.bends(route) == 0
            assert route.points[0][1] == route.points[1][1]
        elif arrow.target in [*down, mid] and arrow.source in down:
            assert oracle.bends(route) == 1
        elif diagram.nodes[arrow.target].role == "ring":
            assert oracle.bends(route) == 0
            assert route.points[0][0] == route.points[1][0]


def test_the_reference_picture():
    """Three levels, frames round both sides, texts on the arrows: about the size of a two-column figure."""
    layout, diagram, _ = drawn(diagrams.unet)
    assert 470 <= layout.width <= 530
    assert 270 <= layout.height <= 330
    encoder, decoder = (frame.box for frame in layout.frames)
    assert not any(frame.is_bracket for frame in layout.frames)
    assert (encoder.y, encoder.height) == (decoder.y, decoder.height)
    assert encoder.x + encoder.width < decoder.x
    # The innermost skip is too short for its label; every other arrow keeps its own.
    texts = {arrow.arrow_id for arrow in diagram.arrows if arrow.text}
    missing = texts - {route.arrow_id for route in layout.routes if route.label}
    assert all(diagram.arrows[arrow].kind == "skip" for arrow in missing)
    assert len(missing) <= 1
    above = {place.node_id for place in layout.placements if place.label_side == "above"}
    labels = {node.node_id: node.label for node in diagram.nodes}
    assert {labels[node] for node in above if labels[node]} == {"down0", "down1", "down2"}


def test_stages_between_skip_and_merge_stand_in_the_row_of_their_level():
    layout, diagram, sizes = drawn(diagrams.side_stage_unet)
    body = body_of(layout)

    def axis(node):
        return body[node].y + body[node].height - sizes.nodes[node].front_height / 2

    by_label = {node.label: node.node_id for node in diagram.nodes}
    for level in range(3):
        assert axis(by_label[f"side{level}"]) == pytest.approx(axis(by_label[f"stage{level}"]), abs=0.01)


def test_levels_of_many_cards_stay_in_their_row():
    layout, diagram, _ = drawn(lambda: diagrams.unet(3, 2))
    body = body_of(layout)
    for label in ("down0", "down1", "down2", "up0", "up1", "up2"):
        rows = {body[node.node_id].y for node in diagram.nodes if node.label == label}
        assert len(rows) == 1


@pytest.mark.parametrize("cards_per_level", [3, 4])
def test_a_staircase_too_wide_for_the_page_gives_way_to_rows_below_each_other(cards_per_level):
    diagram, sizes = diagrams.unet(3, cards_per_level)
    layout = lay_out_u(diagram, sizes, LayoutOptions())
    wide = lay_out_u(diagram, sizes, LayoutOptions(max_width=5000.0))
    assert wide.width > 1067 >= layout.width
    for drawn_u in (layout, wide):
        assert oracle.faults(drawn_u, diagram, sizes) == []
        assert oracle.crossings(drawn_u, diagram) == 0
        assert not any(frame.is_bracket for frame in drawn_u.frames)
        skips = [route for route in drawn_u.routes if diagram.arrows[route.arrow_id].kind == "skip"]
        assert all(oracle.bends(route) == 0 for route in skips)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_u_is_drawn_without_a_fault(data):
    """Levels, cards a level, sizes, labels and merges of all kinds, on pages wide and narrow."""
    has_cards = data.draw(st.booleans())
    build = diagrams.Builder()
    levels = data.draw(st.integers(2, 5))
    last, skips, groups = build.card("in", planes=1), [], ([], [])

    def run(last, level, group):
        # A long run outside the outermost skip would leave too little of the trunk to the U.
        for _ in range(data.draw(st.integers(1, 3)) if level else 1):
            card = build.card(
                "x" * data.draw(st.integers(0, 16)),
                planes=data.draw(st.integers(1, 6)),
                width=data.draw(st.floats(16, 70)),
                height=data.draw(st.floats(10, 70)),
                resolution=256 >> level,
            )
            build.arrow(last, card, text="y" * data.draw(st.integers(0, 9)))
            last = card
            group.append(card)
        return last

    for level in range(levels):
        last = run(last, level, groups[0])
        skips.append(last)
    last = run(last, levels, [])
    for level in reversed(range(levels)):
        if not has_cards or data.draw(st.booleans()):
            ring = build.ring(data.draw(st.sampled_from(["add", "concat"])))
            build.arrow(last, ring, text="y" * data.draw(st.integers(0, 9)))
            build.arrow(skips[level], ring, "skip", "y" * data.draw(st.integers(0, 9)))
            groups[1].append(ring)
            last = run(ring, level, groups[1])
        else:
            first = len(build.nodes)
            last = run(last, level, groups[1])
            build.arrow(skips[level], first, "skip")
    if data.draw(st.booleans()):
        build.frame("group", "encoder", groups[0])
        build.frame("group", "decoder", groups[1])
    diagram, sizes = build.done()
    layout = lay_out_u(diagram, sizes, LayoutOptions(max_width=data.draw(st.sampled_from([300.0, 1067.0]))))
    assert layout.style == "u"
    assert oracle.faults(layout, diagram, sizes) == []
    assert oracle.crossings(layout, diagram) == 0


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_u_of_repeats_keeps_every_frame_a_box(data):
    """Blocks with residuals in repeats, all levels of a side in a group or none, a foreign stage at the bottom."""
    build = diagrams.Builder()
    levels = data.draw(st.integers(2, 4))
    last, skips, groups = build.card("in", planes=1, resolution=256), [], ([], [])
    folds = []

    def block(last, level, group):
        first = build.card("x" * data.draw(st.integers(0, 16)), width=data.draw(st.floats(20, 60)), planes=3,
                           height=data.draw(st.floats(20, 60)), resolution=256 >> level)  # fmt: skip
        build.arrow(last, first)
        members, last = [], first
        for _ in range(data.draw(st.integers(1, 3))):
            card = build.card("conv", data.draw(st.floats(20, 60)), resolution=256 >> level)
            build.arrow(last, card)
            last = card
            members.append(card)
        ring = build.ring("add")
        build.arrow(last, ring)
        build.arrow(first, ring, "skip")
        members.append(ring)
        folds.append(members)
        group += [first, *members]
        return ring

    for level in range(levels):
        last = block(last, level, groups[0])
        skips.append(last)
    last = block(last, levels, groups[0])
    if data.draw(st.booleans()):
        up = build.card("upsample", data.draw(st.floats(20, 60)), resolution=256 >> levels)
        build.arrow(last, up)
        last = up
    for level in reversed(range(levels)):
        ring = build.ring("add")
        build.arrow(last, ring)
        build.arrow(skips[level], ring, "skip")
        groups[1].append(ring)
        last = build.card("up", 40, resolution=256 >> level)
        build.arrow(ring, last)
        groups[1].append(last)
    parents = [None, None]
    if data.draw(st.booleans()):
        parents = [build.frame("group", name, group) for name, group in zip(("down", "up"), groups, strict=True)]
    for members in folds:
        build.frame("fold", "z" * data.draw(st.integers(1, 20)), members, "×2", parents[0])
    diagram, sizes = build.done()
    layout = lay_out_u(diagram, sizes, LayoutOptions(max_width=300.0))
    assert layout.style == "u"
    assert oracle.faults(layout, diagram, sizes) == []
    assert not any(frame.is_bracket for frame in layout.frames)
    assert oracle.crossings(layout, diagram) == 0


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(diagrams.diagrams())
def test_any_diagram_is_drawn_without_a_fault(made):
    diagram, sizes = made
    layout = lay_out(diagram, sizes, LayoutOptions(), "u")
    assert oracle.faults(layout, diagram, sizes) == []
