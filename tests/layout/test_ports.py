from itertools import pairwise

import diagrams
import pytest

from neural_flow.layout._base import PORT_PITCH, shape_of
from neural_flow.layout.graph import build_graph
from neural_flow.layout.grid import build_grid
from neural_flow.layout.order import order_layers
from neural_flow.layout.ports import MIN_HEAD_PITCH, assign_in_ports
from neural_flow.layout.ranks import assign_ranks


def ports_into(num_inputs, make_target):
    build = diagrams.Builder()
    sources = [build.card() for _ in range(num_inputs)]
    target = make_target(build)
    for index, source in enumerate(sources):
        build.arrow(source, target, "merge" if index else "primary")
    diagram, sizes = build.done()
    graph = build_graph(diagram)
    grid = build_grid(graph, assign_ranks(graph))
    order_layers(grid, lanes_after=True)
    shapes = [shape_of(node, sizes.nodes[node.node_id], "lr") for node in graph.nodes]
    ports = assign_in_ports(grid, shapes)
    return ports, graph.primary[target], shapes[target]


@pytest.mark.parametrize("num_inputs", [2, 3, 5])
def test_few_lines_have_heads_apart(num_inputs):
    ports, primary, shape = ports_into(num_inputs, lambda build: build.card(height=46))
    places = sorted(ports.values())
    assert ports[primary] == 0
    assert all(b - a >= MIN_HEAD_PITCH for a, b in pairwise(places))
    assert max(map(abs, places)) <= shape.port_half


def test_heads_that_would_cover_each_other_come_together():
    ports, primary, shape = ports_into(14, lambda build: build.card(height=46))
    assert ports[primary] == 0
    assert set(ports.values()) <= {-PORT_PITCH, 0.0, PORT_PITCH}
    assert [key for key, place in ports.items() if not place] == [primary]
    assert shape.port_half >= PORT_PITCH


def test_many_lines_end_in_one_place_of_a_ring():
    ports, _, _ = ports_into(9, lambda build: build.ring())
    assert set(ports.values()) == {0.0}
