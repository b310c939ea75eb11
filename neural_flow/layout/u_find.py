"""Recognise a U: skips nested round a run where the resolution falls, then rises."""

from __future__ import annotations

from dataclasses import dataclass, field

from neural_flow.drawing import Sizes
from neural_flow.layout.graph import FlowGraph

MIN_DEPTH = 2
MIN_COVERAGE = 0.5
MAX_PAIRS = 600


@dataclass(slots=True)
class Bridge:
    """A skip of one level: from the last stage of its left run to the first of its right run, over ``stops``."""

    source: int
    target: int
    stops: list[int]


@dataclass(slots=True)
class Branch:
    """Stages off the trunk that hang together, and the trunk nodes that feed and read them, in execution order."""

    nodes: list[int]
    feeders: list[int]
    readers: list[int]


@dataclass(slots=True)
class UShape:
    """A recognised U. ``left[l]`` and ``right[l]`` are the trunk runs of level ``l``; ``bottom`` lies under them."""

    left: list[list[int]]
    right: list[list[int]]
    bottom: list[int]
    bridges: list[Bridge]
    conditions: list[Branch] = field(default_factory=list[Branch])
    """Branches without feeders, read in many places (a time embedding)."""
    starts: list[Branch] = field(default_factory=list[Branch])
    """Further inputs of the first run."""
    heads: list[Branch] = field(default_factory=list[Branch])
    """Branches that nothing on the trunk reads."""
    lifts: list[int] = field(default_factory=list[int])
    """Edges from the way down to the merging card of the level above (where an up block reads more than one skip)."""

    @property
    def depth(self) -> int:
        """Number of skip levels."""
        return len(self.bridges)


def find_u(graph: FlowGraph, sizes: Sizes) -> UShape | None:
    """Return the U in a connected ``graph``, or None where there is none or something has no place in one."""
    trunk = graph.trunk
    if len(trunk) < 2 * MIN_DEPTH + 1:
        return None
    place = {node: index for index, node in enumerate(trunk)}
    resolution = _trunk_resolution(graph, sizes)
    branches = _find_branches(graph, place)
    pairs = _level_pairs(graph, place, resolution, branches)
    chain = _longest_nested(pairs)
    if len(chain) < MIN_DEPTH or (chain[0].end - chain[0].start) < MIN_COVERAGE * (len(trunk) - 1):
        return None
    shape = UShape(left=[], right=[], bottom=[], bridges=[])
    start, end = 0, len(trunk)
    for pair in chain:
        shape.left.append(trunk[start : pair.start + 1])
        shape.right.append(trunk[pair.end : end])
        stops = branches[pair.branch].nodes if pair.branch >= 0 else []
        shape.bridges.append(Bridge(trunk[pair.start], trunk[pair.end], stops))
        start, end = pair.start + 1, pair.end
    shape.bottom = trunk[start:end]
    used = {pair.branch for pair in chain}
    rest = [branch for index, branch in enumerate(branches) if index not in used]
    return shape if _sort_branches(graph, shape, rest) and _are_edges_drawable(graph, shape) else None


@dataclass(slots=True)
class _Pair:
    start: int
    end: int
    branch: int


def _trunk_resolution(graph: FlowGraph, sizes: Sizes) -> list[int]:
    """Return the resolution along the trunk. A node that has none takes the larger one of its neighbours.

    So the ring that ends a level on the way down still belongs to it, as does the ring that starts one on the way up.
    """
    known = [sizes.nodes[graph.nodes[node].node_id].resolution for node in graph.trunk]
    before, after = list(known), list(known)
    for index in range(1, len(known)):
        before[index] = known[index] or before[index - 1]
    for index in range(len(known) - 2, -1, -1):
        after[index] = known[index] or after[index + 1]
    return [max(pair) for pair in zip(before, after, strict=True)]


def _find_branches(graph: FlowGraph, place: dict[int, int]) -> list[Branch]:
    seen: set[int] = set()
    branches: list[Branch] = []
    for start in range(graph.num_nodes):
        if start in place or start in seen:
            continue
        seen.add(start)
        nodes, feeders, readers = [start], set[int](), set[int]()
        for node in nodes:
            for edge in [*graph.incoming[node], *graph.outgoing[node]]:
                is_in = graph.target[edge] == node
                other = graph.source[edge] if is_in else graph.target[edge]
                if other in place:
                    (feeders if is_in else readers).add(other)
                elif other not in seen:
                    seen.add(other)
                    nodes.append(other)
        branches.append(Branch(sorted(nodes), sorted(feeders), sorted(readers)))
    return branches


def _level_pairs(graph: FlowGraph, place: dict[int, int], resolution: list[int], branches: list[Branch]) -> list[_Pair]:
    """Return the skips over a run of lower resolution than their own source, as trunk positions."""
    pairs: list[_Pair] = []
    for edge in range(graph.num_edges):
        source, target = graph.source[edge], graph.target[edge]
        if source in place and target in place and graph.primary[target] != edge:
            pairs.append(_Pair(place[source], place[target], -1))
    for index, branch in enumerate(branches):
        if len(branch.feeders) == 1 and len(branch.readers) == 1 and _is_chain(graph, branch):
            pairs.append(_Pair(place[branch.feeders[0]], place[branch.readers[0]], index))
    found: list[_Pair] = []
    for pair in sorted(pairs, key=lambda pair: (pair.start, -pair.end, -pair.branch))[:MAX_PAIRS]:
        inside = [value for value in resolution[pair.start + 1 : pair.end] if value]
        ends = min(resolution[pair.start], resolution[pair.end])
        if inside and 0 < min(inside) < ends:
            found.append(pair)
    return found


def _is_chain(graph: FlowGraph, branch: Branch) -> bool:
    return all(len(graph.incoming[node]) == 1 and len(graph.outgoing[node]) == 1 for node in branch.nodes)


def _longest_nested(pairs: list[_Pair]) -> list[_Pair]:
    """Return the longest chain of pairs, each strictly inside the one before."""
    lengths = [1] * len(pairs)
    following = [-1] * len(pairs)
    for index in range(len(pairs) - 1, -1, -1):
        for inner in range(index + 1, len(pairs)):
            is_inside = pairs[index].start < pairs[inner].start and pairs[inner].end < pairs[index].end
            if is_inside and lengths[inner] + 1 > lengths[index]:
                lengths[index], following[index] = lengths[inner] + 1, inner
    if not pairs:
        return []
    index = max(range(len(pairs)), key=lambda index: (lengths[index], pairs[index].end - pairs[index].start, -index))
    chain: list[_Pair] = []
    while index >= 0:
        chain.append(pairs[index])
        index = following[index]
    return chain


def _sort_branches(graph: FlowGraph, shape: UShape, branches: list[Branch]) -> bool:
    """Give each branch a place in the U; return False if one has none."""
    first, last = shape.left[0], shape.right[0]
    ends = {run[-1] for run in shape.right}
    for branch in branches:
        if not branch.feeders and branch.readers:
            if len(branch.readers) == 1 and branch.readers[0] in first[1:]:
                shape.starts.append(branch)
            elif all(graph.nodes[node].role == "card" for node in branch.readers):
                shape.conditions.append(branch)
            else:
                return False
        elif len(branch.feeders) == 1 and not branch.readers and _is_line(graph, branch):
            if branch.feeders[0] not in ends and branch.feeders[0] not in last:
                return False
            shape.heads.append(branch)
        else:
            return False
    return all(_is_line(graph, branch) for branch in shape.starts)


def _is_line(graph: FlowGraph, branch: Branch) -> bool:
    """Return whether the branch is one line of stages."""
    return all(len(graph.incoming[node]) <= 1 and len(graph.outgoing[node]) <= 1 for node in branch.nodes)


def _are_edges_drawable(graph: FlowGraph, shape: UShape) -> bool:
    """Return whether each edge between trunk nodes has a way: along the trunk, a skip, a detour within its run."""
    run_of: dict[int, tuple[str, int]] = {}
    for side, runs in (("left", shape.left), ("right", shape.right), ("bottom", [shape.bottom])):
        for level, run in enumerate(runs):
            run_of.update(dict.fromkeys(run, (side, level)))
    direct = {(bridge.source, bridge.target) for bridge in shape.bridges if not bridge.stops}
    seen: set[tuple[int, int]] = set()
    for edge in range(graph.num_edges):
        source, target = graph.source[edge], graph.target[edge]
        if (source, target) in seen:
            return False
        seen.add((source, target))
        if source not in run_of or target not in run_of or run_of[source] == run_of[target]:
            continue
        if graph.primary[target] == edge or (source, target) in direct:
            continue
        if not _is_bypass(graph, shape, source, target) and not _is_lift(graph, shape, run_of, source, target):
            return False
        if graph.nodes[target].role == "card":
            shape.lifts.append(edge)
    loop = (shape.right[0][-1], shape.left[0][0])
    return all((source, target) == loop for source, target, _ in graph.returns)


def _is_bypass(graph: FlowGraph, shape: UShape, source: int, target: int) -> bool:
    """Return whether the edge goes from the end of a right run to a ring of the run above it."""
    level = next((level for level, run in enumerate(shape.right) if target in run), -1)
    if level < 0 or graph.nodes[target].role != "ring":
        return False
    below = shape.bottom if level + 1 == shape.depth else shape.right[level + 1]
    return source == below[-1]


def _is_lift(graph: FlowGraph, shape: UShape, run_of: dict[int, tuple[str, int]], source: int, target: int) -> bool:
    """Return whether the edge goes from one level to the card that merges the level above."""
    side, level = run_of[target]
    if side != "right" or target != shape.right[level][0] or graph.nodes[target].role != "card":
        return False
    if level + 1 == shape.depth:
        return source in shape.bottom[:-1]
    return source == shape.left[level + 1][-1]
