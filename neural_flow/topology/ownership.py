"""Which stage ran an op: the nearest selected call above it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neural_flow.records import EdgeMark, Leaf, ModuleCall, Selection, Stage, ValueRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """By call id: the stage that owns its ops, and the mark that they belong to; None for glue.

    ``ops`` are op stages by op id; they win over calls.
    """

    calls: tuple[int | None, ...]
    marks: tuple[EdgeMark | None, ...]
    ops: dict[int, int]

    def owner(self, op_id: int, call_id: int | None) -> int | None:
        """Return the stage of an op."""
        if op_id in self.ops:
            return self.ops[op_id]
        return None if call_id is None else self.calls[call_id]

    def mark(self, call_id: int | None) -> EdgeMark | None:
        """Return the mark of an op."""
        return None if call_id is None else self.marks[call_id]


def find_ownership(calls: Sequence[ModuleCall], selection: Selection) -> Ownership:
    """Return who owns what; calls joined to a card belong to it."""
    selected: dict[int, int] = {}
    for stage in selection.stages:
        if stage.kind == "module" and stage.call_id is not None:
            for call_id in (stage.call_id, *stage.joined):
                selected[call_id] = stage.stage_id
    marked = {mark.call_id: mark for mark in selection.marks}
    owners: list[int | None] = []
    marks: list[EdgeMark | None] = []
    for call in calls:  # parents come before their children
        above = call.parent_id
        owners.append(selected.get(call.call_id, None if above is None else owners[above]))
        marks.append(marked.get(call.call_id, None if above is None else marks[above]))
    ops = {stage.op_id: stage.stage_id for stage in selection.stages if stage.kind == "op" and stage.op_id is not None}
    return Ownership(calls=tuple(owners), marks=tuple(marks), ops=ops)


def last_call_id(stage: Stage) -> int | None:
    """Return the call whose output a card shows."""
    return stage.joined[-1] if stage.joined else stage.call_id


def flat_refs(leaves: Sequence[Leaf] | Sequence[tuple[ValueRef, ...]]) -> tuple[ValueRef, ...]:
    """Return all values of some leaves, each once, in order."""
    found: dict[ValueRef, None] = {}
    for leaf in leaves:
        found.update(dict.fromkeys(leaf.refs if isinstance(leaf, Leaf) else leaf))
    return tuple(found)
