"""What changed between two topologies: stages added, removed and changed, and wiring that came or went.

Stages are aligned in execution order by what they are and where they stand, not only by name: a layer inserted into
a Sequential renumbers its followers, which are the same layers all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import networkx as nx

from neural_flow.records import Edge, Stage, TensorMeta, Topology

_MAX_CELLS = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StageChange:
    """One stage that is in both models and not the same; ``fields`` are (what, before, after)."""

    before: Stage
    after: Stage
    fields: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WiringChange:
    """An edge between two stages of both models that came, went, or joins by another op."""

    what: str
    before: Edge | None
    after: Edge | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Everything that differs. ``matches`` are (stage id before, stage id after), in order."""

    added: tuple[Stage, ...] = ()
    removed: tuple[Stage, ...] = ()
    changed: tuple[StageChange, ...] = ()
    wiring: tuple[WiringChange, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    """Names before and after of stages that are otherwise the same."""
    matches: tuple[tuple[int, int], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the two architectures are the same, whatever their modules are called."""
        return not (self.added or self.removed or self.changed or self.wiring)


def diff_topologies(before: Topology, after: Topology) -> Difference:
    """Compare two topologies that were selected in the same way."""
    matches = tuple(_align(before.stages, after.stages))
    old = dict(matches)
    new = {second: first for first, second in matches}
    changes = (
        StageChange(before=before.stages[first], after=after.stages[second], fields=fields)
        for first, second in matches
        if (fields := tuple(_changed_fields(before.stages[first], after.stages[second])))
    )
    return Difference(
        added=tuple(stage for stage in after.stages if stage.stage_id not in new),
        removed=tuple(stage for stage in before.stages if stage.stage_id not in old),
        changed=tuple(changes),
        wiring=tuple(_wiring(before, after, old, new)),
        renamed=tuple(
            (before.stages[first].name, after.stages[second].name)
            for first, second in matches
            if before.stages[first].name != after.stages[second].name
        ),
        matches=matches,
    )


def difference_lines(difference: Difference) -> list[str]:
    """Return the difference as lines of text, ``-`` for removed, ``+`` for added, ``~`` for changed."""
    lines = [f"- {_described(stage)}" for stage in difference.removed]
    lines += [f"+ {_described(stage)}" for stage in difference.added]
    for change in difference.changed:
        name = change.before.name if change.before.name == change.after.name else (
            f"{change.before.name} (now {change.after.name})"
        )  # fmt: skip
        details = "; ".join(f"{what} {old} → {new}" for what, old, new in change.fields)
        lines.append(f"~ {name}: {details}")
    return lines + [f"~ {change.text}" for change in difference.wiring]


def renamed_lines(difference: Difference) -> list[str]:
    """Return a line for each stage that has only got another name."""
    return [f"~ {before} is now {after}" for before, after in difference.renamed]


def difference_to_json(difference: Difference) -> dict[str, Any]:
    """Return the difference as plain data."""
    return {
        "schema": "neural-flow.diff/1",
        "is_empty": difference.is_empty,
        "added": [{"name": stage.name, "class_name": stage.class_name} for stage in difference.added],
        "removed": [{"name": stage.name, "class_name": stage.class_name} for stage in difference.removed],
        "changed": [
            {
                "name": change.before.name,
                "new_name": change.after.name,
                "fields": [{"field": what, "before": old, "after": new} for what, old, new in change.fields],
            }
            for change in difference.changed
        ],
        "renamed": [{"name": before, "new_name": after} for before, after in difference.renamed],
        "wiring": [{"change": change.what, "text": change.text} for change in difference.wiring],
    }


def _align(before: tuple[Stage, ...], after: tuple[Stage, ...]) -> Iterator[tuple[int, int]]:
    """Yield matched ids in order: equal ends first, then the best alignment of what lies between."""
    head = 0
    while head < min(len(before), len(after)) and _identity(before[head]) == _identity(after[head]):
        yield before[head].stage_id, after[head].stage_id
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and _identity(before[-1 - tail]) == _identity(after[-1 - tail]):
        tail += 1
    yield from _best_alignment(before[head : len(before) - tail], after[head : len(after) - tail])
    for index in range(tail, 0, -1):
        yield before[-index].stage_id, after[-index].stage_id


def _best_alignment(before: tuple[Stage, ...], after: tuple[Stage, ...]) -> list[tuple[int, int]]:
    if len(before) * len(after) > _MAX_CELLS:
        return _alike_by_name(before, after)
    rows, columns = len(before), len(after)
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    for row in range(rows - 1, -1, -1):
        for column in range(columns - 1, -1, -1):
            score = _likeness(before[row], after[column])
            paired = score + best[row + 1][column + 1] if score else 0
            best[row][column] = max(paired, best[row + 1][column], best[row][column + 1])
    pairs: list[tuple[int, int]] = []
    row = column = 0
    while row < rows and column < columns:
        score = _likeness(before[row], after[column])
        if score and best[row][column] == score + best[row + 1][column + 1]:
            pairs.append((before[row].stage_id, after[column].stage_id))
            row, column = row + 1, column + 1
        elif best[row][column] == best[row + 1][column]:
            row += 1
        else:
            column += 1
    return pairs


def _alike_by_name(before: tuple[Stage, ...], after: tuple[Stage, ...]) -> list[tuple[int, int]]:
    """Match by name alone, in order: what two very large models have in common."""
    by_name = {stage.name: stage for stage in after}
    pairs: list[tuple[int, int]] = []
    last = -1
    for stage in before:
        other = by_name.get(stage.name)
        if other is not None and other.kind == stage.kind and other.stage_id > last:
            last = other.stage_id
            pairs.append((stage.stage_id, last))
    return pairs


def _likeness(before: Stage, after: Stage) -> int:
    """Return how alike two stages are; 0 means that they are not the same thing."""
    if before.kind in ("input", "output") and before.kind == after.kind and before.index == after.index:
        return 3 + 2 * (before.name == after.name) + 2 * (_shapes(before.outputs) == _shapes(after.outputs))
    has_same_class = before.class_name == after.class_name and before.class_name != ""
    has_same_name = before.name == after.name
    if before.kind != after.kind or not (has_same_class or has_same_name):
        return 0
    return (
        3 * has_same_class
        + 2 * has_same_name
        + 2 * (before.num_params == after.num_params)
        + 2 * (_shapes(before.outputs) == _shapes(after.outputs))
        + (_shapes(before.inputs) == _shapes(after.inputs))
    )


def _identity(stage: Stage) -> tuple[Any, ...]:
    outputs, inputs = _shapes(stage.outputs), _shapes(stage.inputs)
    return stage.kind, stage.name, stage.class_name, stage.num_params, outputs, inputs


def _changed_fields(before: Stage, after: Stage) -> Iterator[tuple[str, str, str]]:
    if before.class_name != after.class_name:
        yield "type", before.class_name, after.class_name
    if before.num_params != after.num_params:
        yield "parameters", f"{before.num_params:,}", f"{after.num_params:,}"
    for what, old, new in (("inputs", before.inputs, after.inputs), ("outputs", before.outputs, after.outputs)):
        if _shapes(old) != _shapes(new):
            yield what, _shapes(old), _shapes(new)
    knows_both = all(len(stage.joined_classes) == len(stage.joined_names) for stage in (before, after))
    if knows_both and before.kind == "module" and before.joined_classes != after.joined_classes:
        yield "with", "+".join(before.joined_classes) or "nothing", "+".join(after.joined_classes) or "nothing"


def _shapes(metas: Iterable[TensorMeta]) -> str:
    return ", ".join(f"{meta.dtype} {list(meta.shape)}" for meta in metas)


def _described(stage: Stage) -> str:
    kind = stage.class_name or stage.kind
    return f"{stage.name} ({kind}, {stage.num_params:,} parameters)" if stage.num_params else f"{stage.name} ({kind})"


def _wiring(before: Topology, after: Topology, old: dict[int, int], new: dict[int, int]) -> Iterator[WiringChange]:
    """Yield edges that came or went between matched stages, but for those that follow from a stage's own coming."""
    was = {(edge.source, edge.target): edge for edge in before.edges}
    now = {(edge.source, edge.target): edge for edge in after.edges}
    bridged_before = _bridges(before, set(old))
    bridged_after = _bridges(after, set(new))
    for (source, target), edge in was.items():
        if source not in old or target not in old:
            continue
        other = now.get((old[source], old[target]))
        name = f"{edge.kind} {before.stages[source].name} → {before.stages[target].name}"
        if other is None and (old[source], old[target]) not in bridged_after:
            yield WiringChange(what="gone", before=edge, after=None, text=f"{name} is gone")
        elif other is not None and other.via != edge.via:
            ops = f"{'+'.join(edge.via) or 'nothing'} → {'+'.join(other.via) or 'nothing'}"
            yield WiringChange(what="via", before=edge, after=other, text=f"{name} joins by {ops}")
    for (source, target), edge in now.items():
        if source not in new or target not in new or (new[source], new[target]) in was:
            continue
        if (new[source], new[target]) not in bridged_before:
            name = f"{edge.kind} {after.stages[source].name} → {after.stages[target].name}"
            yield WiringChange(what="new", before=None, after=edge, text=f"{name} is new")


def _bridges(topology: Topology, kept: set[int]) -> set[tuple[int, int]]:
    """Return pairs of kept stages that a path through stages which are not kept connects."""
    graph: nx.DiGraph[int] = nx.DiGraph((edge.source, edge.target) for edge in topology.edges)
    found: set[tuple[int, int]] = set()
    for stage in topology.stages:
        if stage.stage_id in kept and stage.stage_id in graph:
            waiting = [node for node in graph.successors(stage.stage_id) if node not in kept]
            seen = set(waiting)
            while waiting:
                for node in graph.successors(waiting.pop()):
                    if node in kept:
                        found.add((stage.stage_id, node))
                    elif node not in seen:
                        seen.add(node)
                        waiting.append(node)
    return found
