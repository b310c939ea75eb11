"""From stages to a topology: ask the sources in order, walk the answer, classify, and tell what is missing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from neural_flow.errors import TopologyFallbackWarning, TopologyUnavailable
from neural_flow.records import Edge, Flow, Join, ModelInfo, Request, Selection, Stage, Topology, Trace, ValueRef
from neural_flow.topology._base import TOPOLOGY_SOURCES, FlowGraph, Isolate, Node, TopologyQuery, fallback_chain
from neural_flow.topology.attach import inferred_edges
from neural_flow.topology.classify import classify_edges, classify_flows
from neural_flow.topology.edges import direct_edges, joins_and_flows
from neural_flow.topology.residuals import residual_stages
from neural_flow.topology.walk import contract


def resolve_topology(
    trace: Trace,
    selection: Selection,
    request: Request | None = None,
    model: Any = None,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    isolate: Isolate | None = None,
) -> Topology:
    """Return the topology of the selected stages, from the first source of ``request.topology`` that can answer.

    A source that cannot answer costs a ``TopologyFallbackWarning`` and an entry in the notes.

    Args:
        trace: what the metadata pass saw.
        selection: the stages; settled before any source runs.
        request: what the user asked.
        model: only for ``fx`` and ``export``, which trace the module themselves; never run on real data, not changed.
        args: positional arguments of forward, for these two.
        kwargs: keyword arguments, for these two.
        isolate: makes the context in which these two run the model; without it only attributes are put back.

    Raises:
        UnknownNameError: no such topology source.
    """
    request = request or Request()
    query = TopologyQuery(
        trace=trace,
        selection=selection,
        model=model,
        args=args,
        kwargs=kwargs or {},
        request=request,
        isolate=isolate,
    )
    source, graph, notes = _ask(query)
    stages = selection.stages
    wires = contract(graph, stages)
    edges, more_notes = direct_edges(graph, stages, wires)
    joins, flows = joins_and_flows(graph, stages, wires)
    edges, flows = _double_twins(trace, stages, edges, flows)
    added = inferred_edges(stages, edges, wires.unknown_stages)
    flows += [
        Flow(source=("stage", edge.source), target=("stage", edge.target), inferred=True, tensors=edge.tensors)
        for edge in added
    ]
    return Topology(
        model=model_info(trace, stages),
        stages=stages,
        edges=classify_edges([*edges, *added], stages),
        joins=tuple(joins),
        flows=classify_flows(flows, _call_order(stages, joins)),
        folds=selection.folds,
        groups=selection.groups,
        source=source,
        num_candidates=selection.num_candidates,
        not_run=modules_not_run(trace),
        residual_stage_ids=residual_stages(graph, stages),
        notes=(*trace.notes, *selection.notes, *notes, *graph.notes, *more_notes),
        request=request,
        failure=trace.failure,
    )


def _ask(query: TopologyQuery) -> tuple[str, FlowGraph, list[str]]:
    """Return the first answer of the chain, who gave it, and why others did not."""
    notes: list[str] = []
    for name in fallback_chain(query.request.topology):
        try:
            return name, TOPOLOGY_SOURCES.get(name)(query), notes
        except TopologyUnavailable as reason:
            notes.append(f"topology {name}: {reason}")
            # the metadata pass has already warned that its tracer failed
            if name != "dataflow" or query.request.topology == "dataflow":
                warnings.warn(str(reason), TopologyFallbackWarning, stacklevel=3)
    raise AssertionError("execution order always answers")


def _double_twins(
    trace: Trace, stages: Sequence[Stage], edges: list[Edge], flows: list[Flow]
) -> tuple[list[Edge], list[Flow]]:
    """Give a tensor that was passed twice the same edges under both of its names."""
    first: dict[tuple[ValueRef, ...], int] = {}
    twins: dict[int, list[int]] = {}
    for stage in stages:
        if stage.kind == "input" and stage.index < len(trace.inputs) and trace.inputs[stage.index].refs:
            owner = first.setdefault(trace.inputs[stage.index].refs, stage.stage_id)
            if owner != stage.stage_id:
                twins.setdefault(owner, []).append(stage.stage_id)
    if not twins:
        return edges, flows
    edges = edges + [replace(edge, source=twin) for edge in edges for twin in twins.get(edge.source, ())]
    flows = flows + [
        replace(flow, source=("stage", twin))
        for flow in flows
        if flow.source[0] == "stage"
        for twin in twins.get(flow.source[1], ())
    ]
    return edges, flows


def _call_order(stages: Sequence[Stage], joins: Sequence[Join]) -> list[Node]:
    """Return stages and joins in call order; a join comes right after the last stage that it reads."""
    places = {stage.stage_id: place for place, stage in enumerate(stages)}
    keys: dict[Node, tuple[int, int]] = {("stage", stage_id): (place, -1) for stage_id, place in places.items()}
    for join in joins:
        keys["join", join.join_id] = (max(keys[source][0] for source in join.sources), join.join_id)
    return sorted(keys, key=keys.__getitem__)


def model_info(trace: Trace, stages: Sequence[Stage]) -> ModelInfo:
    """Return the totals of the model; loose is what no stage counts, so that stages and loose ones add up."""
    root = next((module for module in trace.modules if module.path == ""), None)
    num_params = root.num_params if root else sum(param.numel for param in trace.params)
    trainable = sum(param.numel for param in trace.params if param.requires_grad)
    return ModelInfo(
        name=trace.model_name,
        class_name=trace.class_name,
        num_params=num_params,
        num_trainable_params=root.num_trainable_params if root else trainable,
        num_loose_params=num_params - sum(stage.num_params - stage.num_shared_params for stage in stages),
        param_nbytes=root.param_nbytes if root else sum(param.nbytes for param in trace.params),
    )


def modules_not_run(trace: Trace) -> tuple[str, ...]:
    """Return the outermost modules with parameters that never ran, while the module above them did.

    A module whose parameters were read by others (a projection inside fused attention) did its part. Where forward
    raised, what comes later is not missing but unknown.
    """
    if trace.failure is not None:
        return ()
    called = {call.path for call in trace.calls}
    read = {param for op in trace.ops for param in op.params}
    alive = {""}
    for path in called:
        while path and path not in alive:
            alive.add(path)
            path = path.rpartition(".")[0]
    missing: list[str] = []
    for module in trace.modules:
        parent = module.path.rpartition(".")[0]
        if module.path in alive or parent not in alive or not module.num_params:
            continue
        # without ops nobody knows what fused code of torch read
        is_used = not read.isdisjoint(module.param_ids) if trace.has_dataflow else _is_torch_part(parent, trace)
        if not is_used:
            missing.append(module.path)
    return tuple(missing)


def _is_torch_part(path: str, trace: Trace) -> bool:
    owner = next((module for module in trace.modules if module.path == path), None)
    return (
        owner is not None and owner.qualified_name.startswith("torch.nn.") and "container" not in owner.qualified_name
    )
