"""Direct edges, joins and flows, read off the contracted glue backwards from each stage."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from neural_flow.records import Edge, EdgeMark, Flow, Join, Stage, TensorMeta, ValueRef
from neural_flow.topology._base import FlowGraph, Node
from neural_flow.topology.op_names import op_name
from neural_flow.topology.walk import Line, Lines, Steps, Wires, merge_steps, union, value_meta

MAX_DIRECT_EDGES = 100_000
"""Above this many pairs, edges list only what meets at the last join before a stage: the lines still hold all."""


@dataclass(slots=True, eq=False)
class _Path:
    """What all ways from a join to one target have in common or gather."""

    through: Steps = ()
    marks: tuple[EdgeMark, ...] = ()
    is_opaque: bool = False
    is_visible: bool = False


@dataclass(slots=True, eq=False)
class _Draft:
    """An edge while its ways are gathered."""

    refs: tuple[ValueRef, ...] = ()
    through: Steps = ()
    marks: tuple[EdgeMark, ...] = ()
    joins: tuple[int, ...] = ()
    is_opaque: bool = False
    is_visible: bool = False


class _TensorNames:
    """Tensors of an edge: output leaves of the source as it produced them, then results inside it, in order."""

    def __init__(self, graph: FlowGraph, stages: Sequence[Stage]) -> None:
        self._ops = graph.ops
        self._stages = {stage.stage_id: stage for stage in stages}
        self._leaf_of: dict[int, dict[ValueRef, int]] = {}
        for stage_id, leaves in graph.leaves.items():
            places: dict[ValueRef, int] = {}
            for place, refs in enumerate(leaves):
                for ref in refs:
                    places.setdefault(ref, place)
            self._leaf_of[stage_id] = places
        self._known: dict[tuple[Node, tuple[ValueRef, ...]], tuple[TensorMeta, ...]] = {}

    def of(self, origin: Node, refs: tuple[ValueRef, ...]) -> tuple[TensorMeta, ...]:
        found = self._known.get((origin, refs))
        if found is None:
            found = self._known[origin, refs] = self._find(origin, refs)
        return found

    def _find(self, origin: Node, refs: tuple[ValueRef, ...]) -> tuple[TensorMeta, ...]:
        if origin[0] == "join":
            return self.metas(refs)
        outputs = self._stages[origin[1]].outputs
        places = self._leaf_of.get(origin[1], {})
        leaves = sorted({places[ref] for ref in refs if places.get(ref, len(outputs)) < len(outputs)})
        inner = [ref for ref in sorted(refs) if places.get(ref, len(outputs)) >= len(outputs)]
        return (*(outputs[place] for place in leaves), *self.metas(inner))

    def metas(self, refs: Iterable[ValueRef]) -> tuple[TensorMeta, ...]:
        return tuple(meta for ref in refs if (meta := value_meta(self._ops, ref)) is not None)


def direct_edges(
    graph: FlowGraph, stages: Sequence[Stage], wires: Wires, max_edges: int = MAX_DIRECT_EDGES
) -> tuple[list[Edge], tuple[str, ...]]:
    """Return every direct edge, unclassified, and a note where there are too many to list."""
    num_edges = _count_edges(stages, wires)
    is_short = num_edges > max_edges
    newest = _newest_sources(stages, wires) if is_short else {}
    names = _TensorNames(graph, stages)
    edges: list[Edge] = []
    for stage in stages:
        drafts = _short_drafts(stage, wires, newest) if is_short else _drafts(stage, wires)
        for source, draft in drafts.items():
            edges.append(_finish(source, stage.stage_id, draft, names, graph))
    if not is_short:
        return edges, ()
    note = f"{num_edges} direct edges are too many to list: edges name only what meets at the last join before a stage"
    return edges, (note,)


def _count_edges(stages: Sequence[Stage], wires: Wires) -> int:
    places = {stage.stage_id: place for place, stage in enumerate(stages)}
    reach: dict[int, int] = {}
    for index, lines in wires.into_join.items():
        reach[index] = _stage_bits(lines, places, reach)
    return sum(_stage_bits(lines, places, reach).bit_count() for lines in wires.into_stage.values())


def _stage_bits(lines: Lines, places: Mapping[int, int], reach: Mapping[int, int]) -> int:
    bits = 0
    for kind, key in lines:
        bits |= 1 << places[key] if kind == "stage" else reach[key]
    return bits


def _newest_sources(stages: Sequence[Stage], wires: Wires) -> dict[int, int]:
    """Return for each join the source that ran last, as its place among the stages."""
    places = {stage.stage_id: place for place, stage in enumerate(stages)}
    newest: dict[int, int] = {}
    for index, lines in wires.into_join.items():
        newest[index] = max(places[key] if kind == "stage" else newest[key] for kind, key in lines)
    return {index: stages[place].stage_id for index, place in newest.items()}


def _drafts(stage: Stage, wires: Wires) -> dict[int, _Draft]:
    drafts: dict[int, _Draft] = {}
    paths: dict[int, _Path] = {}
    queue: list[int] = []
    own = stage.stage_id
    for origin, line in wires.into_stage[own].items():
        joins = tuple(wires.inside.get(own, {}).get(origin, ()))
        _step(origin, line, _Path(is_visible=True), joins, own, drafts, paths, queue)
    while queue:
        join = -heapq.heappop(queue)  # later joins first: then every way from a join to the stage is already known
        for origin, line in wires.into_join[join].items():
            _step(origin, line, paths[join], (join,), own, drafts, paths, queue)
    return drafts


def _step(
    origin: Node,
    line: Line,
    rest: _Path,
    joins: tuple[int, ...],
    own: int,
    drafts: dict[int, _Draft],
    paths: dict[int, _Path],
    queue: list[int],
) -> None:
    """Walk one line backwards: to a stage, where an edge starts, or to a join, where the walk goes on."""
    kind, key = origin
    if kind == "stage":
        if key == own:
            return
        end = drafts.setdefault(key, _Draft())
        end.refs = union(end.refs, line.refs)
        end.joins = union(end.joins, joins)
    else:
        if key not in paths:
            paths[key] = _Path()
            heapq.heappush(queue, -key)
        end = paths[key]
    end.through = merge_steps(merge_steps(end.through, line.through), rest.through)
    end.marks = union(union(end.marks, line.marks), rest.marks)
    end.is_opaque = end.is_opaque or line.is_opaque or rest.is_opaque
    end.is_visible = end.is_visible or (rest.is_visible and not line.is_plumbing)


def _short_drafts(stage: Stage, wires: Wires, newest: Mapping[int, int]) -> dict[int, _Draft]:
    drafts: dict[int, _Draft] = {}
    visible = _Path(is_visible=True)
    own = stage.stage_id
    for origin, line in wires.into_stage[own].items():
        if origin[0] == "stage":
            joins = tuple(wires.inside.get(own, {}).get(origin, ()))
            _step(origin, line, visible, joins, own, drafts, {}, [])
            continue
        rest = _Path(line.through, line.marks, line.is_opaque, not line.is_plumbing)
        for far, far_line in wires.into_join[origin[1]].items():
            source: Node = far if far[0] == "stage" else ("stage", newest[far[1]])
            _step(source, far_line, rest, (origin[1],), own, drafts, {}, [])
    return drafts


def _finish(source: int, target: int, draft: _Draft, names: _TensorNames, graph: FlowGraph) -> Edge:
    joins = tuple(sorted(draft.joins))
    return Edge(
        source=source,
        target=target,
        inferred=graph.is_inferred,
        opaque=draft.is_opaque,
        plumbing=not draft.is_visible,
        tensors=names.of(("stage", source), draft.refs),
        via=tuple(op_name(graph.ops[join].target) for join in joins),
        joins=joins,
        through=tuple(name for _, name in draft.through),
        marks=draft.marks,
    )


def joins_and_flows(graph: FlowGraph, stages: Sequence[Stage], wires: Wires) -> tuple[list[Join], list[Flow]]:
    """Return the joins that lie on a way to a stage, and the lines that meet in them, unclassified."""
    names = _TensorNames(graph, stages)
    used = _used_joins(wires)
    joins = [
        Join(
            join_id=index,
            target=op_name(graph.ops[index].target),
            sources=tuple(wires.into_join[index]),
            path=graph.ops[index].path,
        )
        for index in sorted(used)
    ]
    ends: dict[Node, Lines] = {("join", join.join_id): wires.into_join[join.join_id] for join in joins}
    ends.update({("stage", stage.stage_id): wires.into_stage[stage.stage_id] for stage in stages})
    flows = [
        Flow(
            source=origin,
            target=target,
            inferred=graph.is_inferred,
            opaque=line.is_opaque,
            plumbing=line.is_plumbing,
            tensors=names.of(origin, line.refs),
            arrived=names.metas(line.arrived),
            through=tuple(name for _, name in line.through),
            marks=line.marks,
        )
        for target, lines in ends.items()
        for origin, line in lines.items()
    ]
    return joins, flows


def _used_joins(wires: Wires) -> set[int]:
    queue = [key for lines in wires.into_stage.values() for kind, key in lines if kind == "join"]
    used: set[int] = set()
    while queue:
        join = queue.pop()
        if join not in used:
            used.add(join)
            queue += [key for kind, key in wires.into_join[join] if kind == "join"]
    return used
