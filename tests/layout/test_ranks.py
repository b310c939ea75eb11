import networkx as nx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neural_flow.drawing import Arrow, Diagram, DiagramNode
from neural_flow.layout.graph import build_graph
from neural_flow.layout.ranks import PRIMARY_WEIGHT, assign_ranks


@st.composite
def graphs(draw, max_nodes=14):
    """Draw a connected acyclic graph."""
    num_nodes = draw(st.integers(1, max_nodes))
    ends = {(draw(st.integers(0, node - 1)), node) for node in range(1, num_nodes)}
    for _ in range(draw(st.integers(0, num_nodes))):
        source, target = draw(st.integers(0, num_nodes - 1)), draw(st.integers(0, num_nodes - 1))
        if source < target:
            ends.add((source, target))
    return graph_of(num_nodes, sorted(ends))


def graph_of(num_nodes, ends):
    nodes = tuple(DiagramNode(node_id=node, role="card", order=node) for node in range(num_nodes))
    arrows = tuple(Arrow(arrow_id=index, source=a, target=b) for index, (a, b) in enumerate(ends))
    return build_graph(Diagram(nodes=nodes, arrows=arrows))


def weighted_length(graph, ranks):
    return sum(
        weight(graph, edge) * (ranks[graph.target[edge]] - ranks[graph.source[edge]]) for edge in range(graph.num_edges)
    )


def weight(graph, edge):
    return PRIMARY_WEIGHT if graph.primary[graph.target[edge]] == edge else 1


def least_length(graph):
    """Return the least weighted length, from the dual: the costliest flow of the weights."""
    flow = nx.MultiDiGraph()
    for node in range(graph.num_nodes):
        flow.add_node(node, demand=0)
    for edge in range(graph.num_edges):
        source, target = graph.source[edge], graph.target[edge]
        flow.add_edge(source, target, weight=-1)
        flow.nodes[source]["demand"] -= weight(graph, edge)
        flow.nodes[target]["demand"] += weight(graph, edge)
    return -nx.min_cost_flow_cost(nx.DiGraph(flow)) if graph.num_edges else 0


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_layers_are_valid_and_as_short_as_any(graph):
    ranks = assign_ranks(graph)
    assert min(ranks) == 0
    assert all(ranks[graph.target[edge]] > ranks[graph.source[edge]] for edge in range(graph.num_edges))
    assert weighted_length(graph, ranks) == least_length(graph)


def test_a_side_input_stands_right_before_its_reader():
    ends = [(0, 1), (1, 2), (2, 3), (3, 5), (4, 5), (5, 6)]
    assert assign_ranks(graph_of(7, ends)) == [0, 1, 2, 3, 3, 4, 5]


def test_large_graphs_are_layered_by_sweeps():
    """Above the simplex's limit layers stay valid, and shorter than by longest path alone."""
    ends = []
    for block in range(600):
        first = 3 * block
        ends += [(first, first + 1), (first, first + 3), (first + 1, first + 3), (first + 2, first + 3)]
    graph = graph_of(1801, sorted(ends))
    ranks = assign_ranks(graph)
    assert all(ranks[graph.target[edge]] > ranks[graph.source[edge]] for edge in range(graph.num_edges))
    # The lone inputs, which longest path leaves at layer 0, stand right before their readers.
    assert all(ranks[3 * block + 3] - ranks[3 * block + 2] == 1 for block in range(600))
