"""Places of a U: levels as rows, the way down a staircase, the way up mirrored with merges above their source."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from neural_flow.drawing import Box, NodeSize, Sizes
from neural_flow.layout._base import LABEL_GAP
from neural_flow.layout.graph import FlowGraph
from neural_flow.layout.u_find import Branch, UShape

STEP = 33.0
"""From the front centre of one level's last stage to the left edge of the next level's first."""
CARD_GAP = 24.0
RING_GAP = 20.8
ELBOW_REACH = 14.0
TEXT_MARGIN = 5.0
LABEL_SPACE = 4.0
LANE_SPACE = 9.0
BUS_GAP = 16.0


@dataclass(frozen=True, slots=True)
class USpacing:
    """Between the lowest front of a row and the next row's stacks; between a skip's source and its merge."""

    row_gap: float = 19.0
    skip_length: float = 16.0
    tightness: float = 1.0
    """Share of the usual white space between neighbours of a row."""


@dataclass(slots=True)
class UPlaces:
    """Left edges of fronts, row axes and label sides of all nodes, and the lanes of detours."""

    graph: FlowGraph
    shape: UShape
    spacing: USpacing
    sizes: list[NodeSize]
    text_width: list[float]
    x: list[float]
    y: list[float]
    level: list[int]
    is_label_above: list[bool]
    detours: dict[int, float] = field(default_factory=dict[int, float])
    """Edges within a run that pass stages by: their lane, relative to the axis of the row."""
    lifts: dict[int, tuple[float, float]] = field(default_factory=dict[int, tuple[float, float]])
    """Edges to the merge of the level above: their lane, relative to the axis of their source, and where they rise."""
    risers: dict[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])
    """(condition, reader): where its line rises to the reader."""
    label_x: dict[int, float] = field(default_factory=dict[int, float])
    buses: list[float] = field(default_factory=list[float])
    down_gutters: list[float] = field(default_factory=list[float])
    """In a compact U, where the lines from each level down and up run back; else empty."""
    up_gutters: list[float] = field(default_factory=list[float])

    def centre(self, node: int) -> float:
        """Return the middle of the front plane."""
        return self.x[node] + self.sizes[node].front_width / 2

    def right(self, node: int) -> float:
        """Return the right border of the body."""
        return self.x[node] + self.sizes[node].width

    def top(self, node: int) -> float:
        """Return the top border of the body."""
        return self.y[node] + self.sizes[node].front_height / 2 - self.sizes[node].height

    def bottom(self, node: int) -> float:
        """Return the lower border of the body."""
        return self.y[node] + self.sizes[node].front_height / 2

    def body(self, node: int) -> Box:
        """Return the body."""
        return Box(x=self.x[node], y=self.top(node), width=self.sizes[node].width, height=self.sizes[node].height)

    def label(self, node: int) -> Box | None:
        """Return the label, left-aligned with the front plane."""
        size = self.sizes[node]
        if not size.label_width or not size.label_height:
            return None
        if self.is_label_above[node]:
            y = self.top(node) - LABEL_GAP - size.label_height
        else:
            y = self.bottom(node) + LABEL_GAP
        return Box(x=self.label_x.get(node, self.x[node]), y=y, width=size.label_width, height=size.label_height)

    def is_ring(self, node: int) -> bool:
        """Return whether the node is a ring."""
        return self.graph.nodes[node].role == "ring"


def new_places(graph: FlowGraph, shape: UShape, sizes: Sizes, spacing: USpacing) -> UPlaces:
    """Return places still at 0, with labels on their sides."""
    num_nodes = graph.num_nodes
    texts = [sizes.arrow_labels.get(arrow.arrow_id, (0.0, 0.0))[0] for arrow in graph.arrows]
    places = UPlaces(
        graph=graph,
        shape=shape,
        spacing=spacing,
        sizes=[sizes.nodes[node.node_id] for node in graph.nodes],
        text_width=texts,
        x=[0.0] * num_nodes,
        y=[0.0] * num_nodes,
        level=[0] * num_nodes,
        is_label_above=[True] * num_nodes,
    )
    for level in range(shape.depth):
        for node in [*shape.left[level], *shape.right[level], *shape.bridges[level].stops]:
            places.level[node] = level
    for node in shape.bottom:
        places.level[node] = shape.depth
    choose_label_sides(places)
    return places


def place_u(graph: FlowGraph, shape: UShape, sizes: Sizes, spacing: USpacing) -> UPlaces:
    """Return the places of every node of a recognised U."""
    places = new_places(graph, shape, sizes, spacing)
    _place_columns(places)
    place_detours(places)
    _place_rows(places)
    place_branches(places)
    _place_conditions(places)
    return places


def choose_label_sides(places: UPlaces) -> None:
    """Put labels above, but below where an arrow leaves the top, and below the pictures at both ends."""
    shape = places.shape
    # A picture from which the way down leaves at once has its arrow below.
    if not places.graph.incoming[shape.left[0][0]] and len(shape.left[0]) > 1:
        places.is_label_above[shape.left[0][0]] = False
    for level, run in enumerate(shape.right):
        for node in run:
            places.is_label_above[node] = not places.is_ring(run[0])
        if level:
            places.is_label_above[run[-1]] = not places.is_ring(shape.right[level - 1][0])
    places.is_label_above[shape.bottom[-1]] = not places.is_ring(shape.right[-1][0])


def _gap_after(places: UPlaces, node: int, following: int) -> float:
    edge = places.graph.primary[following]
    gap = RING_GAP if places.is_ring(node) or places.is_ring(following) else CARD_GAP
    gap *= places.spacing.tightness
    text = places.text_width[edge] if edge >= 0 else 0.0
    if text:
        gap = max(gap, text + 2 * TEXT_MARGIN + 2)
    taken = sum(1 for out in places.graph.outgoing[node] if places.graph.target[out] != following)
    if taken and following not in (places.shape.bottom[0], *(run[0] for run in places.shape.left)):
        gap = max(gap, 26.0)
    size = places.sizes[node]
    # a line that leaves the row behind the label needs white on both of its sides
    return max(gap, size.label_width - size.width + (4.0 if taken else 2.0) * LABEL_SPACE)


def place_run(places: UPlaces, run: list[int], start: float) -> None:
    """Place a run from ``start`` to the right."""
    places.x[run[0]] = start
    for node, following in pairwise(run):
        places.x[following] = places.right(node) + _gap_after(places, node, following)


def _place_columns(places: UPlaces) -> None:
    shape = places.shape
    start = 0.0
    for run in [*shape.left, shape.bottom]:
        place_run(places, run, start)
        start = places.centre(run[-1]) + STEP * places.spacing.tightness
    lower = shape.bottom
    below = list(shape.bottom)
    for level in range(shape.depth - 1, -1, -1):
        bridge, run = shape.bridges[level], shape.right[level]
        room = sum(places.sizes[node].width + RING_GAP for node in bridge.stops)
        least = places.right(bridge.source) + places.spacing.skip_length + (RING_GAP if bridge.stops else 0.0) + room
        first, last = run[0], lower[-1]
        if places.is_ring(first):
            start = places.centre(last) - places.sizes[first].width / 2
            if start < least:
                for node in below:
                    places.x[node] += least - start
                start = least
        else:
            rise = max(places.right(last) + ELBOW_REACH, _label_end(places, last) + LABEL_SPACE)
            start = max(rise - places.sizes[first].front_width / 2, least)
        place_run(places, run, start)
        _widen_for_rising_text(places, run)
        end = start
        for node in reversed(bridge.stops):
            end -= RING_GAP + places.sizes[node].width
            places.x[node] = end
        below += [*run, *bridge.stops]
        lower = run


def _label_end(places: UPlaces, node: int) -> float:
    """Return where a label above a node ends, past which lines may rise."""
    return places.x[node] + (places.sizes[node].label_width if places.is_label_above[node] else 0.0)


def _widen_for_rising_text(places: UPlaces, run: list[int]) -> None:
    """Leave room for the text at the right of the arrow that rises into the first ring of a run."""
    if len(run) > 1 and places.is_ring(run[0]):
        edge = places.graph.primary[run[0]]
        text = places.text_width[edge] if edge >= 0 else 0.0
        short = text + 2 * TEXT_MARGIN - (places.x[run[1]] - places.centre(run[0])) if text else 0.0
        if short > 0:
            for node in run[1:]:
                places.x[node] += short


def place_detours(places: UPlaces) -> None:
    """Give each edge that passes stages of its own run a lane; nested ones nest."""
    shape = places.shape
    for side, run in [*(("left", run) for run in shape.left), *(("right", run) for run in shape.right)]:
        _detour_run(places, run, is_above=side == "right")
    has_risers = bool(shape.conditions)
    _detour_run(places, shape.bottom, is_above=has_risers or not places.is_label_above[shape.bottom[-1]])
    _place_lifts(places)


def _place_lifts(places: UPlaces) -> None:
    """Give each lift a lane above its own row, and a place left of the middle of its target's bottom."""
    graph, shape = places.graph, places.shape
    into: dict[int, int] = {}
    lanes: dict[int, float] = {}
    for edge in sorted(shape.lifts, key=lambda edge: (-graph.source[edge], edge)):
        source, target = graph.source[edge], graph.target[edge]
        level = places.level[source]
        row = shape.bottom if level == shape.depth else [*shape.right[level], *shape.bridges[level].stops]
        passed = [node for node in row if places.x[node] > places.x[source]]
        reach = max(_reach(places, node, is_above=True) for node in [source, *passed])
        detours = [-lane for found, lane in places.detours.items() if graph.source[found] in row and lane < 0]
        lane = max([reach, *detours, lanes.get(level, 0.0)]) + LANE_SPACE
        lanes[level] = lane
        into[target] = into.get(target, 0) + 1
        rise = places.centre(target) - 6.0 * into[target]
        places.lifts[edge] = (-lane, rise)


def _detour_run(places: UPlaces, run: list[int], *, is_above: bool) -> None:
    graph = places.graph
    at = {node: index for index, node in enumerate(run)}
    edges = [
        edge
        for edge in range(graph.num_edges)
        if graph.source[edge] in at and graph.target[edge] in at and graph.primary[graph.target[edge]] != edge
    ]
    edges.sort(key=lambda edge: (at[graph.target[edge]] - at[graph.source[edge]], edge))
    lanes: list[tuple[int, int, bool, float]] = []
    for edge in edges:
        first, last = at[graph.source[edge]], at[graph.target[edge]]
        # The arrow to the next level occupies this side of the run's last node.
        side = is_above if not (places.is_ring(run[last]) and last == len(run) - 1) else not is_above
        passed = run[first + 1 : last]
        reach = max([_reach(places, node, is_above=side) for node in passed] or [places.sizes[run[last]].front_height])
        for low, high, lane_side, lane in lanes:
            if lane_side == side and low < last and first < high:
                reach = max(reach, lane)
        lane = reach + LANE_SPACE
        lanes.append((first, last, side, lane))
        places.detours[edge] = -lane if side else lane


def _reach(places: UPlaces, node: int, *, is_above: bool) -> float:
    """Return how far the body and label of ``node`` reach from its axis."""
    size = places.sizes[node]
    body = size.height - size.front_height / 2 if is_above else size.front_height / 2
    has_label = size.label_height and places.is_label_above[node] == is_above
    return body + (LABEL_GAP + size.label_height if has_label else 0.0)


def _place_rows(places: UPlaces) -> None:
    """Stack the rows: fronts end 19 pt above the next row's stacks, labels and lanes clear each other."""
    shape = places.shape
    rows = [[*shape.left[level], *shape.right[level], *shape.bridges[level].stops] for level in range(shape.depth)]
    rows.append(shape.bottom)
    axis = 0.0
    above: list[Box] = []
    for level, row in enumerate(rows):
        boxes = row_boxes(places, row)
        if level:
            low = max(places.sizes[node].front_height / 2 for node in rows[level - 1])
            high = max(places.sizes[node].height - places.sizes[node].front_height / 2 for node in row)
            axis += low + places.spacing.row_gap + high
            axis = max([axis, *(_least_axis(upper, box) for upper in above for box in boxes)])
        for node in row:
            places.y[node] = axis
        above += [Box(x=box.x, y=box.y + axis, width=box.width, height=box.height) for box in boxes]


def row_boxes(places: UPlaces, row: list[int]) -> list[Box]:
    """Return bodies, labels and detour lanes of a row whose axis is at 0."""
    for node in row:
        places.y[node] = 0.0
    boxes = [places.body(node) for node in row]
    boxes += [label for node in row if (label := places.label(node))]
    members = set(row)
    for edge, lane in places.detours.items():
        source, target = places.graph.source[edge], places.graph.target[edge]
        if source in members:
            left, right = places.right(source), places.right(target)
            boxes.append(Box(x=left, y=min(lane, 0.0), width=right - left, height=abs(lane)))
    for edge, (lane, rise) in places.lifts.items():
        source = places.graph.source[edge]
        if source in members:
            left = places.right(source)
            # The last stretch has to show an arrow head below the merge.
            boxes.append(Box(x=left, y=lane - LANE_SPACE, width=max(rise - left, 0.0), height=LANE_SPACE - lane))
    return boxes


def _least_axis(upper: Box, box: Box) -> float:
    """Return the highest axis at which ``box``, relative to it, stands clear below ``upper``."""
    if upper.x >= box.x + box.width + LABEL_SPACE or box.x >= upper.x + upper.width + LABEL_SPACE:
        return float("-inf")
    return upper.y + upper.height + LABEL_SPACE - box.y


def place_branches(places: UPlaces) -> None:
    """Place further inputs left of their reader and further heads right of their feeder, clear of the row."""
    shape = places.shape
    for branch in shape.starts:
        end = places.x[branch.readers[0]] - CARD_GAP
        low = max(_low_end(places, shape.left[0]), _low_end(places, [n for b in shape.starts for n in b.nodes]))
        for node in reversed(branch.nodes):
            places.x[node] = end - places.sizes[node].width
            end = places.x[node] - CARD_GAP
        _hang(places, branch, low)
    for branch in shape.heads:
        feeder = branch.feeders[0]
        run = next(run for run in [*shape.right, shape.bottom, *shape.left] if feeder in run)
        start = places.right(feeder) + CARD_GAP
        for node in branch.nodes:
            places.x[node] = start
            start = places.right(node) + CARD_GAP
        if feeder == run[-1] and all(other is branch or other.feeders != branch.feeders for other in shape.heads):
            for node in branch.nodes:
                places.y[node] = places.y[feeder]
                places.is_label_above[node] = False
        else:
            placed = [n for other in shape.heads for n in other.nodes if other is not branch and places.y[n]]
            _hang(places, branch, max(_low_end(places, run), _low_end(places, placed)))


def _low_end(places: UPlaces, nodes: list[int]) -> float:
    ends = [places.bottom(node) for node in nodes]
    ends += [label.y + label.height for node in nodes if (label := places.label(node))]
    return max(ends, default=0.0)


def _hang(places: UPlaces, branch: Branch, low: float) -> None:
    """Put the stages of ``branch`` on one row below ``low``, labels above them."""
    reach = max(_reach(places, node, is_above=True) for node in branch.nodes)
    for node in branch.nodes:
        places.y[node] = low + LANE_SPACE + reach


def _place_conditions(places: UPlaces) -> None:
    """Place branches that are read in many levels under the U, with lines that rise into their readers' bottoms.

    Under the way down everything left of a stage's middle is free, under the way up everything right of the level
    below, so these lines cross nothing.
    """
    shape = places.shape
    placed = [node for node in range(places.graph.num_nodes) if not _is_condition(places, node)]
    low = _low_end(places, placed)
    for index, branch in enumerate(shape.conditions):
        for reader in branch.readers:
            places.risers[index, reader] = _riser(places, reader, index)
        axis = low + BUS_GAP + max(_reach(places, node, is_above=True) for node in branch.nodes)
        end = min(places.risers[index, reader] for reader in branch.readers) - BUS_GAP
        for node in reversed(branch.nodes):
            places.x[node] = end - places.sizes[node].width
            places.y[node] = axis
            end = places.x[node] - CARD_GAP
        places.buses.append(axis)
        low = max(_low_end(places, branch.nodes), axis)


def _is_condition(places: UPlaces, node: int) -> bool:
    return any(node in branch.nodes for branch in places.shape.conditions)


def _riser(places: UPlaces, reader: int, index: int) -> float:
    shape = places.shape
    size = places.sizes[reader]
    if any(reader in run for run in shape.left):
        return places.x[reader] + size.front_width * 0.22 + 6.0 * index
    level = places.level[reader]
    lower = [] if level == shape.depth else [n for run in [*shape.right[level + 1 :], shape.bottom] for n in run]
    edge = max([places.right(node) + LABEL_SPACE for node in lower if node != reader], default=float("-inf"))
    # The arrow from the level below enters a card at the middle of its bottom; its line comes from the left.
    is_entered = level < shape.depth and reader == shape.right[level][0]
    left = places.x[reader] + size.front_width * (0.78 if level == shape.depth or is_entered else 0.3)
    rise = min(max(left, edge), places.x[reader] + size.front_width - 3.0) + 6.0 * index
    if not places.is_label_above[reader]:
        places.label_x[reader] = max(places.label_x.get(reader, places.x[reader]), rise + LABEL_SPACE)
    return rise
