"""Edges, meetings, joins and flows against reachability, counted the slow way from the definition."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from neural_flow.records import Stage, TensorMeta
from neural_flow.topology._base import FlowGraph, FlowOp
from neural_flow.topology.edges import direct_edges, joins_and_flows
from neural_flow.topology.walk import contract

META = TensorMeta(shape=(2,), dtype="float32")


@st.composite
def flow_graphs(draw: st.DrawFn) -> tuple[FlowGraph, tuple[Stage, ...]]:
    """Ops in execution order; each stage owns a run of them, glue lies between."""
    runs = draw(st.lists(st.tuples(st.booleans(), st.integers(1, 4)), min_size=1, max_size=9))
    ops: list[FlowOp] = []
    stages: list[Stage] = []
    for is_stage, length in runs:
        owner = len(stages) if is_stage else None
        if is_stage:
            stages.append(Stage(stage_id=len(stages), kind="module", name="s", label="s", outputs=(META,)))
        for _ in range(length):
            index = len(ops)
            parents = draw(st.lists(st.integers(0, index - 1), max_size=3, unique=True)) if index else []
            role = draw(st.sampled_from(["op", "op", "op", "op", "opaque"]))
            ops.append(
                FlowOp(
                    target=f"op{index}", parents=tuple((p, 0) for p in parents), outputs=(META,), owner=owner, role=role
                )
            )
    reads = {
        stage.stage_id: tuple(
            (index, 0)
            for index in draw(st.lists(st.integers(0, len(ops) - 1), max_size=2, unique=True))
            if index < min(i for i, op in enumerate(ops) if op.owner == stage.stage_id)
        )
        for stage in stages
    }
    return FlowGraph(ops=tuple(ops), reads=reads), tuple(stages)


def readers(graph: FlowGraph, index: int) -> Iterator[int]:
    return (other for other, op in enumerate(graph.ops) if index in [parent for parent, _ in op.parents])


def reached(graph: FlowGraph, source: int, target: int) -> set[int]:
    """Glue, and ops of ``target``, that a value of ``source`` reaches without passing another stage."""
    found: set[int] = set()
    queue = [index for index, op in enumerate(graph.ops) if op.owner == source]
    while queue:
        for reader in readers(graph, queue.pop()):
            if reader not in found and graph.ops[reader].owner in (None, target) and source != target:
                found.add(reader)
                queue.append(reader)
    return found


def reads_of(graph: FlowGraph, target: int) -> set[int]:
    return {ref for ref, _ in graph.reads[target]}


def is_edge(graph: FlowGraph, source: int, target: int) -> bool:
    found = reached(graph, source, target)
    own = {index for index, op in enumerate(graph.ops) if op.owner == source}
    return any(graph.ops[index].owner == target for index in found) or bool(reads_of(graph, target) & (found | own))


def leads_to(graph: FlowGraph, index: int, target: int) -> bool:
    """Whether glue op ``index`` reaches the target."""
    queue, seen = [index], {index}
    while queue:
        at = queue.pop()
        if at in reads_of(graph, target):
            return True
        for reader in readers(graph, at):
            if graph.ops[reader].owner == target:
                return True
            if graph.ops[reader].owner is None and reader not in seen:
                seen.add(reader)
                queue.append(reader)
    return False


def meetings(graph: FlowGraph, source: int, target: int, sources: list[int]) -> list[int]:
    """Ops that the source's value reaches alone, and where it meets a value of another source of the target."""
    reach = {other: reached(graph, other, target) for other in sources}

    def arrives(parent: int) -> set[int]:
        owner = graph.ops[parent].owner
        if owner is not None and owner != target:
            return {owner} & set(sources)
        return {other for other in sources if parent in reach[other]}

    found: list[int] = []
    for index, op in enumerate(graph.ops):
        if op.owner not in (None, target) or (op.owner is None and not leads_to(graph, index, target)):
            continue
        arriving = [arrives(parent) for parent, _ in op.parents]
        if {source} in arriving and len(set().union(*arriving)) > 1:
            found.append(index)
    return found


@given(flow_graphs())
def test_edges_and_meetings_are_what_reachability_says(case: tuple[FlowGraph, tuple[Stage, ...]]):
    graph, stages = case
    edges, notes = direct_edges(graph, stages, contract(graph, stages))
    ids = [stage.stage_id for stage in stages]
    expected = {(a, b) for a in ids for b in ids if a != b and is_edge(graph, a, b)}
    assert {(edge.source, edge.target) for edge in edges} == expected
    assert len(edges) == len(expected)
    assert notes == ()
    for edge in edges:
        sources = [a for a, b in sorted(expected) if b == edge.target]
        assert list(edge.joins) == meetings(graph, edge.source, edge.target, sources)


@given(flow_graphs())
def test_flows_through_joins_say_the_same_as_edges(case: tuple[FlowGraph, tuple[Stage, ...]]):
    graph, stages = case
    wires = contract(graph, stages)
    edges, _ = direct_edges(graph, stages, wires)
    joins, flows = joins_and_flows(graph, stages, wires)
    targets: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for flow in flows:
        targets.setdefault(flow.source, []).append(flow.target)
    found: set[tuple[int, int]] = set()
    for stage in stages:
        queue = list(targets.get(("stage", stage.stage_id), []))
        while queue:
            kind, key = queue.pop()
            if kind == "stage":
                found.add((stage.stage_id, key))
            else:
                queue += targets.get(("join", key), [])
    assert found - {(a, a) for a, _ in found} == {(edge.source, edge.target) for edge in edges}
    for join in joins:
        assert graph.ops[join.join_id].owner is None
        assert len(join.sources) > 1
        assert set(join.sources) == {flow.source for flow in flows if flow.target == ("join", join.join_id)}


@given(flow_graphs())
def test_an_opaque_op_on_the_way_shows_on_the_edge(case: tuple[FlowGraph, tuple[Stage, ...]]):
    graph, stages = case
    edges, _ = direct_edges(graph, stages, contract(graph, stages))
    for edge in edges:
        glue = {index for index in reached(graph, edge.source, edge.target) if graph.ops[index].owner is None}
        on_way = {index for index in glue if leads_to(graph, index, edge.target)}
        assert edge.opaque == any(graph.ops[index].role == "opaque" for index in on_way)


@given(flow_graphs())
def test_short_edges_are_some_of_all_edges_and_reach_every_stage(case: tuple[FlowGraph, tuple[Stage, ...]]):
    graph, stages = case
    wires = contract(graph, stages)
    full, _ = direct_edges(graph, stages, wires)
    short, notes = direct_edges(graph, stages, wires, max_edges=0)
    pairs = {(edge.source, edge.target) for edge in full}
    assert {(edge.source, edge.target) for edge in short} <= pairs
    assert {edge.target for edge in short} == {edge.target for edge in full}
    assert bool(notes) == bool(full)
