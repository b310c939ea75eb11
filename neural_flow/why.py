"""Why an edge is there: the operations that carried a value from one stage to the other, with their places in the code.

Everything is read from the trace: what each op read, which call ran it, and where in the user's code it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import networkx as nx

from neural_flow.records import OpNode, Stage, Topology, Trace, ValueRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operation on the way: what it is, the module that ran it, where it stands, and what it made."""

    target: str
    path: str
    location: str | None
    shape: tuple[int, ...] | None
    is_inside: bool
    """Whether it lies inside the stage that the edge leads to: there the value is first read."""


@dataclass(slots=True)
class _Reach:
    """Which values a stage makes, and which ops are its own."""

    own: frozenset[int]
    refs: frozenset[ValueRef]


def chain_between(trace: Trace, topology: Topology, source: Stage, target: Stage) -> tuple[Step, ...]:
    """Return the ops between two stages in the order in which they ran; empty where no value flows straight between.

    An op is between them if it reads a value of ``source`` itself or through other such ops, runs in no other stage,
    and what it makes reaches ``target``. The last step is the first op inside ``target`` that reads the value, if the
    trace saw it.
    """
    reaches = {stage.stage_id: _reach(trace, topology, stage) for stage in topology.stages}
    taken = {
        op_id
        for stage_id, reach in reaches.items()
        if stage_id not in (source.stage_id, target.stage_id)
        for op_id in reach.own
    }
    start, end = reaches[source.stage_id], reaches[target.stage_id]
    carried = _carried_on(trace, start, taken | end.own)
    readers = _readers(trace, target, end, start, carried)
    needed = _needed(trace, readers, carried)
    steps = [_step(trace, trace.ops[op_id], is_inside=False) for op_id in sorted(needed)]
    inside = [op.op_id for op in readers if op.op_id in end.own]
    if inside and target.kind != "output":
        steps.append(_step(trace, trace.ops[min(inside)], is_inside=True))
    return tuple(steps)


def way_between(topology: Topology, source: Stage, target: Stage) -> tuple[Stage, ...]:
    """Return the stages on the shortest way from ``source`` to ``target``, both included; empty where there is none."""
    graph: nx.DiGraph[int] = nx.DiGraph((edge.source, edge.target) for edge in topology.edges)
    start, end = source.stage_id, target.stage_id
    if start not in graph or end not in graph or not nx.has_path(graph, start, end):
        return ()
    return tuple(topology.stages[stage_id] for stage_id in nx.shortest_path(graph, start, end))


def _reach(trace: Trace, topology: Topology, stage: Stage) -> _Reach:
    if stage.kind == "input":
        refs = trace.inputs[stage.index].refs if stage.index < len(trace.inputs) else ()
        return _Reach(frozenset(ref[0] for ref in refs), frozenset(refs))
    if stage.kind == "op" and stage.op_id is not None:
        return _Reach(frozenset([stage.op_id]), frozenset())
    if stage.kind != "module" or stage.call_id is None:
        return _Reach(frozenset(), frozenset())
    calls = [trace.calls[call_id] for call_id in (stage.call_id, *stage.joined)]
    own = frozenset(op_id for call in calls for op_id in range(call.first_op_id, call.end_op_id))
    return _Reach(own, frozenset(ref for call in calls for refs in call.output_refs for ref in refs if ref[0] in own))


def _carried_on(trace: Trace, start: _Reach, closed: Iterable[int]) -> set[int]:
    """Return the ops that a value of ``start`` reaches without running in any of the ``closed`` ones."""
    shut = set(closed)
    found: set[int] = set()
    for op in trace.ops:
        if op.op_id in shut or op.op_id in start.own:
            continue
        if any(parent[0] in start.own or parent in start.refs or parent[0] in found for parent in op.parents):
            found.add(op.op_id)
    return found


def _readers(trace: Trace, target: Stage, end: _Reach, start: _Reach, carried: set[int]) -> list[OpNode]:
    """Return the ops through which ``target`` reads what was carried on: its own, or those that made its inputs."""
    known = carried | start.own
    own = [trace.ops[op_id] for op_id in sorted(end.own)]
    found = [op for op in own if any(parent[0] in known for parent in op.parents)]
    found += [trace.ops[ref[0]] for ref in _input_refs(trace, target) if ref[0] in carried]
    return found


def _input_refs(trace: Trace, target: Stage) -> Iterator[ValueRef]:
    if target.kind == "output":
        yield from trace.outputs[target.index].refs if target.index < len(trace.outputs) else ()
    elif target.kind == "op" and target.op_id is not None:
        yield from trace.ops[target.op_id].parents
    elif target.kind == "module" and target.call_id is not None:
        for refs in trace.calls[target.call_id].input_refs:
            yield from refs
    elif target.kind == "probe":
        for emit in trace.emits:
            if emit.call_id == target.call_id and emit.name == target.name.partition("#")[0]:
                yield from emit.refs


def _needed(trace: Trace, readers: Iterable[OpNode], carried: set[int]) -> set[int]:
    """Return the carried ops from which one of ``readers`` can be reached."""
    found: set[int] = set()
    waiting = [op.op_id for op in readers if op.op_id in carried]
    waiting += [parent[0] for op in readers for parent in op.parents if parent[0] in carried]
    while waiting:
        op_id = waiting.pop()
        if op_id not in found:
            found.add(op_id)
            waiting += [parent[0] for parent in trace.ops[op_id].parents if parent[0] in carried]
    return found


def _step(trace: Trace, op: OpNode, *, is_inside: bool) -> Step:
    path = "" if op.call_id is None else trace.calls[op.call_id].path
    shape = op.outputs[0].shape if op.outputs else None
    return Step(target=op.target, path=path, location=op.location, shape=shape, is_inside=is_inside)
