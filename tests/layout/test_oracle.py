"""The oracle sees what it should: each fault made on purpose is found."""

from dataclasses import replace

import diagrams
import oracle
import pytest

from neural_flow.drawing import LayoutOptions
from neural_flow.layout.choose import lay_out


@pytest.fixture
def drawn():
    diagram, sizes = diagrams.unet()
    return lay_out(diagram, sizes, LayoutOptions()), diagram, sizes


def kinds(layout, diagram, sizes):
    return {kind for kind, _ in oracle.faults(layout, diagram, sizes)}


def moved(layout, node, **changes):
    places = [
        replace(place, body=replace(place.body, **changes)) if place.node_id == node else place
        for place in layout.placements
    ]
    return replace(layout, placements=tuple(places))


def test_overlapping_nodes_and_loose_ends(drawn):
    layout, diagram, sizes = drawn
    other = layout.placements[2].body
    found = kinds(moved(layout, 1, x=other.x, y=other.y), diagram, sizes)
    assert {"nodes", "loose end"} <= found


def test_a_line_through_a_node_and_through_labels(drawn):
    layout, diagram, sizes = drawn
    first = layout.placements[1]
    y = first.body.y + 5
    label = first.label.y + 5
    ends = ((0.0, y), (layout.width, y), (layout.width, label), (0.0, label))
    routes = [replace(layout.routes[-1], points=ends), *layout.routes[:-1]]
    found = kinds(replace(layout, routes=tuple(routes)), diagram, sizes)
    assert {"line through node", "line through label"} <= found


def test_lines_on_each_other_and_missing_lines(drawn):
    layout, diagram, sizes = drawn
    first = next(route for route in layout.routes if diagram.arrows[route.arrow_id].source == 0)
    copy = replace(layout.routes[-1], points=first.points)
    found = kinds(replace(layout, routes=(*layout.routes[:-1], copy)), diagram, sizes)
    assert "lines on each other" in found
    assert "routes" in kinds(replace(layout, routes=layout.routes[1:]), diagram, sizes)


def test_frames_that_hold_too_much_or_too_little(drawn):
    layout, diagram, sizes = drawn
    frame = layout.frames[0]
    wide = replace(frame, box=replace(frame.box, width=layout.width - frame.box.x))
    small = replace(frame, box=replace(frame.box, width=30.0))
    for wrong in (wide, small):
        assert "frame" in kinds(replace(layout, frames=(wrong, *layout.frames[1:])), diagram, sizes)


def test_crossings_are_counted_once_per_pair_of_sources():
    diagram, sizes = diagrams.densenet(3)
    layout = lay_out(diagram, sizes, LayoutOptions(direction="tb"), "layered")
    box = layout.placements
    low = min(place.body.x for place in box)
    cross = ((low - 30.0, box[1].body.y + 60), (layout.width + 30.0, box[1].body.y + 60))
    route = replace(layout.routes[0], style="orthogonal", points=cross, num_shared_points=0, taps=())
    more = replace(layout, routes=(route, *layout.routes[1:]))
    assert oracle.crossings(more, diagram) > oracle.crossings(layout, diagram)
