"""The one walk from stages back through the ops between them, shared by every topology source.

First all glue is contracted into *lines*: from a stage or a join to the next stage or join. A join is an op outside
every stage where values of two or more origins meet. The contracted graph has as many lines as the glue has reads, so
a residual stream costs one line a layer. ``edges.py`` then reads direct edges off it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from neural_flow.records import EdgeMark, Stage, TensorMeta, ValueRef
from neural_flow.topology._base import FlowGraph, FlowOp, Node
from neural_flow.topology.op_names import keeps_ids, op_name
from neural_flow.topology.signals import (
    is_floating_value,
    is_integer,
    is_signal,
    looked_up_values,
    made_of_signal,
    signal_values,
    weighted_ops,
)

T = TypeVar("T")

Steps = tuple[tuple[int, str], ...]


@dataclass(slots=True, eq=False)
class Line:
    """What flows from one origin to one reader through glue that belongs to no stage.

    ``refs`` are the values as the origin produced them, ``arrived`` as the reader gets them. ``is_plain`` says that
    ids stay ids on the way.
    """

    refs: tuple[ValueRef, ...]
    through: Steps = ()
    marks: tuple[EdgeMark, ...] = ()
    is_opaque: bool = False
    is_plain: bool = True
    is_plumbing: bool = False
    arrived: tuple[ValueRef, ...] = ()


Lines = dict[Node, Line]


@dataclass(slots=True, eq=False)
class Wires:
    """Contracted glue: the lines into each join and each stage.

    ``inside`` holds, by stage and origin, the ops of the stage where the origin's value first meets another one.
    """

    ops: Sequence[FlowOp]
    into_join: dict[int, Lines] = field(default_factory=dict[int, Lines])
    into_stage: dict[int, Lines] = field(default_factory=dict[int, Lines])
    inside: dict[int, dict[Node, list[int]]] = field(default_factory=dict[int, dict[Node, list[int]]])
    unknown_stages: set[int] = field(default_factory=set[int])


def contract(graph: FlowGraph, stages: Sequence[Stage]) -> Wires:
    """Contract all glue of ``graph`` into lines between stages and joins."""
    return _Contraction(graph, stages).run()


class _Contraction:
    """One forward pass over the ops; each op is looked at once."""

    def __init__(self, graph: FlowGraph, stages: Sequence[Stage]) -> None:
        self._graph = graph
        self._ops = graph.ops
        self._stages = stages
        self._wires = Wires(graph.ops)
        self._glue: dict[int, Lines] = {}  # by op outside every stage that joins nothing
        self._unknown: set[int] = set()
        weighted = weighted_ops(graph.ops)
        self._signals = signal_values(graph.ops, weighted)
        self._made_of_signal = made_of_signal(graph.ops, self._signals)
        self._looked_up = looked_up_values(graph.ops, weighted, self._signals)

    def run(self) -> Wires:
        owned: dict[int, list[int]] = {stage.stage_id: [] for stage in self._stages}
        for index, op in enumerate(self._ops):
            if op.owner is not None:
                owned[op.owner].append(index)
            else:
                self._add_glue(index, op)
        for stage in self._stages:
            self._add_stage(stage, owned[stage.stage_id])
        self._show_only_uses()
        return self._wires

    def _add_glue(self, index: int, op: FlowOp) -> None:
        if op.role == "unknown" or any(parent in self._unknown for parent, _ in op.parents):
            self._unknown.add(index)
        lines = self._gather(op.parents, None)
        if len(lines) > 1:
            for line in lines.values():
                line.is_opaque = line.is_opaque or op.role == "opaque"
            self._wires.into_join[index] = lines
            return
        for origin, line in lines.items():
            lines[origin] = self._extend(line, index, op)
        self._glue[index] = lines

    def _extend(self, line: Line, index: int, op: FlowOp) -> Line:
        through, marks = line.through, line.marks
        if op.mark is not None:
            marks = marks if op.mark in marks else (*marks, op.mark)
        elif self._changes_shape(op):
            through = (*through, (index, op_name(op.target)))
        return Line(
            line.refs,
            through,
            marks,
            line.is_opaque or op.role == "opaque",
            line.is_plain and (op.role == "alias" or keeps_ids(op.target) or self._chooses(op)),
        )

    def _chooses(self, op: FlowOp) -> bool:
        """Return whether an op makes whole numbers of the signal: the place of the largest, the nearest code."""
        return any(is_integer(meta.dtype) for meta in op.outputs) and any(
            is_signal(self._signals, ref) for ref in op.parents
        )

    def _changes_shape(self, op: FlowOp) -> bool:
        if op.changes_shape is not None or not op.outputs:
            return bool(op.changes_shape)
        shapes = [meta.shape for ref in op.parents if (meta := value_meta(self._ops, ref)) is not None]
        return bool(shapes) and op.outputs[0].shape not in shapes

    def _gather(self, refs: Iterable[ValueRef], owner: int | None) -> Lines:
        """Return the lines that end in ``refs``, one an origin; what ``owner`` itself produced is none."""
        found: Lines = {}
        unread = self._graph.unread.get(owner, ()) if owner is not None else ()
        for ref in refs:
            has_signal = is_signal(self._signals, ref) and ref not in unread
            for origin, line in self._lines_of(ref).items():
                if origin == ("stage", owner):
                    continue
                is_shown = (owner, ref) in self._looked_up and (line.is_plain or is_floating_value(self._ops, ref))
                is_plumbing = not has_signal and not is_shown
                known = found.get(origin)
                found[origin] = _merge(known, line, ref, is_plumbing)
        return found

    def _lines_of(self, ref: ValueRef) -> Lines:
        index = ref[0]
        owner = self._ops[index].owner
        if owner is not None:
            return {("stage", owner): Line((ref,))}
        if index in self._wires.into_join:
            return {("join", index): Line((ref,))}
        return self._glue[index]

    def _add_stage(self, stage: Stage, op_ids: list[int]) -> None:
        stage_id = stage.stage_id
        refs = dict.fromkeys(self._graph.reads.get(stage_id, ()))
        for index in op_ids:
            refs.update(dict.fromkeys(ref for ref in self._ops[index].parents if self._ops[ref[0]].owner != stage_id))
        if any(index in self._unknown for index, _ in refs):
            self._wires.unknown_stages.add(stage_id)
        lines = self._gather(refs, stage_id)
        if stage.kind in ("output", "probe"):
            # what a model hands out is shown, ids too, if it was made from signal
            for line in lines.values():
                line.is_plumbing = line.is_plumbing and not any(self._made_of_signal[index] for index, _ in line.refs)
        self._wires.into_stage[stage_id] = lines
        if len(lines) > 1:
            self._wires.inside[stage_id] = self._meetings(stage_id, op_ids, list(lines))

    def _show_only_uses(self) -> None:
        """Show what a value is for where all that others read of it are choices: scores that only pick what goes on."""
        leaving: dict[Node, list[tuple[int | None, Line]]] = {}
        for join, lines in self._wires.into_join.items():
            for origin, line in lines.items():
                leaving.setdefault(origin, []).append((join, line))
        for lines in self._wires.into_stage.values():
            for origin, line in lines.items():
                leaving.setdefault(origin, []).append((None, line))
        queue: list[Node] = [("stage", s.stage_id) for s in self._stages if s.kind in ("module", "op")]
        for join, lines in self._wires.into_join.items():
            if not all(line.is_plumbing for line in lines.values()):
                queue.append(("join", join))
        while queue:
            found = leaving.get(queue.pop(), [])
            if any(not line.is_plumbing for _, line in found):
                continue
            for join, line in found:
                if any(self._made_of_signal[index] for index, _ in line.arrived):
                    line.is_plumbing = False
                    if join is not None:
                        queue.append(("join", join))

    def _meetings(self, stage_id: int, op_ids: list[int], origins: list[Node]) -> dict[Node, list[int]]:
        """Return, by origin, the ops inside a stage where its value arrives alone and meets another one."""
        bits = {origin: 1 << place for place, origin in enumerate(origins)}
        reached: dict[int, int] = {}
        meetings: dict[Node, list[int]] = {}
        for index in op_ids:
            arriving = [self._reach(ref, stage_id, bits, reached) for ref in self._ops[index].parents]
            union = 0
            for bit in arriving:
                union |= bit
            reached[index] = union
            if union & (union - 1) and not self._ops[index].is_box:
                for bit in dict.fromkeys(arriving):
                    if bit and not bit & (bit - 1):
                        meetings.setdefault(origins[bit.bit_length() - 1], []).append(index)
        return meetings

    def _reach(self, ref: ValueRef, stage_id: int, bits: Mapping[Node, int], reached: Mapping[int, int]) -> int:
        if self._ops[ref[0]].owner == stage_id:
            return reached.get(ref[0], 0)
        reach = 0
        for origin in self._lines_of(ref):
            reach |= bits.get(origin, 0)
        return reach


def _merge(known: Line | None, line: Line, ref: ValueRef, is_plumbing: bool) -> Line:
    if known is None:
        return Line(line.refs, line.through, line.marks, line.is_opaque, line.is_plain, is_plumbing, (ref,))
    known.refs = union(known.refs, line.refs)
    known.through = merge_steps(known.through, line.through)
    known.marks = union(known.marks, line.marks)
    known.is_opaque = known.is_opaque or line.is_opaque
    known.is_plain = known.is_plain and line.is_plain
    known.is_plumbing = known.is_plumbing and is_plumbing
    known.arrived = union(known.arrived, (ref,))
    return known


def union(first: tuple[T, ...], second: tuple[T, ...]) -> tuple[T, ...]:
    """Return what is in either, each once, in order."""
    if not second or first == second:
        return first
    return tuple(dict.fromkeys((*first, *second))) if first else second


def merge_steps(first: Steps, second: Steps) -> Steps:
    """Return the steps of two ways, in execution order."""
    if not second or first == second:
        return first
    return second if not first else tuple(sorted({*first, *second}))


def value_meta(ops: Sequence[FlowOp], ref: ValueRef) -> TensorMeta | None:
    """Return what is known of one value."""
    outputs = ops[ref[0]].outputs
    return outputs[ref[1]] if ref[1] < len(outputs) else None
