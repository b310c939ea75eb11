"""The stored stage graphs, drawn from top to bottom as dot drew them: what must be nought is, the rest is no worse."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import diagrams
import oracle
import pytest

from neural_flow.drawing import LayoutOptions
from neural_flow.layout.choose import lay_out

GRAPHS = diagrams.stored_graphs()
SPARSE = ["unet4", "multimodal", "inception", "gpt2_12", "resnet152", "chain3000"]
DENSE = ["densenet121", "nas200"]


@functools.cache
def drawn(name, style="layered", direction="tb"):
    diagram, sizes = diagrams.diagram_of(GRAPHS[name])
    return lay_out(diagram, sizes, LayoutOptions(direction=direction), style), diagram, sizes


@pytest.mark.parametrize("direction", ["lr", "tb"])
@pytest.mark.parametrize("name", [*SPARSE, *DENSE])
def test_nothing_overlaps_and_the_trunk_is_straight(name, direction):
    layout, diagram, sizes = drawn(name, direction=direction)
    assert oracle.faults(layout, diagram, sizes) == []
    assert oracle.trunk_straightness(layout, diagram, sizes) == 1.0


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_nets_have_no_crossings(name):
    layout, diagram, _ = drawn(name)
    assert oracle.crossings(layout, diagram) == 0


@pytest.mark.parametrize(("name", "most"), [("densenet121", 2100), ("nas200", 3000)])
def test_dense_nets_have_few_crossings(name, most):
    layout, diagram, _ = drawn(name)
    assert 0 < oracle.crossings(layout, diagram) <= most < GRAPHS[name]["dot"]["crossings"]


@pytest.mark.parametrize(
    ("name", "most"), [*((name, 1.35) for name in SPARSE), ("nas200", 0.95), ("densenet121", 0.15)]
)
def test_ink_is_short(name, most):
    layout, diagram, _ = drawn(name)
    assert oracle.ink(layout, diagram) <= most * 1000 * GRAPHS[name]["dot"]["length"]


@pytest.mark.parametrize(("name", "most"), [*((name, 1.1) for name in SPARSE), ("nas200", 0.9), ("densenet121", 0.2)])
def test_area_is_small(name, most):
    layout, _, _ = drawn(name)
    dot = GRAPHS[name]["dot"]
    assert layout.width * layout.height <= most * dot["width"] * dot["height"]


@pytest.mark.parametrize("name", SPARSE)
def test_lines_bend_as_little_as_they_can(name):
    """The trunk never; a line that passes trunk stages by four times; one that joins or leaves the trunk twice."""
    layout, diagram, _sizes = drawn(name)
    trunk = oracle.trunk_edges(diagram)
    ends = {arrow.arrow_id: (arrow.source, arrow.target) for arrow in diagram.arrows}
    on_trunk = {node for edge in trunk for node in ends[edge]}
    for route in layout.routes:
        source, target = ends[route.arrow_id]
        if route.arrow_id in trunk:
            assert oracle.bends(route) == 0
        elif source in on_trunk and target in on_trunk:
            assert oracle.bends(route) == 4
        elif source in on_trunk or target in on_trunk:
            assert oracle.bends(route) <= 2


@pytest.mark.parametrize("direction", ["lr", "tb"])
@pytest.mark.parametrize("name", ["gpt2_12", "resnet152", "inception", "chain3000"])
def test_long_nets_wrap_to_the_aspect_of_the_page(name, direction):
    diagram, sizes = diagrams.diagram_of(GRAPHS[name])
    for target in (1.414, 0.707):
        options = LayoutOptions(direction=direction, page_aspect=target, max_width=600 * target, max_height=600)
        layout = lay_out(diagram, sizes, options, "wrapped")
        assert 1 / 1.45 <= layout.width / layout.height / target <= 1.45
        if name != "chain3000":
            assert oracle.faults(layout, diagram, sizes) == []


def test_left_and_right_of_the_trunk_carry_like_weight():
    layout, diagram, _ = drawn("inception")
    trunk = oracle.trunk_edges(diagram)
    ends = {arrow.arrow_id: (arrow.source, arrow.target) for arrow in diagram.arrows}
    body = {place.node_id: place.body for place in layout.placements}
    axis = body[ends[trunk[0]][0]].x + body[ends[trunk[0]][0]].width / 2
    pieces, _ = oracle.unique_pieces(layout, diagram)
    lengths = abs(pieces[:, 2] - pieces[:, 0]) + abs(pieces[:, 3] - pieces[:, 1])
    middles = (pieces[:, 0] + pieces[:, 2]) / 2
    left, right = lengths[middles < axis - 1].sum(), lengths[middles > axis + 1].sum()
    assert 0.3 <= left / (left + right) <= 0.7


@pytest.mark.slow
def test_ten_thousand_stages():
    layout, diagram, _ = drawn("rand10k")
    assert oracle.node_overlaps(layout) == []
    assert oracle.edges_through_nodes(layout) == []
    assert oracle.crossings(layout, diagram, chords=1) <= 85_000


SCRIPT = """
import json, random, sys
sys.path.insert(0, {here!r})
import diagrams
from neural_flow.drawing import Diagram, LayoutOptions, Sizes
from neural_flow.layout.choose import lay_out
shuffled = random.Random(int(sys.argv[1]))
result = {{}}
for name, make in [*diagrams.NETS.items(), ("nas", lambda: diagrams.diagram_of(diagrams.stored_graphs()["nas200"]))]:
    diagram, sizes = make()
    def mixed(values):
        values = list(values)
        shuffled.shuffle(values)
        return values
    nodes, arrows, frames = (tuple(mixed(part)) for part in (diagram.nodes, diagram.arrows, diagram.frames))
    diagram = Diagram(nodes=nodes, arrows=arrows, frames=frames)
    sizes = Sizes(
        nodes=dict(mixed(sizes.nodes.items())),
        arrow_labels=dict(mixed(sizes.arrow_labels.items())),
        frame_titles=dict(mixed(sizes.frame_titles.items())),
    )
    for style in ("auto", "layered", "wrapped"):
        result[name + style] = repr(lay_out(diagram, sizes, LayoutOptions(), style))
print(json.dumps(result, sort_keys=True))
"""


def test_equal_input_gives_equal_bytes():
    """Neither the hash seed nor the order of nodes, arrows and sizes in their containers shows."""
    script = SCRIPT.format(here=str(Path(__file__).parent))
    outputs = []
    for seed in ("0", "1", "random"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"}
        run = subprocess.run(
            [sys.executable, "-c", script, "1" if seed == "random" else seed],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.append(json.loads(run.stdout))
    assert outputs[0] == outputs[1] == outputs[2]
