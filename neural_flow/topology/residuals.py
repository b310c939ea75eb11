"""Stages that add their own input to their own result: seen from outside they are one card with a small plus."""

from __future__ import annotations

from collections.abc import Sequence

from neural_flow.records import Stage, ValueRef
from neural_flow.topology._base import FlowGraph, FlowOp
from neural_flow.topology.op_names import is_adder, is_heavy
from neural_flow.topology.signals import is_signal, signal_values, weighted_ops

_OWN, _WORKED = 1, 2


def residual_stages(graph: FlowGraph, stages: Sequence[Stage]) -> tuple[int, ...]:
    """Return the ids of stages one of whose outputs is the sum of their input and of what they made of it.

    Inside a stage a value is *own* if it comes from the input through no heavy op, and *worked* if it depends on one.
    Only an addition makes a value that is both; other ops that mix the two (a gate) end the input's own way. What
    comes from outside and is no signal (a mask, noise, rotary tables) is no input that could be handed round.
    """
    signals = signal_values(graph.ops, weighted_ops(graph.ops))
    marks: dict[int, int] = {}
    for index, op in enumerate(graph.ops):
        if op.owner is not None and op.role != "input":
            marks[index] = _mark(op, [_arriving(graph, ref, op.owner, marks, signals) for ref in op.parents])
    return tuple(
        stage.stage_id
        for stage in stages
        if stage.kind == "module"
        and any(
            marks.get(op, 0) == _OWN | _WORKED and graph.ops[op].owner == stage.stage_id
            for refs in graph.leaves.get(stage.stage_id, ())
            for op, _ in refs
        )
    )


def _arriving(
    graph: FlowGraph, ref: ValueRef, owner: int, marks: dict[int, int], signals: Sequence[tuple[bool, ...]]
) -> int:
    if graph.ops[ref[0]].owner == owner:
        return marks.get(ref[0], 0)
    return _OWN if is_signal(signals, ref) else 0


def _mark(op: FlowOp, arriving: Sequence[int]) -> int:
    if is_heavy(op.target) or op.role == "opaque" or op.is_weighted:
        return _WORKED
    union = 0
    for mark in arriving:
        union |= mark
    if union == _OWN | _WORKED and not is_adder(op.target) and len(set(arriving)) > 1:
        return _WORKED
    return union
