import math
from itertools import pairwise

import diagrams
import oracle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neural_flow.drawing import LayoutOptions
from neural_flow.layout.layered import make_draft
from neural_flow.layout.wrap import wrap, wrappings
from neural_flow.layout.wrapped import lay_out_wrapped


def lay_out(diagram, sizes, direction="lr", **options):
    return lay_out_wrapped(diagram, sizes, LayoutOptions(direction=direction, **options))


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(diagrams.diagrams(), st.sampled_from(["lr", "tb"]), st.floats(0.3, 3.0))
def test_any_diagram_is_wrapped_without_a_fault(made, direction, aspect):
    diagram, sizes = made
    layout = lay_out(diagram, sizes, direction, page_aspect=aspect)
    assert oracle.faults(layout, diagram, sizes) == []
    assert oracle.mingled_parts(layout, diagram) == []


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(diagrams.large_diagrams(300), st.sampled_from(["lr", "tb"]))
def test_any_large_diagram_is_wrapped_without_a_fault(made, direction):
    diagram, sizes = made
    layout = lay_out(diagram, sizes, direction)
    assert oracle.faults(layout, diagram, sizes) == []


@pytest.mark.parametrize("direction", ["lr", "tb"])
@pytest.mark.parametrize("name", diagrams.NETS)
def test_usual_nets(name, direction):
    diagram, sizes = diagrams.NETS[name]()
    layout = lay_out(diagram, sizes, direction)
    assert layout.style == "wrapped"
    assert oracle.faults(layout, diagram, sizes) == []


@pytest.mark.parametrize("direction", ["lr", "tb"])
@pytest.mark.parametrize("target", [0.5, 1.0, 1.78])
@pytest.mark.parametrize("num_nodes", [50, 120])
def test_chains_take_the_aspect_of_the_page(num_nodes, target, direction):
    diagram, sizes = diagrams.chain(num_nodes)
    layout = lay_out(diagram, sizes, direction, page_aspect=target, max_width=600 * target, max_height=600)
    assert abs(math.log(layout.width / layout.height / target)) <= math.log(1.45)


def rows_of(layout, sizes):
    rows = {}
    for place in layout.placements:
        axis = place.body.y + place.body.height - sizes.nodes[place.node_id].front_height / 2
        rows.setdefault(round(axis, 2), []).append((place.body.x, place.node_id))
    return [[node for _, node in sorted(rows[axis])] for axis in sorted(rows)]


def test_rows_read_like_lines_of_text():
    """The flow goes from left to right in every row; what crosses a row's end runs back with four bends."""
    diagram, sizes = diagrams.chain(30)
    layout = lay_out(diagram, sizes)
    rows = rows_of(layout, sizes)
    assert len(rows) > 1
    assert [node for row in rows for node in row] == list(range(30))
    ends = {row[-1] for row in rows[:-1]}
    for route in layout.routes:
        source = diagram.arrows[route.arrow_id].source
        assert oracle.bends(route) == (4 if source in ends else 0)
    starts = {layout.placements[row[0]].body.x for row in rows}
    assert len(starts) == 1, "rows start below each other"


def test_repeats_are_not_cut_while_there_is_another_way():
    diagram, sizes = diagrams.resnet()
    layout = lay_out(diagram, sizes)
    assert len(rows_of(layout, sizes)) > 1
    assert len(layout.frames) == len(diagram.frames)
    assert not any(frame.is_continued or frame.is_bracket for frame in layout.frames)


def test_a_frame_that_has_to_be_cut_is_titled_once():
    build = diagrams.Builder()
    for _ in range(24):
        build.card()
    for node in range(23):
        build.arrow(node, node + 1)
    build.frame("group", "everything", range(24))
    diagram, sizes = build.done()
    layout = lay_out(diagram, sizes)
    pieces = [frame for frame in layout.frames if not frame.is_bracket]
    assert len(pieces) == len(rows_of(layout, sizes)) > 1
    assert sum(not piece.is_continued for piece in pieces) == 1
    assert oracle.faults(layout, diagram, sizes) == []


def test_a_fixed_width_is_kept():
    diagram, sizes = diagrams.chain(40)
    for width in (252.0, 516.0):
        layout = lay_out(diagram, sizes, max_width=width, is_width_fixed=True)
        assert layout.width <= width


def test_gutters_hold_one_line_per_crossing_bus():
    diagram, sizes = diagrams.unet(3, has_frames=False)
    draft = make_draft(diagram, sizes, "lr")
    wrapped = wrap(draft, 2)
    (cut,) = wrapped.draft.plan.cuts.values()
    places = sorted(cut.back.values())
    assert len(places) == len(set(places)) == len(cut.leave) == len(cut.enter)
    assert all(b - a == pytest.approx(8.0) for a, b in pairwise(places))


def test_a_row_keeps_no_white_for_the_sake_of_another_row():
    """Two streams that a wide stack of branches in the second row would hold far apart in the first."""
    build = diagrams.Builder()
    streams = []
    for _ in range(2):
        last = build.card()
        for _ in range(8):
            card = build.card()
            build.arrow(last, card)
            last = card
        streams.append(last)
    rings = []
    for stream in streams:
        ring = build.ring("add")
        for _ in range(7):
            last = stream
            for _ in range(7):
                card = build.card()
                build.arrow(last, card)
                last = card
            build.arrow(last, ring)
        rings.append(ring)
    ring = build.ring("add")
    for other in rings:
        build.arrow(other, ring)
    diagram, sizes = build.done()
    draft = make_draft(diagram, sizes, "lr")
    plan = wrap(draft, 2).draft.plan
    first, second = (plan.across(element) for element in plan.grid.rows[0])
    apart = abs(draft.plan.x[plan.grid.rows[0][1]] - draft.plan.x[plan.grid.rows[0][0]])
    assert abs(second - first) < apart / 2
    assert oracle.faults(lay_out(diagram, sizes), diagram, sizes) == []


def test_a_row_moves_up_beside_a_shorter_one_above_it():
    """Many heads at the end of the second row need the height of both rows, right of where the first one ends."""
    build = diagrams.Builder()
    last = build.card()
    stem = []
    for _ in range(14):
        card = build.card()
        build.arrow(last, card)
        last = card
        stem.append(card)
    build.frame("fold", "repeat", stem[4:], "×3")
    heads = [build.card() for _ in range(9)]
    for head in heads:
        build.arrow(last, head, "branch")
    diagram, sizes = build.done()
    wrapping = next(
        found for found in wrappings(make_draft(diagram, sizes, "lr"), LayoutOptions()) if found.num_rows == 2
    )
    plan = wrapping.draft.plan
    tops = [plan.across(element) - plan.shapes[element].before for element in plan.grid.rows[-1]]
    first_end = plan.across(stem[0]) + plan.shapes[stem[0]].after
    assert min(tops) < first_end < plan.across(stem[-1])
    assert plan.node_start(heads[0]) > plan.body_span(stem[3])[1]
    extent = max(plan.across(head) + plan.shapes[head].after for head in heads) - min(tops)
    assert wrapping.height < extent + 120.0
