"""The gaps between layers, where orthogonal lines change their place: one track per line that has to jog.

A line comes from one element of the layer before the gap and goes to its targets in the layer after it. Return
arrows turn round in a gap: both of their ends lie on one side. Where frames close or open in a gap, lines that stay
inside them jog inside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise

from neural_flow.layout.grid import Grid

MIN_SPACING = 3.0
OVERLAP_COST = 1000
MAX_SORTED_LINES = 60
SAME_PLACE = 0.01


class Zone(IntEnum):
    """Which part of a gap: before frames close, between frames, after frames open."""

    CLOSING = 0
    BETWEEN = 1
    OPENING = 2


@dataclass(slots=True)
class Line:
    """What one element sends through one gap: places across the flow on either side, and the track it takes."""

    left: list[float] = field(default_factory=list[float])
    right: list[float] = field(default_factory=list[float])
    right_frames: list[frozenset[int]] = field(default_factory=list[frozenset[int]])
    """Which of the frames that open in this gap hold each right end."""
    is_left_inside: bool = False
    """Whether the line turns round within a frame that closes in this gap."""
    zone: Zone = Zone.BETWEEN
    track: int = -1

    @property
    def low(self) -> float:
        """Lowest place."""
        return min(min(self.left, default=float("inf")), min(self.right, default=float("inf")))

    @property
    def high(self) -> float:
        """Highest place."""
        return max(max(self.left, default=float("-inf")), max(self.right, default=float("-inf")))

    @property
    def is_straight(self) -> bool:
        """Return whether the line needs no track."""
        return self.high - self.low < SAME_PLACE

    @property
    def main_end(self) -> float:
        """Return the right end that lies nearest to where the line comes from."""
        return min(self.right, key=lambda place: (abs(place - self.left[0]), place))

    def choose_zone(self) -> None:
        """Jog inside the opening frames if all of the line ends in the same of them."""
        is_jogging = any(
            not self.left or any(abs(place - other) >= SAME_PLACE for other in self.left) for place in self.right
        )
        if self.is_left_inside and not is_jogging:
            self.zone = Zone.CLOSING
        elif is_jogging and len(self.left) < 2 and len(set(self.right_frames)) == 1 and self.right_frames[0]:
            self.zone = Zone.OPENING


@dataclass(slots=True)
class Channel:
    """One gap: its lines by key (the element they come from, or ``-1 - i`` where return arrow ``i`` ends)."""

    closing: list[int] = field(default_factory=list[int])
    """Frames that close in the gap, innermost first."""
    opening: list[int] = field(default_factory=list[int])
    """Frames that open in the gap, outermost first."""
    lines: dict[int, Line] = field(default_factory=dict[int, Line])
    num_tracks: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Tracks of each zone."""
    num_overlaps: int = 0

    def line(self, key: int) -> Line:
        """Return the line of ``key``, made on first use."""
        found = self.lines.get(key)
        if found is None:
            found = self.lines[key] = Line()
        return found

    def jogs(self) -> Iterator[Line]:
        """Iterate over the lines that take a track."""
        return (line for line in self.lines.values() if line.track >= 0)


def make_channels(grid: Grid, x: list[float], in_ports: dict[int, float]) -> list[Channel]:
    """Return the channel before each layer, and the one after the last layer, tracks not yet assigned."""
    graph = grid.graph
    channels = [Channel() for _ in range(grid.num_layers + 1)]
    _note_frames(grid, channels)

    def connect(layer: int, upper: int, lower: int, end: float) -> None:
        channel = channels[layer]
        line = channel.line(upper)
        if not line.left:
            line.left.append(x[upper])
        line.right.append(end)
        line.right_frames.append(frozenset(grid.frames[lower]).intersection(channel.opening))

    for source, lanes in grid.buses.items():
        upper = source
        for lane in lanes:
            connect(grid.layer[lane], upper, lane, x[lane])
            upper = lane
    for edge in range(graph.num_edges):
        target = graph.target[edge]
        turn = grid.turns.get(edge)
        lower = target if turn is None else turn
        end = x[target] + in_ports.get(edge, 0.0) if turn is None else x[turn]
        connect(grid.layer[target], grid.hop_before(edge), lower, end)
    for index, (lanes, (source, target, _)) in enumerate(zip(grid.backs, graph.returns, strict=True)):
        for upper, lower in pairwise(lanes):
            connect(grid.layer[lower], upper, lower, x[lower])
        first, last = back_ends(grid, index)
        out = channels[grid.layer[source] + 1]
        line = out.line(source)
        line.left = [*(line.left or [x[source]]), x[last]]
        line.is_left_inside = bool(out.closing) and _is_within(grid, last, out.closing)
        entry = channels[grid.layer[target]]
        line = entry.line(-1 - index)
        line.right.extend([x[first], x[target] + in_ports.get(-1 - index, 0.0)])
        line.right_frames.extend([frozenset(grid.frames[first]).intersection(entry.opening)] * 2)
    return channels


def back_ends(grid: Grid, index: int) -> tuple[int, int]:
    """Return the lane of return arrow ``index`` in its target's layer and the one in its source's layer."""
    lanes = grid.backs[index]
    source, target, _ = grid.graph.returns[index]
    return (lanes[0], lanes[-1]) if grid.layer[target] <= grid.layer[source] else (lanes[-1], lanes[0])


def _note_frames(grid: Grid, channels: list[Channel]) -> None:
    """Note in which gaps frames open and close: before their first layer, after their last."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    depth: dict[int, int] = {}
    for node in range(grid.graph.num_nodes):
        for level, frame in enumerate(grid.frames[node]):
            layer = grid.layer[node]
            first[frame] = min(first.get(frame, layer), layer)
            last[frame] = max(last.get(frame, layer), layer)
            depth[frame] = max(depth.get(frame, 0), level)
    for frame in sorted(first, key=lambda frame: (depth[frame], frame)):
        channels[first[frame]].opening.append(frame)
        channels[last[frame] + 1].closing.insert(0, frame)


def _is_within(grid: Grid, element: int, frames: list[int]) -> bool:
    return any(frame in frames for frame in grid.frames[element])


def assign_tracks(channels: list[Channel]) -> None:
    """Order the jogging lines of each gap so that they cross least; lines far apart share a track."""
    for channel in channels:
        lines = [line for line in channel.lines.values() if not line.is_straight]
        if not lines:
            continue
        if len(lines) > MAX_SORTED_LINES:
            channel.num_overlaps += len(lines)
            continue
        for line in lines:
            line.choose_zone()
        for zone in Zone:
            _fill_zone(channel, zone, [line for line in lines if line.zone == zone])
        channel.num_overlaps += _overlaps_between_zones(lines)


def _fill_zone(channel: Channel, zone: Zone, lines: list[Line]) -> None:
    if not lines:
        return
    lines.sort(key=lambda line: (line.low, line.high))
    costs = [[_cost(first, second) for second in lines] for first in lines]
    order = _least_cost_order(costs)
    for position, index in enumerate(order):
        track = 0
        for earlier in order[:position]:
            other = lines[earlier]
            overlap = min(other.high, lines[index].high) - max(other.low, lines[index].low)
            if overlap > -MIN_SPACING or costs[earlier][index] != costs[index][earlier]:
                track = max(track, other.track + 1)
                channel.num_overlaps += costs[earlier][index] >= OVERLAP_COST
        lines[index].track = track
    channel.num_tracks[zone] = 1 + max(line.track for line in lines)


def _overlaps_between_zones(lines: list[Line]) -> int:
    return sum(_cost(first, second) >= OVERLAP_COST for first in lines for second in lines if first.zone < second.zone)


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
