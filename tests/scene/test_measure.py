from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest

from neural_flow.records import Measurements
from neural_flow.scene.measure import measure_diagram
from neural_flow.scene.options import SceneOptions
from neural_flow.text_metrics import text_width
from neural_flow.theme import get_theme

THEME = get_theme("light")


@pytest.mark.parametrize("has_capture", [True, False])
def test_maps_shrink_with_resolution_and_stacks_deepen_with_channels(unet, has_capture):
    case = unet if has_capture else unet.without_capture()
    sizes = case.sizes().nodes
    fronts = [sizes[node].front_width for node in (1, 2, 3, 4)]
    assert fronts == pytest.approx([56, 44.8, 35.84, 28.672])
    depths = [sizes[node].width - sizes[node].front_width for node in (1, 2, 3, 4)]
    assert depths == pytest.approx([2 * 2.3, 3 * 2.3, 4 * 2.3, 5 * 2.3])
    assert [sizes[node].resolution for node in (0, 1, 2, 3, 4)] == [128, 128, 64, 32, 16]
    assert sizes[0].front_width == pytest.approx(46)


def test_figures_with_and_without_activations_are_laid_out_alike(unet):
    drawn, empty = unet.sizes(), unet.without_capture().sizes()
    assert drawn.arrow_labels == empty.arrow_labels
    for node_id, size in drawn.nodes.items():
        assert dataclasses.astuple(size) == pytest.approx(dataclasses.astuple(empty.nodes[node_id]))


def test_rings_have_no_label(unet):
    ring = unet.sizes().nodes[10]
    assert (ring.width, ring.height, ring.label_width) == (10.4, 10.4, 0)


def test_labels_are_as_wide_as_their_longest_line(unet):
    size = unet.sizes().nodes[4]
    name, shape = text_width("mid", 5.8, "bold"), text_width("128×16²", 5.2)
    assert size.label_width == pytest.approx(max(name, shape))
    assert size.label_height == pytest.approx(13)
    assert unet.sizes(has_shapes=False).nodes[4].label_height == pytest.approx(7)
    assert unet.sizes(has_stats=True).nodes[4].label_height == pytest.approx(19)


def test_long_names_are_shortened_to_the_width_of_a_card(unet):
    long = replace(unet.diagram.nodes[1], label="a_very_long_module_name" * 4)
    case = replace(unet, diagram=replace(unet.diagram, nodes=(long, *unet.diagram.nodes[2:])))
    assert case.sizes().nodes[1].label_width <= 72


def test_the_users_word_for_a_module_wins(unet):
    named = unet.sizes(labels=(("encoder.down0", "The first block of all"),))
    assert named.nodes[1].label_width == pytest.approx(text_width("The first block of all", 5.8, "bold"))


def test_arrows_with_words_have_label_sizes(unet):
    labels = unet.sizes().arrow_labels
    assert set(labels) == {1, 2, 3, 4, 6, 8, 20, 21, 22}
    assert labels[1][0] == pytest.approx(text_width("pool ÷2", 5.2))
    assert labels[20][0] == pytest.approx(text_width("skip", 5.2))


def test_many_skips_are_not_labelled(unet):
    skips = tuple(
        replace(arrow, arrow_id=30 + index, kind="skip", text="") for index, arrow in enumerate(unet.diagram.arrows[:7])
    )
    case = replace(unet, diagram=replace(unet.diagram, arrows=skips))
    assert case.sizes().arrow_labels == {}


def test_a_folded_card_is_larger_by_its_plates(unet):
    plain = unet.sizes().nodes[4]
    folded = replace(unet.diagram.nodes[4], count=12)
    nodes = tuple(folded if node.node_id == 4 else node for node in unet.diagram.nodes)
    size = replace(unet, diagram=replace(unet.diagram, nodes=nodes)).sizes().nodes[4]
    assert size.front_width == pytest.approx(plain.width + 8)
    assert size.width == pytest.approx(size.front_width + 2 * 2.3)
    assert size.front_height == pytest.approx(plain.height + 4 + THEME.plate_head)


def test_frame_titles_are_measured_with_their_badge(unet):
    frames = (replace(unet.diagram.frames[0], badge="×12"), unet.diagram.frames[1])
    sizes = replace(unet, diagram=replace(unet.diagram, frames=frames)).sizes().frame_titles
    assert sizes[1][0] == pytest.approx(text_width("decoder", 6))
    assert sizes[0][0] > text_width("encoder", 6) + text_width("×12", 5.4, "bold")


def test_a_measured_value_takes_a_line_of_the_label(unet):
    options = SceneOptions(color_by="flops")
    found = Measurements(name="flops", unit="FLOP", by_stage=dict.fromkeys(range(10), 1e9))
    arguments = (unet.diagram, unet.topology, unet.capture, THEME, options)
    without, measured = measure_diagram(*arguments).nodes, measure_diagram(*arguments, (found,)).nodes
    lines = {node: (measured[node].label_height - without[node].label_height) / THEME.label_gap for node in range(9)}
    assert lines == pytest.approx({0: 0, **dict.fromkeys(range(1, 9), 1)})


def test_a_long_name_with_a_joint_is_set_in_two_lines(unet):
    nodes = unet.diagram.nodes
    long = replace(unet, diagram=replace(unet.diagram, nodes=(replace(nodes[0], label="encoder_last_hidden_state"),)))
    size, plain = long.sizes().nodes[0], unet.sizes().nodes[0]
    assert size.label_height - plain.label_height == pytest.approx(THEME.label_gap)
    assert max(text_width(part, 5.8, "bold") for part in ("encoder_last_", "hidden_state")) == size.label_width
