"""Two models over one layout: a topology that holds the stages of both, and what happened to each.

Everything of the newer model is drawn as it is. What only the older one had stands where it stood: removed stages
between their neighbours, removed connections beside those that are left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from neural_flow.diff import Difference
from neural_flow.records import Edge, Flow, Fold, Join, Stage, StageGroup, Topology

Change = Literal["added", "removed", "changed"]
End = tuple[Literal["stage", "join"], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """Both models as one topology. ``changes`` are by stage id, ``edge_changes`` by (source id, target id)."""

    topology: Topology
    changes: tuple[tuple[int, Change], ...]
    edge_changes: tuple[tuple[int, int, Change], ...]


def overlay_topologies(before: Topology, after: Topology, difference: Difference) -> Overlay:
    """Return both topologies as one that can be drawn; ``difference`` is what ``diff_topologies`` said of them."""
    order = _order(before, after, difference)
    old_ids = {stage.stage_id: place for place, (which, stage) in enumerate(order) if which == "removed"}
    new_ids = {stage.stage_id: place for place, (which, stage) in enumerate(order) if which == "kept"}
    old_ids |= {first: new_ids[second] for first, second in difference.matches}
    changes = _changes(difference, old_ids, new_ids)
    removed = [edge for edge in _removed_edges(before, difference) if old_ids[edge.source] < old_ids[edge.target]]
    lost = [
        dataclasses.replace(
            edge, source=old_ids[edge.source], target=old_ids[edge.target], via=(), joins=(), is_removed=True
        )
        for edge in removed
    ]
    edge_changes: list[tuple[int, int, Change]] = []
    for edge in lost:
        edge_changes.append((edge.source, edge.target, "removed"))
    for source, target in _added_ends(after, difference, new_ids):
        edge_changes.append((source, target, "added"))
    edges = (*(_moved_edge(edge, new_ids) for edge in after.edges), *lost)
    flows = tuple(_moved_flow(flow, new_ids) for flow in after.flows)
    topology = dataclasses.replace(
        after,
        stages=tuple(dataclasses.replace(stage, stage_id=place) for place, (_, stage) in enumerate(order)),
        edges=edges,
        joins=tuple(_moved_join(join, new_ids) for join in after.joins),
        flows=(*flows, *map(_flow_of, lost)) if flows else (),
        folds=_folds(after.folds, new_ids, dict(changes)),
        groups=tuple(_group(group, new_ids, order) for group in after.groups),
        residual_stage_ids=tuple(new_ids[stage] for stage in after.residual_stage_ids),
        failure=None,
    )
    return Overlay(topology=topology, changes=changes, edge_changes=tuple(edge_changes))


def _order(before: Topology, after: Topology, difference: Difference) -> list[tuple[Literal["kept", "removed"], Stage]]:
    """Return the stages of ``after``, each removed one after the stage that it stood behind."""
    place_of = dict(difference.matches)
    removed = {stage.stage_id for stage in difference.removed}
    keyed: list[tuple[tuple[int, int, int], Literal["kept", "removed"], Stage]] = []
    for place, stage in enumerate(after.stages):
        keyed.append(((place, 0, 0), "kept", stage))
    last = -1
    for place, stage in enumerate(before.stages):
        if stage.stage_id in removed:
            keyed.append(((last, 1, place), "removed", stage))
        else:
            last = max(last, place_of[stage.stage_id])
    return [(which, stage) for _, which, stage in sorted(keyed, key=lambda item: item[0])]


def _changes(
    difference: Difference, old_ids: Mapping[int, int], new_ids: Mapping[int, int]
) -> tuple[tuple[int, Change], ...]:
    found: dict[int, Change] = {new_ids[stage.stage_id]: "added" for stage in difference.added}
    found |= {old_ids[stage.stage_id]: "removed" for stage in difference.removed}
    found |= {new_ids[change.after.stage_id]: "changed" for change in difference.changed}
    return tuple(sorted(found.items()))


def _removed_edges(before: Topology, difference: Difference) -> list[Edge]:
    removed = {stage.stage_id for stage in difference.removed}
    gone = {id(change.before) for change in difference.wiring if change.what == "gone"}
    return [edge for edge in before.edges if edge.source in removed or edge.target in removed or id(edge) in gone]


def _added_ends(after: Topology, difference: Difference, new_ids: Mapping[int, int]) -> list[tuple[int, int]]:
    added = {stage.stage_id for stage in difference.added}
    new = {id(change.after) for change in difference.wiring if change.what == "new"}
    return [
        (new_ids[edge.source], new_ids[edge.target])
        for edge in after.edges
        if edge.source in added or edge.target in added or id(edge) in new
    ]


def _folds(folds: tuple[Fold, ...], ids: Mapping[int, int], changes: Mapping[int, Change]) -> tuple[Fold, ...]:
    """Return the folds whose members all changed alike: a repeat that differs from the others must be seen."""
    kept: dict[int, Fold] = {}
    for fold in folds:
        members = tuple(tuple(ids[stage] for stage in member) for member in fold.members)
        if len({tuple(changes.get(stage) for stage in member) for member in members}) == 1:
            kept[fold.fold_id] = dataclasses.replace(fold, members=members)
    return tuple(
        dataclasses.replace(fold, parent_id=fold.parent_id if fold.parent_id in kept else None)
        for fold in kept.values()
    )


def _group(
    group: StageGroup, ids: Mapping[int, int], order: list[tuple[Literal["kept", "removed"], Stage]]
) -> StageGroup:
    inside = {ids[stage] for stage in group.stage_ids}
    inside |= {
        place
        for place, (which, stage) in enumerate(order)
        if which == "removed" and stage.path.startswith(f"{group.module}.")
    }
    return dataclasses.replace(group, stage_ids=tuple(sorted(inside)))


def _moved_edge(edge: Edge, ids: Mapping[int, int]) -> Edge:
    return dataclasses.replace(edge, source=ids[edge.source], target=ids[edge.target])


def _moved_end(end: End, ids: Mapping[int, int]) -> End:
    return ("stage", ids[end[1]]) if end[0] == "stage" else end


def _moved_join(join: Join, ids: Mapping[int, int]) -> Join:
    return dataclasses.replace(join, sources=tuple(_moved_end(end, ids) for end in join.sources))


def _moved_flow(flow: Flow, ids: Mapping[int, int]) -> Flow:
    return dataclasses.replace(flow, source=_moved_end(flow.source, ids), target=_moved_end(flow.target, ids))


def _flow_of(edge: Edge) -> Flow:
    return Flow(
        source=("stage", edge.source),
        target=("stage", edge.target),
        kind=edge.kind,
        inferred=edge.inferred,
        opaque=edge.opaque,
        plumbing=edge.plumbing,
        is_removed=edge.is_removed,
        tensors=edge.tensors,
        arrived=edge.tensors,
        through=edge.through,
        marks=edge.marks,
    )
