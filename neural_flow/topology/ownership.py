"""Which stage ran an op: the nearest selected call above it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from neural_flow.records import EdgeMark, Leaf, ModuleCall, Selection, Stage, Trace, ValueRef
from neural_flow.topology.op_names import op_name


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
        for call_id in own_call_ids(stage):
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


def own_call_ids(stage: Stage) -> tuple[int, ...]:
    """Return the calls drawn in a card, in order; the card shows the output of the last one."""
    if stage.kind == "module" and stage.call_id is not None:
        return (stage.call_id, *stage.joined)
    return stage.joined


def flat_refs(leaves: Sequence[Leaf] | Sequence[tuple[ValueRef, ...]]) -> tuple[ValueRef, ...]:
    """Return all values of some leaves, each once, in order."""
    found: dict[ValueRef, None] = {}
    for leaf in leaves:
        found.update(dict.fromkeys(leaf.refs if isinstance(leaf, Leaf) else leaf))
    return tuple(found)


class CallPlan:
    """Who owns what, for sources that trace on their own: calls by (path, call index), ops by their place in a call.

    ``paths`` are modules drawn as one thing, ``above`` the modules that hold such, or an op that is a stage.
    """

    def __init__(self, trace: Trace, selection: Selection) -> None:
        ownership = find_ownership(trace.calls, selection)
        self._ownership = ownership
        self.call_ids = {(call.path, call.call_index): call.call_id for call in trace.calls}
        tops = {call_id for stage in selection.stages for call_id in own_call_ids(stage)}
        tops |= {mark.call_id for mark in selection.marks}
        self.paths = {trace.calls[call_id].path for call_id in tops}
        self._op_keys = _op_keys(trace, ownership)
        self.above = {path for path, *_ in self._op_keys.values()}
        for path in [*self.paths, *self.above]:
            while path:
                path = path.rpartition(".")[0]
                self.above.add(path)
        self._stage_of_op = {key: ownership.ops[op_id] for op_id, key in self._op_keys.items()}
        self._waiting = {stage.stage_id: stage.name for stage in selection.stages if stage.kind in ("module", "op")}

    def owner_of(self, path: str, call_index: int) -> int | None:
        """Return the stage of a call and note that it was found."""
        call_id = self.call_ids.get((path, call_index))
        owner = None if call_id is None else self._ownership.calls[call_id]
        if owner is not None:
            self._waiting.pop(owner, None)
        return owner

    def mark_of(self, path: str, call_index: int) -> EdgeMark | None:
        """Return the mark that a call belongs to."""
        call_id = self.call_ids.get((path, call_index))
        return None if call_id is None else self._ownership.marks[call_id]

    def op_owner_of(self, path: str, call_index: int, name: str, place: int) -> int | None:
        """Return the stage of the op that is the ``place``-th of its name in this call, and note that it was found."""
        owner = self._stage_of_op.get((path, call_index, name, place))
        if owner is None:
            return self.owner_of(path, call_index)
        self._waiting.pop(owner, None)
        return owner

    def missing(self) -> tuple[str, ...]:
        """Return the names of the stages that were not found."""
        return tuple(self._waiting.values())


OpKey = tuple[str, int, str, int]


def _op_keys(trace: Trace, ownership: Ownership) -> dict[int, OpKey]:
    """Return, by op id, where each op stage stands in its call."""
    if not ownership.ops:
        return {}
    seen: Counter[tuple[str, int, str]] = Counter()
    keys: dict[int, OpKey] = {}
    for op in trace.ops:
        if op.role not in ("op", "opaque"):
            continue
        call = trace.calls[op.call_id or 0]
        name = op_name(op.target)
        if op.op_id in ownership.ops:
            keys[op.op_id] = (call.path, call.call_index, name, seen[call.path, call.call_index, name])
        seen[call.path, call.call_index, name] += 1
    return keys
