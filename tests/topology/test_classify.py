from __future__ import annotations

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from neural_flow.records import Edge, Stage
from neural_flow.topology.classify import classify_edges, link_kinds, topological_order


@st.composite
def dags(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, bool]]]:
    num = draw(st.integers(1, 12))
    pairs = [(a, b) for b in range(num) for a in range(b)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return num, [(a, b, draw(st.booleans())) for a, b in chosen]


@given(dags(), st.data())
def test_kinds_follow_the_deepest_way(case: tuple[int, list[tuple[int, int, bool]]], data: st.DataObject):
    num, links = case
    weights = [data.draw(st.integers(1, 3)) for _ in links]
    readers = [a for a, _, _ in links]
    carried = {(a, b): weight for (a, b, _), weight in zip(links, weights, strict=True)}
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(num))
    graph.add_edges_from((a, b) for a, b, is_plumbing in links if not is_plumbing)
    kinds = dict(zip([(a, b) for a, b, _ in links], link_kinds(num, links, weights=weights), strict=True))
    for node in range(num):
        into = [(a, is_plumbing) for a, b, is_plumbing in links if b == node]
        if not into:
            continue
        wanted = [a for a, is_plumbing in into if not is_plumbing] or [a for a, _ in into]
        primary = max(wanted, key=lambda a: (len(nx.ancestors(graph, a)), -readers.count(a), carried[a, node], -a))
        for source, _ in into:
            expected = "primary" if source == primary else "skip" if source in nx.ancestors(graph, primary) else "merge"
            assert kinds[source, node] == expected


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20))
def test_order_holds_every_node_once_and_sources_before_targets(pairs: list[tuple[int, int]]):
    order = topological_order(10, pairs)
    assert sorted(order) == list(range(10))
    graph: nx.DiGraph[int] = nx.DiGraph(pairs)
    if nx.is_directed_acyclic_graph(graph):
        assert all(order.index(a) < order.index(b) for a, b in pairs)


def test_edges_are_sorted_by_target_and_source_in_call_order():
    stages = [Stage(stage_id=k, kind="module", name="", label="") for k in (7, 3, 5)]
    edges = [Edge(source=3, target=5), Edge(source=7, target=5), Edge(source=7, target=3)]
    found = classify_edges(edges, stages)
    assert [(edge.source, edge.target, edge.kind) for edge in found] == [
        (7, 3, "primary"),
        (7, 5, "skip"),
        (3, 5, "primary"),
    ]
