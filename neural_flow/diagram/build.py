"""From a topology to a diagram, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neural_flow.diagram._arrows import draw_arrows, order_items
from neural_flow.diagram._folds import apply_folds
from neural_flow.diagram._frames import find_frames
from neural_flow.diagram._rings import drop_idle_joins, hide_plumbing, merge_rings, symbol_of
from neural_flow.diagram._sketch import Item, Key, Sketch, Time
from neural_flow.diagram._stored import stored_lines, with_arrivals
from neural_flow.drawing import Diagram, DiagramNode
from neural_flow.records import Join, Topology


def build_diagram(topology: Topology) -> Diagram:
    """Return what a figure of ``topology`` shows: cards and rings in execution order, arrows, frames.

    Every arrow but a return arrow leads from a lower to a higher node. Below ``--detail op`` plumbing is left out, and
    so are inputs that feed nothing else.
    """
    is_full = topology.request.detail == "op"
    sketch = _sketch(topology)
    if not is_full:
        hide_plumbing(sketch)
    drop_idle_joins(sketch)
    apply_folds(sketch, topology.folds)
    drop_idle_joins(sketch)
    merge_rings(sketch)
    if not is_full:
        _drop_idle_inputs(sketch)
    order = order_items(sketch)
    places = {key: place for place, key in enumerate(order)}
    return Diagram(
        nodes=_nodes(sketch, order, topology),
        arrows=draw_arrows(sketch, order),
        frames=find_frames(sketch, places, topology.groups),
    )


def _sketch(topology: Topology) -> Sketch:
    sketch = Sketch()
    joins, flows = (topology.joins, with_arrivals(topology)) if topology.flows else stored_lines(topology)
    residuals = frozenset(topology.residual_stage_ids)
    times: dict[Key, Time] = {}
    for place, stage in enumerate(topology.stages):
        key: Key = ("stage", stage.stage_id)
        times[key] = (place, -1)
        sketch.add_item(
            Item(
                key,
                times[key],
                times[key],
                path=stage.path,
                stage=stage,
                stage_ids=[stage.stage_id],
                label=stage.label,
                has_residual=stage.stage_id in residuals,
            )
        )
    for join in sorted(joins, key=lambda join: join.join_id):
        key = ("join", join.join_id)
        times[key] = _join_time(join, times)
        sketch.add_item(
            Item(key, times[key], times[key], path=join.path, symbol=symbol_of(join.target), join_ids=[key[1]])
        )
    for flow in flows:
        sketch.link(flow.source, flow.target, flow)
    return sketch


def _join_time(join: Join, times: Mapping[Key, Time]) -> Time:
    newest = max((times[source][0] for source in join.sources if source in times), default=0)
    return newest, join.join_id


def _drop_idle_inputs(sketch: Sketch) -> None:
    for key in sketch.keys_by_time("stage"):
        stage = sketch.items[key].stage
        if stage is not None and stage.kind == "input" and not sketch.out[key]:
            sketch.remove(key)


def _nodes(sketch: Sketch, order: Sequence[Key], topology: Topology) -> tuple[DiagramNode, ...]:
    paths: dict[str, int] = {}
    for item in sketch.items.values():
        if item.stage is not None and item.stage.kind == "module":
            paths[item.path] = paths.get(item.path, 0) + 1
    nodes: list[DiagramNode] = []
    for place, key in enumerate(order):
        item = sketch.items[key]
        if item.stage is None:
            joins = tuple(sorted(item.join_ids))
            nodes.append(DiagramNode(node_id=place, role="ring", join_ids=joins, symbol=item.symbol, order=place))
            continue
        nodes.append(
            DiagramNode(
                node_id=place,
                role="card",
                stage_id=item.stage.stage_id,
                stage_ids=tuple(sorted(item.stage_ids)),
                join_ids=tuple(sorted(item.join_ids)),
                label=item.label,
                count=item.count,
                fold_kind=item.fold_kind,
                is_dense=item.is_dense,
                has_residual=item.has_residual,
                is_shared=item.stage.kind == "module" and paths[item.path] > 1,
                is_thin=_is_thin(sketch, key),
                order=place,
            )
        )
    return tuple(nodes)


def _is_thin(sketch: Sketch, key: Key) -> bool:
    """Return whether a model output only repeats what an earlier card shows on its way to other cards."""
    stage = sketch.items[key].stage
    if stage is None or stage.kind != "output" or len(sketch.into[key]) != 1:
        return False
    source, flow = next(iter(sketch.into[key].items()))
    feeds_others = any(not _is_output(sketch, target) for target in sketch.out[source])
    return source[0] == "stage" and feeds_others and not flow.marks and flow.tensors == flow.arrived


def _is_output(sketch: Sketch, key: Key) -> bool:
    stage = sketch.items[key].stage
    return stage is not None and stage.kind == "output"
