"""Places across the flow: as close to their neighbours as the order allows, the trunk on one straight line.

Each layer is an isotonic regression (pool adjacent violators), so nothing overlaps by construction. The trunk lies at
0 and splits its layers into two halves that never push it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from neural_flow.layout._base import LANE_WIDTH, LINE_REACH, NODE_GAP, NODE_LANE_GAP, NodeShape
from neural_flow.layout.grid import Grid
from neural_flow.layout.settle import FRAME_GAP, FrameRooms, settle

NUM_SWEEP_PAIRS = 6
NUM_BOTH_PAIRS = 2
SETTLED = 0.5
NUM_BLOCK_ROUNDS = 3
LANE_WEIGHT = 8.0
PRIMARY_WEIGHT = 4.0
TURN_WEIGHT = 1.0


@dataclass(slots=True)
class Field:
    """Everything that decides the places: room of each element, gaps, links with weights and port offsets."""

    grid: Grid
    before: list[float]
    after: list[float]
    gaps: list[list[float]]
    """Least distance between the axes of neighbours, by layer and place."""
    links_up: list[list[tuple[int, float, float]]]
    """Per element: (neighbour, place wanted relative to it, weight)."""
    links_down: list[list[tuple[int, float, float]]]
    x: list[float]
    place: list[int]
    """Index of each element in its layer."""


def assign_coordinates(
    grid: Grid, shapes: list[NodeShape], in_ports: dict[int, float], rooms: FrameRooms, *, is_calm: bool
) -> list[float]:
    """Return the place of every element across the flow.

    Args:
        grid: ordered elements.
        shapes: room of each node.
        in_ports: offset of each edge's end from the axis of its target.
        rooms: what frames need across the flow.
        is_calm: whether straight lines are worth some width.
    """
    field = _make_field(grid, shapes, in_ports, rooms)
    _pack(field)
    wide = [layer for layer in range(grid.num_layers) if _is_movable(grid, layer)]
    for _ in range(NUM_SWEEP_PAIRS):
        last = list(field.x)
        for layer in wide:
            _relax(field, layer, use_up=True, use_down=False)
        for layer in reversed(wide):
            _relax(field, layer, use_up=False, use_down=True)
        if _is_settled(field.x, last):
            break
    for _ in range(NUM_BOTH_PAIRS):
        last = list(field.x)
        for layer in [*wide, *reversed(wide)]:
            _relax(field, layer, use_up=True, use_down=True)
        if _is_settled(field.x, last):
            break
    chains = _find_chains(field)
    for _ in range(NUM_BLOCK_ROUNDS):
        for chain in chains:
            _straighten(field, chain)
    links = [[*ups, *downs] for ups, downs in zip(field.links_up, field.links_down, strict=True)]
    lines = [LINE_REACH] * (len(field.x) - grid.graph.num_nodes)
    before = [*field.before[: grid.graph.num_nodes], *lines]
    after = [*field.after[: grid.graph.num_nodes], *lines]
    settle(grid, field.x, before, after, field.gaps, chains, links, rooms, is_calm=is_calm)
    return field.x


def _is_settled(x: list[float], last: list[float]) -> bool:
    return all(abs(a - b) < SETTLED for a, b in zip(x, last, strict=True))


def _is_movable(grid: Grid, layer: int) -> bool:
    row = grid.rows[layer]
    return len(row) > 1 or (len(row) == 1 and not grid.is_trunk[row[0]])


def _make_field(grid: Grid, shapes: list[NodeShape], in_ports: dict[int, float], rooms: FrameRooms) -> Field:
    graph = grid.graph
    num_elements, num_nodes = len(grid.layer), graph.num_nodes
    before = [shape.before for shape in shapes] + [LANE_WIDTH / 2] * (num_elements - num_nodes)
    after = [shape.after for shape in shapes] + [LANE_WIDTH / 2] * (num_elements - num_nodes)
    gaps: list[list[float]] = []
    for row in grid.rows:
        gaps.append([after[a] + before[b] + gap_between(grid, a, b, rooms) for a, b in pairwise(row)])
    up: list[list[tuple[int, float, float]]] = [[] for _ in range(num_elements)]
    down: list[list[tuple[int, float, float]]] = [[] for _ in range(num_elements)]

    def connect(upper: int, lower: int, offset: float, weight: float) -> None:
        up[lower].append((upper, -offset, weight))
        down[upper].append((lower, offset, weight))

    for lanes in grid.buses.values():
        connect(grid.bus[lanes[0]], lanes[0], 0.0, 1.0)
    for lanes in [*grid.buses.values(), *grid.backs]:
        for upper, lower in pairwise(lanes):
            connect(upper, lower, 0.0, LANE_WEIGHT)
    for edge in range(graph.num_edges):
        target, hop = graph.target[edge], grid.hop_before(edge)
        turn = grid.turns.get(edge)
        weight = PRIMARY_WEIGHT if graph.primary[target] == edge else 1.0
        if turn is not None:
            connect(hop, turn, 0.0, weight if grid.is_node(hop) else LANE_WEIGHT)
        else:
            connect(hop, target, in_ports.get(edge, 0.0), weight)
    place = [0] * num_elements
    for row in grid.rows:
        for index, element in enumerate(row):
            place[element] = index
    for edge, turn in grid.turns.items():
        # A line into a ring's side wants to be short: its lane stands next to the ring.
        ring = graph.target[edge]
        row_gaps = gaps[grid.layer[ring]]
        first, last = sorted((place[ring], place[turn]))
        distance = sum(row_gaps[first:last]) * (1 if place[turn] > place[ring] else -1)
        up[turn].append((ring, distance, TURN_WEIGHT))
        down[turn].append((ring, distance, TURN_WEIGHT))
    return Field(
        grid=grid,
        before=before,
        after=after,
        gaps=gaps,
        links_up=up,
        links_down=down,
        x=[0.0] * num_elements,
        place=place,
    )


def gap_between(grid: Grid, first: int, second: int, rooms: FrameRooms) -> float:
    """Return the white space between two neighbours of one layer."""
    inside, outside = grid.frames[first], grid.frames[second]
    if inside != outside:
        borders = sum(rooms.high[frame] for frame in inside if frame not in outside)
        borders += sum(rooms.low[frame] for frame in outside if frame not in inside)
        return borders + FRAME_GAP
    if grid.is_node(first) and grid.is_node(second):
        return NODE_GAP
    if not grid.is_node(first) and not grid.is_node(second):
        return 0.0
    node = first if grid.is_node(first) else second
    is_turn_beside = grid.graph.nodes[node].role == "ring"
    return LANE_WIDTH / 2 if is_turn_beside else NODE_LANE_GAP - LANE_WIDTH / 2


def _pack(field: Field) -> None:
    """Place each layer tightly round its trunk element, or round its middle."""
    grid = field.grid
    for row, gaps in zip(grid.rows, field.gaps, strict=True):
        if not row:
            continue
        places = [0.0]
        for gap in gaps:
            places.append(places[-1] + gap)
        pinned = next((index for index, element in enumerate(row) if grid.is_trunk[element]), None)
        shift = places[pinned] if pinned is not None else places[-1] / 2
        for element, place in zip(row, places, strict=True):
            field.x[element] = place - shift


def _relax(field: Field, layer: int, *, use_up: bool, use_down: bool) -> None:
    row, x = field.grid.rows[layer], field.x
    targets: list[float] = []
    weights: list[float] = []
    for element in row:
        total = weighted = 0.0
        if use_up:
            for other, offset, weight in field.links_up[element]:
                total += weight
                weighted += weight * (x[other] + offset)
        if use_down:
            for other, offset, weight in field.links_down[element]:
                total += weight
                weighted += weight * (x[other] + offset)
        targets.append(weighted / total if total else x[element])
        weights.append(total or 0.1)
    places = fit_places(
        targets, weights, field.gaps[layer], [index for index, e in enumerate(row) if field.grid.is_trunk[e]]
    )
    for element, place in zip(row, places, strict=True):
        x[element] = place


def fit_places(targets: list[float], weights: list[float], gaps: list[float], pinned: list[int]) -> list[float]:
    """Return the places nearest to ``targets`` (weighted least squares) that keep ``gaps`` between neighbours.

    The element at index ``pinned[0]``, if any, stays at 0: the others are clipped to its two sides, which is exact
    for an isotonic regression with a bound.
    """
    num = len(targets)
    offsets = [0.0] * num
    for index, gap in enumerate(gaps):
        offsets[index + 1] = offsets[index] + gap
    goals = [target - offset for target, offset in zip(targets, offsets, strict=True)]
    if not pinned:
        return [value + offset for value, offset in zip(pool_violators(goals, weights), offsets, strict=True)]
    pin = pinned[0]
    bound = -offsets[pin]
    left = [min(value, bound) for value in pool_violators(goals[:pin], weights[:pin])]
    right = [max(value, bound) for value in pool_violators(goals[pin + 1 :], weights[pin + 1 :])]
    return [value + offset for value, offset in zip([*left, bound, *right], offsets, strict=True)]


def pool_violators(goals: list[float], weights: list[float]) -> list[float]:
    """Return the non-decreasing sequence nearest to ``goals`` in weighted least squares."""
    values: list[float] = []
    masses: list[float] = []
    counts: list[int] = []
    for goal, weight in zip(goals, weights, strict=True):
        count = 1
        while values and values[-1] > goal:
            total = masses[-1] + weight
            goal = (values.pop() * masses[-1] + goal * weight) / total
            masses.pop()
            weight = total
            count += counts.pop()
        values.append(goal)
        masses.append(weight)
        counts.append(count)
    result: list[float] = []
    for value, count in zip(values, counts, strict=True):
        result.extend([value] * count)
    return result


def _find_chains(field: Field) -> list[list[int]]:
    """Return runs of elements that want one line: lanes of one bus, nodes along their primary edges."""
    num_elements = len(field.x)
    mate_down = [-1] * num_elements
    has_mate_up = [False] * num_elements
    best_weight = [0.0] * num_elements
    for element in range(num_elements):
        if field.grid.is_trunk[element]:
            continue
        links = [link for link in field.links_up[element] if link[1] == 0.0]
        if not links:
            continue
        upper, _, weight = max(links, key=lambda link: (link[2], -link[0]))
        if field.grid.is_trunk[upper] or weight <= best_weight[upper]:
            continue
        if mate_down[upper] >= 0:
            has_mate_up[mate_down[upper]] = False
        mate_down[upper], best_weight[upper] = element, weight
        has_mate_up[element] = True
    chains: list[list[int]] = []
    for element in range(num_elements):
        if not has_mate_up[element] and not field.grid.is_trunk[element]:
            chain = [element]
            while mate_down[chain[-1]] >= 0:
                chain.append(mate_down[chain[-1]])
            chains.append(chain)
    return chains


def _straighten(field: Field, chain: list[int]) -> None:
    """Put a chain on one line where its neighbours leave room, at the weighted median of what it links to.

    Where no common line is free, the longest free runs are straightened instead.
    """
    start = 0
    while start < len(chain):
        low, high = _free_interval(field, chain[start])
        end = start + 1
        while end < len(chain):
            next_low, next_high = _free_interval(field, chain[end])
            if max(low, next_low) > min(high, next_high):
                break
            low, high = max(low, next_low), min(high, next_high)
            end += 1
        run = chain[start:end]
        place = min(max(_wanted(field, run), low), high)
        for element in run:
            field.x[element] = place
        start = end


def _free_interval(field: Field, element: int) -> tuple[float, float]:
    layer = field.grid.layer[element]
    row, gaps = field.grid.rows[layer], field.gaps[layer]
    at = field.place[element]
    low = field.x[row[at - 1]] + gaps[at - 1] if at else float("-inf")
    high = field.x[row[at + 1]] - gaps[at] if at + 1 < len(row) else float("inf")
    return low, high


def _wanted(field: Field, run: list[int]) -> float:
    """Return the weighted median of the places that links from outside want for the run."""
    members = set(run)
    wishes: list[tuple[float, float]] = []
    for element in run:
        for links in (field.links_up[element], field.links_down[element]):
            wishes.extend((field.x[other] + offset, weight) for other, offset, weight in links if other not in members)
    if not wishes:
        return sum(field.x[element] for element in run) / len(run)
    wishes.sort()
    half = sum(weight for _, weight in wishes) / 2
    passed = 0.0
    for place, weight in wishes:
        passed += weight
        if passed >= half:
            return place
    return wishes[-1][0]
