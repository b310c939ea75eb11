"""The gaps between layers, where orthogonal lines change their place: one track per line that has to jog.

A line comes from one element of the layer before the gap and goes to its targets in the layer after it. Return
arrows turn round in a gap: both of their ends lie on one side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from neural_flow.layout.grid import Grid

MIN_SPACING = 3.0
OVERLAP_COST = 1000
MAX_SORTED_LINES = 60
SAME_PLACE = 0.01


@dataclass(slots=True)
class Line:
    """What one element sends through one gap: places across the flow on either side, and the track it takes."""

    left: list[float] = field(default_factory=list[float])
    right: list[float] = field(default_factory=list[float])
    track: int = -1
    depth: int = 0
    """Number of frames that open in this gap before the line jogs."""

    @property
    def low(self) -> float:
        """Lowest place."""
        return min([*self.left, *self.right])

    @property
    def high(self) -> float:
        """Highest place."""
        return max([*self.left, *self.right])

    @property
    def is_straight(self) -> bool:
        """Return whether the line needs no track."""
        return self.high - self.low < SAME_PLACE


@dataclass(slots=True)
class Channel:
    """One gap: its lines by key (the element they come from, or ``-1 - i`` where return arrow ``i`` ends)."""

    lines: dict[int, Line] = field(default_factory=dict[int, Line])
    num_tracks: int = 0
    num_overlaps: int = 0

    def line(self, key: int) -> Line:
        """Return the line of ``key``, made on first use."""
        return self.lines.setdefault(key, Line())


def make_channels(grid: Grid, x: list[float], in_ports: dict[int, float]) -> list[Channel]:
    """Return the channel before each layer, and the one after the last layer."""
    graph = grid.graph
    channels = [Channel() for _ in range(grid.num_layers + 1)]
    for source, lanes in grid.buses.items():
        for upper, lower in zip([source, *lanes], lanes, strict=False):
            _connect(channels[grid.layer[lower]], upper, x[upper], x[lower])
    for edge in range(graph.num_edges):
        hop, target = grid.hop_before(edge), graph.target[edge]
        end = x[grid.turns[edge]] if edge in grid.turns else x[target] + in_ports.get(edge, 0.0)
        _connect(channels[grid.layer[target]], hop, x[hop], end)
    for index, (lanes, (source, target, _)) in enumerate(zip(grid.backs, graph.returns, strict=True)):
        for upper, lower in pairwise(lanes):
            _connect(channels[grid.layer[lower]], upper, x[upper], x[lower])
        first, last = back_ends(grid, index)
        channels[grid.layer[source] + 1].line(source).left.extend([x[source], x[last]])
        channels[grid.layer[target]].line(-1 - index).right.extend(
            [x[first], x[target] + in_ports.get(-1 - index, 0.0)]
        )
    for channel in channels:
        _assign_tracks(channel)
    return channels


def back_ends(grid: Grid, index: int) -> tuple[int, int]:
    """Return the lane of return arrow ``index`` in its target's layer and the one in its source's layer."""
    lanes = grid.backs[index]
    source, target, _ = grid.graph.returns[index]
    return (lanes[0], lanes[-1]) if grid.layer[target] <= grid.layer[source] else (lanes[-1], lanes[0])


def _connect(channel: Channel, key: int, start: float, end: float) -> None:
    line = channel.line(key)
    line.left.append(start)
    line.right.append(end)


def _assign_tracks(channel: Channel) -> None:
    """Order the jogging lines so that they cross least and never lie on each other; lines far apart share a track."""
    lines = [line for line in channel.lines.values() if not line.is_straight]
    if not lines:
        return
    lines.sort(key=lambda line: (line.low, line.high))
    if len(lines) > MAX_SORTED_LINES:
        channel.num_overlaps = len(lines)
    costs = [[_cost(first, second) for second in lines] for first in lines]
    order = _least_cost_order(costs) if len(lines) <= MAX_SORTED_LINES else list(range(len(lines)))
    for position, index in enumerate(order):
        track = 0
        for earlier in order[:position]:
            other = lines[earlier]
            overlap = min(other.high, lines[index].high) - max(other.low, lines[index].low)
            if overlap > -MIN_SPACING or costs[earlier][index] != costs[index][earlier]:
                track = max(track, other.track + 1)
                channel.num_overlaps += costs[earlier][index] >= OVERLAP_COST
        lines[index].track = track
    channel.num_tracks = 1 + max(line.track for line in lines)


def _cost(first: Line, second: Line) -> int:
    """Return the crossings, and at a high price the overlaps, when ``first`` has the track before ``second``."""
    low, high = second.low, second.high
    crossings = sum(low < place < high for place in set(first.right))
    low, high = first.low, first.high
    crossings += sum(low < place < high for place in set(second.left))
    overlaps = sum(abs(a - b) < MIN_SPACING for a in set(first.right) for b in set(second.left))
    return crossings + OVERLAP_COST * overlaps


def _least_cost_order(costs: list[list[int]]) -> list[int]:
    """Return an order in which moving any single line gains nothing."""
    order = list(range(len(costs)))
    for _ in range(8):
        has_moved = False
        for index in range(len(costs)):
            at = order.index(index)
            order.pop(at)
            best, least, total = 0, 0, 0
            here = 0
            for position, other in enumerate(order):
                total += costs[other][index] - costs[index][other]
                if total < least:
                    best, least = position + 1, total
                if position + 1 == at:
                    here = total
            if least < here:
                at, has_moved = best, True
            order.insert(at, index)
        if not has_moved:
            break
    return order


def jogs(channel: Channel) -> Iterator[Line]:
    """Iterate over the lines that take a track."""
    return (line for line in channel.lines.values() if line.track >= 0)
