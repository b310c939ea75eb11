import diagrams
import oracle
from hypothesis import HealthCheck, given, settings

from neural_flow.drawing import Arrow, Diagram, DiagramNode
from neural_flow.layout.graph import build_graph, split_diagram


def make(num_nodes, *ends, orders=None, kinds=None):
    nodes = tuple(
        DiagramNode(node_id=node, role="card", order=orders[node] if orders else node) for node in range(num_nodes)
    )
    arrows = tuple(
        Arrow(arrow_id=index, source=a, target=b, kind=kinds[index] if kinds else "primary")
        for index, (a, b) in enumerate(ends)
    )
    return Diagram(nodes=nodes, arrows=arrows)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(diagrams.diagrams(has_returns=False, has_frames=False))
def test_trunk_and_primary_edges_follow_the_most_ancestors(made):
    diagram, _ = made
    for part in split_diagram(diagram):
        graph = build_graph(part)
        edges = [graph.arrows[graph.primary[node]].arrow_id for node in graph.trunk[1:]]
        assert edges == oracle.trunk_edges(part)


def test_a_declared_skip_is_never_primary_beside_a_primary_arrow():
    diagram = make(4, (0, 1), (1, 2), (0, 3), (2, 3), kinds=["primary", "primary", "primary", "skip"])
    graph = build_graph(diagram)
    assert graph.arrows[graph.primary[3]].arrow_id == 2


def encoder_decoder(decoder):
    """Return an encoder of four stages read by the third stage of a decoder, whose frame holds ``decoder``."""
    build = diagrams.Builder()
    for _ in range(9):
        build.card()
    for source, target in ((0, 1), (1, 2), (2, 3), (4, 5), (5, 6), (6, 7), (7, 8)):
        build.arrow(source, target)
    build.arrow(3, 7)
    if decoder:
        build.frame("group", "decoder", decoder)
    return build.done()


def test_the_second_of_two_stacks_goes_on_in_its_own_frame():
    diagram, _ = encoder_decoder([5, 6, 7, 8])
    assert [node.node_id for node in build_graph(diagram).nodes] == list(range(9))
    assert build_graph(diagram).trunk == [4, 5, 6, 7, 8]


def test_a_lone_stage_of_the_frame_does_not_turn_the_trunk():
    """What is read beside the main input, such as positions, has come no way in the frame."""
    build = diagrams.Builder()
    for _ in range(6):
        build.card()
    for source, target in ((0, 1), (1, 2), (2, 4), (3, 4), (4, 5)):
        build.arrow(source, target)
    build.frame("group", "decoder", [3, 4, 5])
    diagram, _ = build.done()
    assert build_graph(diagram).trunk == [0, 1, 2, 4, 5]


def test_an_order_against_the_arrows_is_repaired_while_there_is_no_cycle():
    graph = build_graph(make(3, (2, 1), (1, 0)))
    assert [node.node_id for node in graph.nodes] == [2, 1, 0]
    assert graph.returns == []


def test_cycles_are_cut_where_they_run_against_the_order():
    graph = build_graph(make(3, (0, 1), (1, 2), (2, 0), (1, 1)))
    assert sorted(arrow.arrow_id for _, _, arrow in graph.returns) == [2, 3]
    assert graph.num_edges == 2


def test_parts_keep_the_execution_order():
    parts = split_diagram(make(5, (0, 3), (1, 4)))
    assert [[node.node_id for node in part.nodes] for part in parts] == [[0, 3], [1, 4], [2]]
