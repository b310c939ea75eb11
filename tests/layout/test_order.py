import itertools
from random import Random

import diagrams
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neural_flow.layout.frames import build_tree, mark_elements
from neural_flow.layout.graph import build_graph
from neural_flow.layout.grid import Grid, build_grid, place_turns
from neural_flow.layout.order import count_crossings, order_layers
from neural_flow.layout.ranks import assign_ranks


def grid_of(made, *, has_frames=False):
    diagram, sizes = made
    graph = build_graph(diagram)
    graph.returns.clear()
    grid = build_grid(graph, assign_ranks(graph))
    if has_frames:
        tree = build_tree(diagram.frames, {node.node_id: i for i, node in enumerate(graph.nodes)}, sizes)
        mark_elements(grid, tree)
    return grid


def brute_crossings(grid: Grid) -> int:
    """Count pairs of links between the same two layers whose ends lie in opposite order."""
    total = 0
    place = {element: index for row in grid.rows for index, element in enumerate(row)}
    for row in grid.rows:
        links = [(place[upper], place[lower]) for upper in row for lower in grid.downs[upper]]
        total += sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in itertools.combinations(links, 2))
    return total


SIMPLE = diagrams.diagrams(has_frames=False, has_texts=False, has_returns=False)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(SIMPLE, st.integers(0, 99))
def test_crossings_are_counted_right(made, seed):
    grid = grid_of(made)
    for row in grid.rows:
        Random(seed).shuffle(row)
    assert count_crossings(grid) == brute_crossings(grid)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(SIMPLE, st.booleans())
def test_ordering_keeps_every_element_in_its_layer(made, lanes_after):
    grid = grid_of(made)
    elements = [sorted(row) for row in grid.rows]
    order_layers(grid, lanes_after=lanes_after)
    assert [sorted(row) for row in grid.rows] == elements


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10_000))
def test_trees_have_no_crossings(seed):
    random = Random(seed)
    build = diagrams.Builder()
    for node in range(30):
        build.card()
        if node:
            build.arrow(random.randrange(node), node)
    grid = grid_of(build.done())
    order_layers(grid, lanes_after=True)
    assert count_crossings(grid) == 0


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(diagrams.diagrams(has_returns=False))
def test_frames_stay_in_one_piece_in_every_layer(made):
    grid = grid_of(made, has_frames=True)
    order_layers(grid, lanes_after=True)
    place_turns(grid)
    for row in grid.rows:
        for frame in {frame for element in row for frame in grid.frames[element]}:
            inside = [index for index, element in enumerate(row) if frame in grid.frames[element]]
            assert inside == list(range(inside[0], inside[-1] + 1))


def test_lines_of_one_source_share_one_lane_per_layer():
    grid = grid_of(diagrams.densenet(20))
    for layer, row in enumerate(grid.rows):
        lanes = [grid.bus[element] for element in row if not grid.is_node(element)]
        assert len(lanes) == len(set(lanes)), f"layer {layer}"
