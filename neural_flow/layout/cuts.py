"""Where to break a long row: at the gaps with fewest lines and no open frame, into rows that a page can take."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from neural_flow.layout._base import LANE_WIDTH, SHEETS, TRACK_PITCH
from neural_flow.layout.bands import BORDER_TRACK, FIRST_TRACK, LAST_TRACK
from neural_flow.layout.channels import Line
from neural_flow.layout.frame_boxes import open_frames, row_end, row_start
from neural_flow.layout.layered import Draft
from neural_flow.layout.plan import Plan

WINDOW = 0.4
"""Of a row's length, to either side of the ideal cut; small diagrams search a whole row."""
LINE_PENALTY = 0.04
GROUP_PENALTY = 0.3
FOLD_PENALTY = 2.0
CROSSING_COST = 0.3
ROW_COST = 0.03
RAGGED_COST = 0.1
"""Of a row that leaves the whole width unused."""
TOO_LONG = 100.0
"""Cost of a row of one layer that is longer than it may be, so that the rest is still broken well."""
MAX_THOROUGH_LAYERS = 400


@dataclass(slots=True)
class Ruler:
    """What every wrapping of one draft is measured with, by layer or by the gap before it."""

    positions: list[float]
    """The middle of each gap along the flow."""
    penalties: list[float]
    frame_penalties: list[float]
    costs: list[float]
    """What a cut at each gap costs a page."""
    lows: list[float]
    highs: list[float]
    starts: list[float]
    """Where a row that starts with each layer starts, and where one that ends before it ends."""
    ends: list[float]
    enters: list[float]
    """Room before a row for the lines that enter it, and after one for those that leave it."""
    leaves: list[float]

    def row_length(self, start: int, stop: int) -> float:
        """Return the least length of a row of the layers from ``start`` to before ``stop``, its lines included.

        All rows start below each other: the lines that enter the next row move this one too.
        """
        length = self.ends[stop] - self.starts[start]
        enter = self.enters[start] if start else 0.0
        if stop == len(self.lows):
            return length + enter
        return length + max(enter, self.enters[stop]) + self.leaves[stop]


def measure(draft: Draft) -> Ruler:
    """Return the ruler of a draft."""
    plan, tree = draft.plan, draft.tree
    grid = plan.grid
    gaps = range(grid.num_layers + 1)
    frame_penalties = [_frame_penalty(draft, layer) for layer in gaps]
    lows: list[float] = []
    highs: list[float] = []
    for row in grid.rows:
        low, high = float("inf"), float("-inf")
        for element in row:
            is_node = grid.is_node(element)
            low = min(low, plan.x[element] - (plan.shapes[element].before if is_node else LANE_WIDTH / 2))
            high = max(high, plan.x[element] + (plan.shapes[element].after if is_node else LANE_WIDTH / 2))
        lows.append(low)
        highs.append(high)
    num_crossing = [len(channel.lines) for channel in plan.channels]
    return Ruler(
        positions=[
            (closed + opening) / 2 for closed, opening in zip(plan.bands.closed, plan.bands.opening, strict=True)
        ],
        penalties=[
            LINE_PENALTY * max(0, len(channel.lines) - 1) + penalty
            for channel, penalty in zip(plan.channels, frame_penalties, strict=True)
        ],
        frame_penalties=frame_penalties,
        costs=[
            penalty + CROSSING_COST * max(0, count - 1)
            for penalty, count in zip(frame_penalties, num_crossing, strict=True)
        ],
        lows=lows,
        highs=highs,
        starts=[row_start(plan, tree, layer) for layer in gaps],
        ends=[row_end(plan, tree, layer) for layer in gaps],
        enters=[room_before(draft, layer, num_crossing[layer]) for layer in gaps],
        leaves=[FIRST_TRACK + TRACK_PITCH * max(0, count - 1) for count in num_crossing],
    )


def _frame_penalty(draft: Draft, layer: int) -> float:
    """Return what cutting the frames that are open before ``layer`` costs: a repeat is one thing, a group a place."""
    if not draft.tree.frames:
        return 0.0
    return sum(
        FOLD_PENALTY if draft.tree.frames[frame].kind == "fold" else GROUP_PENALTY
        for frame in open_frames(draft.plan, draft.tree, layer)
    )


def even_cuts(ruler: Ruler, num_rows: int) -> list[int] | None:
    """Return the layers that start rows after the first: rows of near equal length, cut at the narrowest gaps.

    Each cut may lie within a part of a row's length round its ideal place; the cheapest sequence is found by dynamic
    programming from left to right.
    """
    positions = ruler.positions
    num_layers = len(positions) - 1
    ideal = (positions[-1] - positions[0]) / num_rows
    costs: dict[int, float] = {0: 0.0}
    steps: list[dict[int, int]] = []
    window = ideal if num_layers <= MAX_THOROUGH_LAYERS else ideal * WINDOW
    for index in range(1, num_rows + 1):
        layers = _candidates(positions, positions[0] + ideal * index, window) if index < num_rows else [num_layers]
        found: dict[int, float] = {}
        came_from: dict[int, int] = {}
        for layer in layers:
            for start, cost in costs.items():
                if start < layer:
                    total = cost + ((positions[layer] - positions[start]) / ideal - 1.0) ** 2
                    if layer not in found or total < found[layer]:
                        found[layer], came_from[layer] = total, start
        if not found:
            return None
        costs = {layer: cost + (ruler.penalties[layer] if layer < num_layers else 0.0) for layer, cost in found.items()}
        steps.append(came_from)
    cuts: list[int] = []
    layer = num_layers
    for came_from in reversed(steps[1:]):
        layer = came_from[layer]
        cuts.append(layer)
    return cuts[::-1]


def _candidates(positions: list[float], goal: float, window: float) -> list[int]:
    """Return the gaps near ``goal``, at least the nearest one."""
    low = bisect_left(positions, goal - window, 1, len(positions) - 1)
    high = bisect_right(positions, goal + window, 1, len(positions) - 1)
    if low < high:
        return list(range(low, high))
    return [min(range(1, len(positions) - 1), key=lambda layer: abs(positions[layer] - goal), default=0)]


def cuts_within(ruler: Ruler, limit: float) -> list[int]:
    """Return the layers that start rows after the first, so that no row is longer than ``limit``, as text is broken.

    The cheapest sequence of cuts; a single layer that is longer makes a row of its own.
    """
    num_layers = len(ruler.lows)
    best = [0.0] * (num_layers + 1)
    came_from = [0] * (num_layers + 1)
    for stop in range(1, num_layers + 1):
        found: tuple[float, int] | None = None
        for start in range(stop - 1, -1, -1):
            unused = 1.0 - ruler.row_length(start, stop) / limit
            if unused < 0.0 and start < stop - 1:
                # A longer row may still fit, where fewer lines enter it.
                if ruler.ends[stop] - ruler.starts[start] > limit:
                    break
                continue
            row = RAGGED_COST * unused**2 if unused >= 0.0 else TOO_LONG
            cost = best[start] + ROW_COST + (row if stop < num_layers or unused < 0.0 else 0.0)
            if found is None or cost < found[0]:
                found = cost, start
        cost, came_from[stop] = found or (0.0, 0)
        best[stop] = cost + (ruler.costs[stop] if stop < num_layers else 0.0)
    cuts: list[int] = []
    layer = came_from[num_layers]
    while layer:
        cuts.append(layer)
        layer = came_from[layer]
    return cuts[::-1]


def crossing_lines(plan: Plan, layer: int) -> list[tuple[int, Line]]:
    """Return the lines of a gap, those that cross it from the highest place to the lowest."""
    lines = [(key, line) for key, line in plan.channels[layer].lines.items() if line.left and line.right]
    lines.sort(key=lambda item: (-item[1].left[0], item[0]))
    turning = [(key, line) for key, line in plan.channels[layer].lines.items() if not line.left or not line.right]
    return [*turning, *lines]


def room_before(draft: Draft, layer: int, num_lines: int) -> float:
    """Return the room before a row for the lines that enter it."""
    return max(0, num_lines - 1) * TRACK_PITCH + last_stretch(draft, layer)


def last_stretch(draft: Draft, layer: int) -> float:
    """Return the room between the last line that enters a row and what the row starts with."""
    opening = draft.plan.channels[layer].opening
    # The sheets behind a repeat reach upwards, which in columns is towards the line that enters.
    sheets = SHEETS if draft.direction == "tb" and any(draft.tree.frames[f].kind == "fold" for f in opening) else 0.0
    return BORDER_TRACK + sheets if opening or open_frames(draft.plan, draft.tree, layer) else LAST_TRACK
