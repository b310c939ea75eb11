"""Break a long row into rows of a page, as text breaks into lines: the flow never turns round.

Cuts go where fewest lines are live and no frame is open. Lines that cross a cut run back through the gutter between
the two rows.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise

from neural_flow.drawing import LayoutOptions
from neural_flow.layout._base import GUTTER, GUTTER_PITCH, LANE_WIDTH, TRACK_PITCH
from neural_flow.layout.bands import BORDER_TRACK, FIRST_TRACK, LAST_TRACK
from neural_flow.layout.channels import SAME_PLACE, Line, Zone
from neural_flow.layout.frame_boxes import open_frames, row_end, row_reach, row_start
from neural_flow.layout.layered import Draft
from neural_flow.layout.plan import Cut, Plan

WINDOW = 0.4
"""Of a row's length, to either side of the ideal cut; small diagrams search a whole row."""
LINE_PENALTY = 0.04
GROUP_PENALTY = 0.3
FOLD_PENALTY = 2.0
HEADER_ROOM = 48.0
"""What a drawing adds above and below its layout: header and legend."""
ROW_COST = 0.03
CROSSING_COST = 0.2
OVERFLOW_COST = 10.0
UNUSED_COST = 0.5
ASPECT_COST = 0.3
MAX_STEPS = 3
"""Numbers of rows tried on either side of the likely one."""
MAX_THOROUGH_LAYERS = 400


@dataclass(slots=True)
class Wrapping:
    """A draft broken into rows, with the size of its page."""

    draft: Draft
    width: float
    height: float
    num_rows: int
    cut_cost: float
    """What the frames and lines that its cuts go through cost."""


@dataclass(slots=True)
class _Ruler:
    """What every wrapping of one draft is measured with, by layer or by the gap before it."""

    positions: list[float]
    """The middle of each gap along the flow."""
    penalties: list[float]
    frame_penalties: list[float]
    lows: list[float]
    highs: list[float]


def wrappings(draft: Draft, options: LayoutOptions) -> list[Wrapping]:
    """Return the draft in the numbers of rows whose page comes nearest to the one asked for, the best first."""
    num_layers = draft.plan.grid.num_layers
    if not num_layers:
        return []
    ruler = _measure(draft)
    target = options.page_aspect if draft.direction == "lr" else 1 / options.page_aspect
    length = ruler.positions[-1] - ruler.positions[0]
    low, high = _row_extent(draft, ruler, range(num_layers))
    limit = options.max_width if draft.direction == "lr" else options.max_height
    ideal = math.sqrt(length / ((high - low + GUTTER) * target)) if length else 1.0
    least = math.ceil(length / limit) if options.is_width_fixed and draft.direction == "lr" else 1
    nearest = max(1, least, round(ideal))
    reach = MAX_STEPS if num_layers <= MAX_THOROUGH_LAYERS else 2
    counts = {max(1, least, nearest + step) for step in range(-reach, reach + 1)}
    if options.is_width_fixed:
        counts |= {least + step for step in range(MAX_STEPS + 1)}
    found = [
        wrapping
        for count in sorted(counts)
        if count <= num_layers and (wrapping := _wrap(draft, ruler, count)) is not None
    ]
    return sorted(found, key=lambda wrapping: page_cost(wrapping, options))


def wrap(draft: Draft, num_rows: int) -> Wrapping | None:
    """Return ``draft`` in ``num_rows`` rows, or None where it has too few places to cut."""
    return _wrap(draft, _measure(draft), num_rows)


def _measure(draft: Draft) -> _Ruler:
    plan = draft.plan
    grid = plan.grid
    frame_penalties = [_frame_penalty(draft, layer) for layer in range(grid.num_layers + 1)]
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
    return _Ruler(
        positions=[
            (closed + opening) / 2 for closed, opening in zip(plan.bands.closed, plan.bands.opening, strict=True)
        ],
        penalties=[
            LINE_PENALTY * max(0, len(channel.lines) - 1) + penalty
            for channel, penalty in zip(plan.channels, frame_penalties, strict=True)
        ],
        frame_penalties=frame_penalties,
        lows=lows,
        highs=highs,
    )


def page_cost(wrapping: Wrapping, options: LayoutOptions) -> tuple[float, int]:
    """Return how badly a wrapping fits the page: how far it must shrink, how far its aspect is off, frames cut."""
    if not wrapping.width or not wrapping.height:
        return 0.0, 0
    aspect = abs(math.log(wrapping.width / (wrapping.height + HEADER_ROOM) / options.page_aspect))
    cost = wrapping.cut_cost + ROW_COST * wrapping.num_rows
    if options.is_width_fixed:
        # The width is given and the height free: what is too wide is worst, then what leaves the width unused.
        share = wrapping.width / options.max_width
        cost += UNUSED_COST * (1.0 - share) if share <= 1.0 else OVERFLOW_COST * share
        cost += ASPECT_COST * aspect
    else:
        shrink = max(wrapping.width / options.max_width, wrapping.height / options.max_height, 1.0)
        cost += 2.0 * math.log(shrink) + aspect
    return cost, wrapping.num_rows


def _wrap(draft: Draft, ruler: _Ruler, num_rows: int) -> Wrapping | None:
    cuts = _choose_cuts(ruler, num_rows) if ruler.lows else None
    if cuts is None:
        return None
    plan = draft.plan
    bounds = [0, *cuts, plan.grid.num_layers]
    rows = [range(first, last) for first, last in pairwise(bounds)]
    row_of = [index for index, row in enumerate(rows) for _ in row]
    crossing = {layer: _crossing_lines(plan, layer) for layer in cuts}
    margin = max((_margin(draft, layer, len(lines)) for layer, lines in crossing.items()), default=0.0)
    shifts: list[tuple[float, float]] = []
    wrapped: dict[int, Cut] = {}
    across = widest = 0.0
    for index, row in enumerate(rows):
        low, high = _row_extent(draft, ruler, row)
        along = margin - row_start(plan, draft.tree, row.start)
        if index:
            lines = crossing[row.start]
            gutter = GUTTER + GUTTER_PITCH * max(0, len(lines) - 1)
            last = shifts[-1][0] + row_end(plan, draft.tree, row.start)
            enter = (margin, along)
            wrapped[row.start] = _run_back(draft, row.start, lines, last, across + GUTTER / 2, enter)
            across += gutter
            widest = max(widest, last + FIRST_TRACK + TRACK_PITCH * max(0, len(lines) - 1))
        shifts.append((along, across - low))
        across += high - low
        widest = max(widest, along + row_end(plan, draft.tree, row.stop))
    done = replace(draft, plan=replace(plan, row_of=row_of, shifts=shifts, cuts=wrapped))
    # Return arrows turn round before the first row and after the last one.
    first = min([0.0, *(place + shifts[0][0] for place in _turning_places(plan, 0))])
    last = max([widest, *(place + shifts[-1][0] for place in _turning_places(plan, plan.grid.num_layers))])
    length = last - first
    width, height = (length, across) if draft.direction == "lr" else (across, length)
    return Wrapping(
        draft=done,
        width=width,
        height=height,
        num_rows=num_rows,
        cut_cost=sum(ruler.frame_penalties[layer] + CROSSING_COST * max(0, len(crossing[layer]) - 1) for layer in cuts),
    )


def _turning_places(plan: Plan, layer: int) -> list[float]:
    """Return where lines turn round in a gap along the flow."""
    tracks = plan.bands.tracks[layer]
    return [tracks[line.zone] + line.track * TRACK_PITCH for line in plan.channels[layer].jogs()]


def _row_extent(draft: Draft, ruler: _Ruler, row: range) -> tuple[float, float]:
    """Return how far a row reaches across the flow, frames with their titles included."""
    low, high = min(ruler.lows[row.start : row.stop]), max(ruler.highs[row.start : row.stop])
    if draft.tree.frames:
        for first, last in row_reach(draft.plan, draft.tree, draft.rooms, list(row)).values():
            low, high = min(low, first), max(high, last)
    return low, high


def _frame_penalty(draft: Draft, layer: int) -> float:
    """Return what cutting the frames that are open before ``layer`` costs: a repeat is one thing, a group a place."""
    if not draft.tree.frames:
        return 0.0
    return sum(
        FOLD_PENALTY if draft.tree.frames[frame].kind == "fold" else GROUP_PENALTY
        for frame in open_frames(draft.plan, draft.tree, layer)
    )


def _choose_cuts(ruler: _Ruler, num_rows: int) -> list[int] | None:
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


def _crossing_lines(plan: Plan, layer: int) -> list[tuple[int, Line]]:
    """Return the lines of a gap, those that cross it from the highest place to the lowest."""
    lines = [(key, line) for key, line in plan.channels[layer].lines.items() if line.left and line.right]
    lines.sort(key=lambda item: (-item[1].left[0], item[0]))
    turning = [(key, line) for key, line in plan.channels[layer].lines.items() if not line.left or not line.right]
    return [*turning, *lines]


def _margin(draft: Draft, layer: int, num_lines: int) -> float:
    """Return the room before a row: for lines that enter, and for those that part once they have entered."""
    num_between = _num_parting(draft.plan, layer)
    return max(0, num_lines + num_between - 1) * TRACK_PITCH + _last_stretch(draft, layer)


def _last_stretch(draft: Draft, layer: int) -> float:
    has_border = draft.plan.channels[layer].opening or open_frames(draft.plan, draft.tree, layer)
    return BORDER_TRACK if has_border else LAST_TRACK


def _num_parting(plan: Plan, layer: int) -> int:
    return plan.channels[layer].num_tracks[Zone.BETWEEN]


def _run_back(
    draft: Draft,
    layer: int,
    lines: list[tuple[int, Line]],
    leave: float,
    gutter: float,
    row: tuple[float, float],
) -> Cut:
    """Return the way of each crossing line: the lowest leaves first, runs back highest and enters from outermost.

    ``leave`` is where the row ends, ``row`` where the next one starts and how far that row is moved along the flow.
    """
    cut = Cut()
    plan = draft.plan
    last = row[0] - _last_stretch(draft, layer)
    first_jog = last - TRACK_PITCH * max(0, _num_parting(plan, layer) - 1)
    enter = last - TRACK_PITCH * _num_parting(plan, layer)
    for index, (key, line) in enumerate(lines):
        if line.left:
            cut.leave[key] = leave + FIRST_TRACK + TRACK_PITCH * index
        if line.left and line.right:
            cut.back[key] = gutter + GUTTER_PITCH * index
        if line.right:
            cut.enter[key] = enter - TRACK_PITCH * (len(lines) - 1 - index)
        if line.left and max(line.right, default=0.0) - min(line.right, default=0.0) > SAME_PLACE and line.track >= 0:
            is_inner = line.zone == Zone.OPENING
            start = plan.bands.tracks[layer][Zone.OPENING] + row[1] if is_inner else first_jog
            cut.jog[key] = start + line.track * TRACK_PITCH
    return cut
