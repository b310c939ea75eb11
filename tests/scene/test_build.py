from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import hypot
from types import MappingProxyType

import numpy as np
import pytest

from neural_flow.drawing import Image, Path, Rect, Text
from neural_flow.records import Capture, Failure, Measurements
from neural_flow.scene.build import SceneOptions, build_scene, room_inside
from neural_flow.scene.look import total_of
from neural_flow.scene.space import bounds, contents
from neural_flow.text_metrics import text_width
from neural_flow.theme import THEMES, get_theme

THEME = get_theme("light")


def texts(scene) -> list[str]:
    return [mark.text for mark in scene.marks if isinstance(mark, Text)]


def box_of(mark) -> tuple[float, float, float, float]:
    if isinstance(mark, Rect | Image):
        return mark.x, mark.y, mark.x + mark.width, mark.y + mark.height
    if isinstance(mark, Text):
        width = text_width(mark.text, mark.size, mark.weight)
        left = mark.x - {"start": 0, "middle": width / 2, "end": width}[mark.anchor]
        return left, mark.y - mark.size * 0.76, left + width, mark.y + mark.size * 0.24
    values = [value for command in mark.commands for value in command[1:]]
    return min(values[::2]), min(values[1::2]), max(values[::2]), max(values[1::2])


def overlaps(first, second) -> bool:
    return first[0] < second[2] and second[0] < first[2] and first[1] < second[3] and second[1] < first[3]


@pytest.mark.parametrize("theme", sorted(THEMES))
@pytest.mark.parametrize("has_capture", [True, False])
def test_everything_is_on_the_page(unet, theme, has_capture):
    scene = (unet if has_capture else unet.without_capture()).scene(theme)
    for mark in scene.marks:
        left, top, right, bottom = box_of(mark)
        assert left >= 7, mark
        assert top >= 3, mark
        assert right <= scene.width - 7, mark
        assert bottom <= scene.height - 5, mark


def test_the_page_is_as_large_as_a_page_of_two_columns(unet):
    scene = unet.scene()
    assert scene.width <= 530
    assert scene.height <= 335


def test_every_group_is_known_and_none_is_twice(unet):
    scene = unet.scene()
    known = [group.group_id for group in scene.groups]
    assert len(known) == len(set(known))
    assert {mark.group for mark in scene.marks} - {""} == set(known)
    assert Counter(name.split("-")[0] for name in known) == {"stage": 9, "ring": 3, "edge": 14, "frame": 2}


def test_edges_name_their_ends(unet):
    scene = unet.scene()
    data = {group.group_id: dict(group.data) for group in scene.groups}
    assert data["edge-0"] == {"src": "stage-0", "dst": "stage-1", "kind": "primary"}
    assert data["edge-20"] == {"src": "stage-3", "dst": "ring-10", "kind": "skip"}


@pytest.mark.parametrize("theme", sorted(THEMES))
def test_no_text_is_below_five_points_and_none_covers_another(unet, theme):
    scene = unet.scene(theme, color_by=None)
    marks = [mark for mark in scene.marks if isinstance(mark, Text)]
    assert min(mark.size for mark in marks) >= 5
    boxes = [box_of(mark) for mark in marks]
    for index, first in enumerate(boxes):
        for other in range(index):
            assert not overlaps(first, boxes[other]), (marks[index].text, marks[other].text)


def test_header_says_what_the_model_is(unet):
    scene = unet.scene()
    assert texts(scene)[:2] == ["U-Net", "8 of 31 stages · 0.49 M parameters · input 1×128×128"]
    assert texts(unet.scene(title="My net"))[0] == "My net"
    untrained = replace(unet, capture=replace(unet.capture, notes=("untrained",)))
    assert texts(untrained.scene())[1].endswith(" · untrained")


def test_cards_are_labelled_with_name_and_shape(unet):
    shown = texts(unet.scene())
    for name, shape in (("down0", "16×128²"), ("mid", "128×16²"), ("up2", "64×32²")):
        assert shown[shown.index(name) + 1] == shape
    assert "16×128²" not in texts(unet.scene(has_shapes=False))
    assert "Stem" in texts(unet.scene(labels=(("encoder.down0", "Stem"),)))
    assert "0.1 ± 0.2" in texts(unet.scene(has_stats=True))


def test_legend_holds_only_what_is_there(unet):
    shown = texts(unet.scene())
    for word in ("trunk", "concat", "activation (scaled per channel)", "p1", "p99"):
        assert shown.count(word) == 1
    for word in ("inferred", "branch", "merge", "opaque code", "NaN", "dead channel"):
        assert word not in shown
    assert "concat" not in texts(unet.scene(has_legend=False))
    assert "activation (scaled per stage)" in texts(unet.scene(norm="stage"))
    assert "p99" not in texts(unet.without_capture().scene())


def test_the_legend_covers_nothing(unet):
    scene, bare = unet.scene(), unet.scene(has_legend=False)
    legend = [box_of(mark) for mark in scene.marks if mark.group == "" and mark not in bare.marks]
    assert len(legend) > 8
    for mark in bare.marks:
        is_frame = mark.group.startswith("frame")
        for box in legend if not is_frame else ():
            assert not overlaps(box, box_of(mark)), mark


def test_a_single_kind_of_arrow_needs_no_legend(unet):
    sizes = unet.sizes()
    layout = unet.layout(sizes)
    arrows = tuple(arrow for arrow in unet.diagram.arrows if arrow.arrow_id == 0)
    diagram = replace(unet.diagram, arrows=arrows, nodes=unet.diagram.nodes[:2], frames=())
    layout = replace(layout, placements=layout.placements[:2], routes=layout.routes[:1], frames=())
    scene = build_scene(unet.topology, diagram, layout, unet.capture, (), THEME, SceneOptions())
    assert "trunk" not in texts(scene)
    assert {"image", "down0", "p99"} <= set(texts(scene))


def lines_of(scene, arrow_id):
    return [
        mark
        for mark in scene.marks
        if isinstance(mark, Path) and mark.group == f"edge-{arrow_id}" and mark.stroke is not None
    ]


def test_arrows_stand_clear_of_their_nodes(unet):
    scene = unet.scene()
    frames = {
        mark.group: box_of(mark)
        for mark in scene.marks
        if isinstance(mark, Rect) and mark.stroke == THEME.frame and mark.group.startswith("stage")
    }
    head = next(mark for mark in scene.marks if isinstance(mark, Path) and mark.group == "edge-0" and mark.fill)
    assert head.commands[0][1] == pytest.approx(frames["stage-1"][0] - 1.4, abs=0.01)
    line = lines_of(scene, 0)[0]
    assert line.commands[0][1] == pytest.approx(frames["stage-0"][2] + 1.4, abs=0.01)
    assert line.commands[-1][1] == pytest.approx(head.commands[0][1] - 3.6, abs=0.01)
    to_ring = next(mark for mark in scene.marks if isinstance(mark, Path) and mark.group == "edge-20" and mark.fill)
    ring = next(mark for mark in scene.marks if isinstance(mark, Path) and mark.group == "ring-10")
    left, top, right, bottom = box_of(ring)
    tip = to_ring.commands[0][1:]
    distance = hypot(tip[0] - (left + right) / 2, tip[1] - (top + bottom) / 2)
    assert distance == pytest.approx(5.2 + 1.4, abs=0.02)


def with_arrow(unet, **changes):
    arrows = tuple(replace(arrow, **changes) if arrow.arrow_id == 0 else arrow for arrow in unet.diagram.arrows)
    return replace(unet, diagram=replace(unet.diagram, arrows=arrows))


def test_guessed_edges_look_guessed(unet):
    scene = with_arrow(unet, inferred=True).scene()
    line = lines_of(scene, 0)[0]
    assert line.stroke == THEME.inferred
    assert line.dash == pytest.approx((2.2 * 1.05, 1.6 * 1.05))
    assert "inferred" in texts(scene)
    assert "inferred" in next(group.title for group in scene.groups if group.group_id == "edge-0")
    assert all(not mark.dash for mark in lines_of(unet.scene(), 0))


def test_edges_through_opaque_code_carry_a_black_box(unet):
    scene = with_arrow(unet, opaque=True).scene()
    boxes = [mark for mark in scene.marks if isinstance(mark, Rect) and mark.group == "edge-0"]
    assert len(boxes) == 1
    assert "opaque code" in texts(scene)


@pytest.mark.parametrize(("kind", "color"), [("branch", "#D55E00"), ("merge", "#00795A"), ("return", "#36414C")])
def test_kinds_of_arrows_have_their_colors(unet, kind, color):
    scene = with_arrow(unet, kind=kind).scene()
    assert lines_of(scene, 0)[0].stroke == color


def scene_of(unet, route):
    """Return the scene with one route changed: ``route`` has the arrow's id and what it takes instead."""
    layout = unet.layout(unet.sizes())
    routes = tuple(replace(found, **route[1]) if found.arrow_id == route[0] else found for found in layout.routes)
    layout = replace(layout, routes=routes)
    return build_scene(unet.topology, unet.diagram, layout, unet.capture, (), THEME, SceneOptions())


def test_a_line_looks_like_what_it_is_in_the_drawing(unet):
    assert "merge" not in texts(unet.scene())
    scene = scene_of(unet, (20, {"kind": "merge"}))
    assert lines_of(scene, 20)[0].stroke == THEME.merge
    group = next(group for group in scene.groups if group.group_id == "edge-20")
    assert "nf-merge" in group.css_class
    assert dict(group.data)["kind"] == "merge"
    assert "merge" in texts(scene)


def test_what_another_arrow_draws_is_left_out_and_known_to_viewers(unet):
    start = next(route.points[0] for route in unet.layout(unet.sizes()).routes if route.arrow_id == 20)
    steps = ((2.0, 0.0), (30.0, 0.0), (37.0, 0.0), (37.0, 60.0), (37.0, 66.0), (37.0, 90.0))
    points = tuple((start[0] + x, start[1] + y) for x, y in steps)
    place = scene_of(unet, (20, {"points": points}))
    whole = box_of(lines_of(place, 20)[0])
    found = []
    for shared in ({}, {"num_shared_points": 2, "taps": (points[1],)}, {"num_joined_points": 2}):
        scene = scene_of(unet, (20, {"points": points, **shared}))
        box = box_of(lines_of(scene, 20)[0])
        marks = [mark for mark in scene.marks if mark.group == "edge-20" and mark.layer > 4 and isinstance(mark, Path)]
        data = dict(next(group.data for group in scene.groups if group.group_id == "edge-20"))
        way = data.get("shared", "").split()
        found.append((box[0] - whole[0], whole[3] - box[3], len(marks), len(way)))
    assert found[0] == (0, 0, 1, 0)
    assert found[1] == (pytest.approx(28), 0, 1, 6), "starts at the tap"
    assert found[2] == (0, pytest.approx(90 - 66 - THEME.line_stop, abs=1.5), 0, 6), "ends without a head"


def test_tooltips_tell_what_is_known(unet):
    title = next(group.title for group in unet.scene().groups if group.group_id == "stage-4")
    assert title.splitlines() == [
        "mid",
        "DoubleConv",
        "in float32 [1, 64, 32, 32]",
        "out float32 [1, 128, 16, 16]",
        "0.22 M parameters",
        "mean 0.1, std 0.2, min 0, max 1.5",
        "25 % zero",
    ]
    down = next(group.title for group in unet.scene().groups if group.group_id == "stage-1")
    assert "encoder.down0" in down.splitlines()


def test_what_is_not_finite_is_said(unet):
    stats = replace(unet.capture.stats[4], num_nan=3, num_inf=2)
    summary = unet.capture.summaries[4]
    bad = replace(summary, facts={**summary.facts, "num_nan": 3, "num_dead": 2, "dead": (True, *(False,) * 5)})
    capture = replace(
        unet.capture,
        stats=MappingProxyType({**unet.capture.stats, 4: stats}),
        summaries=MappingProxyType({**unet.capture.summaries, 4: bad}),
    )
    scene = replace(unet, capture=capture).scene()
    title = next(group.title for group in scene.groups if group.group_id == "stage-4")
    assert "25 % zero, 3 NaN, 2 infinite" in title
    assert "2 of 128 channels are zero everywhere" in title
    assert [mark.text for mark in scene.marks if isinstance(mark, Text) and mark.group == "stage-4"].count("!") == 1
    assert {"NaN", "dead channel"} <= set(texts(scene))


def test_a_missing_picture_is_explained(unet):
    summaries = {key: value for key, value in unet.capture.summaries.items() if key != 4}
    capture = replace(unet.capture, summaries=summaries, skipped={4: "too odd"})
    scene = replace(unet, capture=capture).scene()
    assert "no picture: too odd" in next(group.title for group in scene.groups if group.group_id == "stage-4")


def test_a_failed_stage_is_marked_red(unet):
    failure = Failure(
        module="decoder.up2.0",
        call=0,
        call_id=9,
        type="RuntimeError",
        message="sizes differ\nmore",
        inputs=unet.topology.stages[5].inputs,
    )
    case = replace(unet, topology=replace(unet.topology, failure=failure))
    scene = case.scene()
    assert "stopped in decoder.up2.0 on float32 [1, 128, 16, 16]: RuntimeError: sizes differ" in texts(scene)
    red = {mark.group for mark in scene.marks if isinstance(mark, Rect) and mark.stroke == THEME.failure}
    assert red == {"stage-5"}
    assert "raised RuntimeError: sizes differ" in next(g.title for g in scene.groups if g.group_id == "stage-5")
    assert "The model raised in decoder.up2.0." in scene.description


def test_highlighted_stages_have_a_plate(unet):
    scene = unet.scene(highlight=("decoder.*",))
    marked = {mark.group for mark in scene.marks if isinstance(mark, Rect) and mark.stroke == THEME.highlight}
    assert marked == {"stage-5", "stage-6", "stage-7"}


def test_cost_colors_grow_with_the_value(unet):
    cost = Measurements(name="flops", unit="FLOP", by_stage={1: 1e9, 4: 2e9, 5: 0.0})
    scene = unet.scene(measurements=(cost,), color_by="flops")
    fills = {mark.group: mark.fill for mark in scene.marks if isinstance(mark, Rect) and mark.layer == 2.8}
    greens = [int(fills[f"stage-{stage}"][3:5], 16) for stage in (5, 1, 4)]
    assert greens == sorted(greens, reverse=True)
    assert len(set(greens)) == 3
    assert {"1 GFLOP", "2 GFLOP", "flops", "0"} <= set(texts(scene))
    assert "stage-0" not in fills


def test_numbers_that_are_asked_for_are_in_the_labels(unet):
    costs = (
        Measurements(name="saved", unit="B", by_stage={1: 1e3, 4: 2e6}),
        Measurements(name="gradient", unit="", by_stage={4: 0.25}),
    )
    asked = {"saved 1 kB", "saved 2 MB", "gradient 0.25"}
    assert asked <= set(texts(unet.scene(measurements=costs, numbers=("gradient", "saved"))))
    assert not asked & set(texts(unet.scene(measurements=costs)))
    coloured = set(texts(unet.scene(measurements=costs, numbers=("saved",), color_by="saved")))
    assert {"1 kB", "2 MB"} <= coloured
    assert not asked & coloured


def test_norms_of_one_card_are_no_sum():
    norms = Measurements(name="gradient", unit="", by_stage={1: 3.0, 2: 4.0})
    amounts = Measurements(name="saved", unit="B", by_stage={1: 3.0, 2: 4.0})
    assert total_of(norms, (1, 2, 7)) == 5
    assert total_of(amounts, (1, 2, 7)) == 7
    assert total_of(amounts, (7,)) is None


def test_every_measurement_is_in_the_tooltip(unet):
    costs = (
        Measurements(name="flops", unit="FLOP", by_stage={4: 2e9}),
        Measurements(name="time", unit="s", by_stage={4: 0.002}),
    )
    title = next(group.title for group in unet.scene(measurements=costs).groups if group.group_id == "stage-4")
    assert {"flops 2 GFLOP", "time 2 ms"} <= set(title.splitlines())


def test_changes_between_two_models_have_plates_and_a_legend(unet):
    scene = unet.scene(changes=((1, "added"), (4, "changed")))
    plates = {mark.group: mark.stroke for mark in scene.marks if isinstance(mark, Rect) and mark.layer == 2.8}
    assert plates == {"stage-1": THEME.merge, "stage-4": THEME.highlight}
    assert {"added", "changed"} <= set(texts(scene))
    assert "removed" not in texts(scene)


def test_a_page_has_room_for_what_is_laid_out_into_it(unet):
    layout = unet.layout(unet.sizes())
    extent = bounds([*contents(layout), *(place.box for place in layout.frames)])
    scene = unet.scene(has_legend=False)
    assert room_inside(scene.width, scene.height, THEME) == pytest.approx((extent.width, extent.height), abs=0.01)


def test_parameters_need_no_measurement(unet):
    scene = unet.scene(color_by="params")
    assert {"0.22 M parameters", "parameters"} <= set(texts(scene))


def test_repeats_are_counted_on_the_card_and_in_words(unet):
    nodes = tuple(
        replace(node, count=6, is_dense=True, has_residual=True) if node.node_id == 4 else node
        for node in unet.diagram.nodes
    )
    scene = replace(unet, diagram=replace(unet.diagram, nodes=nodes)).scene()
    assert "×6" in texts(scene)
    assert "128×16² · dense" in texts(scene)
    plates = [mark for mark in scene.marks if isinstance(mark, Rect) and mark.stroke == THEME.plate_edge]
    assert len(plates) == 3
    assert "Repeats: mid ×6." in scene.description
    title = next(group.title for group in scene.groups if group.group_id == "stage-4")
    assert "×6 in a row" in title
    assert "adds its input to its result" in title


def test_a_fold_frame_has_sheets_behind_and_a_badge(unet):
    frames = (replace(unet.diagram.frames[0], kind="fold", badge="×12"), unet.diagram.frames[1])
    scene = replace(unet, diagram=replace(unet.diagram, frames=frames)).scene()
    sheets = [mark for mark in scene.marks if mark.group == "frame-0" and isinstance(mark, Rect) and mark.radius == 5]
    assert len(sheets) == 3
    assert "×12" in texts(scene)


def test_title_and_description_are_words(unet):
    scene = unet.scene()
    assert scene.title == "U-Net: 8 of 31 stages, 0.49 M parameters"
    assert scene.description == (
        "Trunk: image → down0 → down1 → down2 → mid → concat → up2 → up1 → up0 → mask. "
        "Skips: down2 to up2, down1 to up1, down0 to up0."
    )
    long = replace(unet, topology=replace(unet.topology, model=replace(unet.topology.model, name="x" * 400)))
    assert len(long.scene().title) <= 150


def test_transparent_pages_have_no_ground(unet):
    assert unet.scene(is_transparent=True).background is None
    assert unet.scene("dark").background == "#0F161C"


def test_planes_are_painted_back_to_front(unet):
    images = [mark for mark in unet.scene().marks if isinstance(mark, Image) and mark.group == "stage-4"]
    assert len(images) == 6
    ordered = sorted(images, key=lambda mark: mark.layer)
    assert [mark.x for mark in ordered] == sorted((mark.x for mark in images), reverse=True)
    assert np.diff([mark.x for mark in ordered]) == pytest.approx([-2.3] * 5)


def test_a_scene_is_the_same_every_time(unet):
    first, second = unet.scene(), unet.scene()
    assert first.groups == second.groups
    plain = [mark for mark in first.marks if not isinstance(mark, Image)]
    assert plain == [mark for mark in second.marks if not isinstance(mark, Image)]


def test_an_empty_capture_is_a_figure_too(unet):
    scene = replace(unet, capture=Capture()).scene()
    assert not [mark for mark in scene.marks if isinstance(mark, Image)]
    fronts = [mark for mark in scene.marks if isinstance(mark, Rect) and mark.fill and mark.group == "stage-4"]
    assert len(fronts) == 6


def test_an_output_that_repeats_an_earlier_card_is_an_open_end(unet):
    nodes = unet.diagram.nodes
    thin = replace(unet, diagram=replace(unet.diagram, nodes=(*nodes[:8], replace(nodes[8], is_thin=True), *nodes[9:])))
    assert (thin.sizes().nodes[8].width, thin.sizes().nodes[8].height) == (9, 9)
    marks = [mark for mark in thin.scene().marks if mark.group == "stage-8"]
    assert not any(isinstance(mark, Image) for mark in marks)
    assert [mark.text for mark in marks if isinstance(mark, Text)] == ["mask", "2×128²"]
