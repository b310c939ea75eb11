"""Break a long row into rows of a page, as text breaks into lines: the flow never turns round.

Cuts go where fewest lines are live and no frame is open. Lines that cross a cut run back through the gutter between
the two rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

from neural_flow.drawing import LayoutOptions
from neural_flow.layout._base import GUTTER, GUTTER_PITCH, TRACK_PITCH
from neural_flow.layout.bands import FIRST_TRACK
from neural_flow.layout.channels import SAME_PLACE, Line, Zone
from neural_flow.layout.cuts import (
    MAX_THOROUGH_LAYERS,
    ROW_COST,
    Ruler,
    crossing_lines,
    cuts_within,
    even_cuts,
    last_stretch,
    measure,
    room_before,
)
from neural_flow.layout.frame_boxes import row_end, row_reach, row_start
from neural_flow.layout.layered import Draft
from neural_flow.layout.plan import Cut, Plan, Squeeze
from neural_flow.layout.squeeze import row_tops, squeezes

HEADER_ROOM = 48.0
"""What a drawing adds above and below its layout: header and legend."""
OVERFLOW_COST = 10.0
MISFIT_COST = 0.3
"""Of a page that does not fit, however little it is too large."""
UNUSED_COST = 0.5
ASPECT_COST = 0.3
TALL_COST = 1.5
MAX_HEIGHT = 640.0
"""A page of paper is not much higher: what is higher is worse by the share that it is too high."""
PAPER_WIDTH = 500.0
"""A layout that is no wider keeps its text at its size on a page of a paper."""
WIDE_COST = 0.3
WIDOW_COST = 0.3
"""Of a page with a row that is all but empty."""
MAX_STEPS = 3
"""Numbers of rows tried on either side of the likely one."""
MAX_UNEVEN_LAYERS = 48
"""Longer rows are cut into rows of near equal length only: among so many gaps there are always good ones."""
UNEVEN = (1.05, 1.25, 1.5, 1.75)
"""Lengths of rows tried, as shares of equal ones."""
UNEVEN_COST = 0.2
"""Rows of near equal length look better, unless others save much."""
MIN_RISE = 48.0
MAX_TRIES = 4
"""To keep a given width: all rows start where the one with most lines before it does, which is known at last."""


@dataclass(slots=True)
class Wrapping:
    """A draft broken into rows, with the size of its page."""

    draft: Draft
    width: float
    height: float
    num_rows: int
    cut_cost: float
    """What the frames and lines that its cuts go through cost."""
    shortest: float
    """The length of the shortest row, as a share of the longest."""
    is_even: bool = True
    """Whether its rows were made to be of near equal length."""


def wrappings(draft: Draft, options: LayoutOptions) -> list[Wrapping]:
    """Return the draft broken into rows whose page comes nearest to the one asked for, the best first."""
    num_layers = draft.plan.grid.num_layers
    if not num_layers:
        return []
    ruler = measure(draft)
    target = options.page_aspect if draft.direction == "lr" else 1 / options.page_aspect
    length = ruler.positions[-1] - ruler.positions[0]
    low, high = _row_extent(draft, ruler, range(num_layers))
    ideal = math.sqrt(length / ((high - low + GUTTER) * target)) if length else 1.0
    nearest = max(1, round(ideal))
    reach = MAX_STEPS if num_layers <= MAX_THOROUGH_LAYERS else 2
    counts = [count for count in range(max(1, nearest - reach), nearest + reach + 1) if count <= num_layers]
    if options.is_width_fixed and draft.direction == "tb":
        counts = sorted({*counts, *range(1, min(reach, num_layers) + 1)})
    is_kept = options.is_width_fixed and draft.direction == "lr"
    found = [_narrow(draft, ruler, options.max_width)] if is_kept else []
    even = {tuple(cuts) for count in counts if (cuts := even_cuts(ruler, count)) is not None}
    found += [_wrap(draft, ruler, list(cuts)) for cuts in sorted(even)]
    if num_layers <= MAX_UNEVEN_LAYERS:
        limits = [length / count * share for count in counts if count > 1 for share in UNEVEN]
        uneven = {tuple(cuts_within(ruler, limit)) for limit in limits} - even
        found += [replace(_wrap(draft, ruler, list(cuts)), is_even=False) for cuts in sorted(uneven)]
    return sorted(found, key=lambda wrapping: page_cost(wrapping, options))


def wrap(draft: Draft, num_rows: int) -> Wrapping | None:
    """Return ``draft`` in ``num_rows`` rows, or None where it has too few places to cut."""
    ruler = measure(draft)
    cuts = even_cuts(ruler, num_rows) if ruler.lows else None
    return None if cuts is None else _wrap(draft, ruler, cuts)


def _narrow(draft: Draft, ruler: Ruler, width: float) -> Wrapping:
    """Return the draft in rows within ``width``, as far as its single layers allow."""
    limit = width
    found = _wrap(draft, ruler, cuts_within(ruler, limit))
    for _ in range(MAX_TRIES):
        if found.width <= width or limit <= found.width - width:
            break
        limit -= found.width - width
        found = min(found, _wrap(draft, ruler, cuts_within(ruler, limit)), key=lambda wrapping: wrapping.width)
    return found


def page_cost(wrapping: Wrapping, options: LayoutOptions) -> tuple[float, int]:
    """Return how badly a wrapping fits the page: how far it must shrink, how far its aspect is off, frames cut."""
    if not wrapping.width or not wrapping.height:
        return 0.0, 0
    aspect = abs(math.log(wrapping.width / (wrapping.height + HEADER_ROOM) / options.page_aspect))
    cost = wrapping.cut_cost + ROW_COST * wrapping.num_rows + WIDOW_COST * (1.0 - wrapping.shortest) ** 2
    if options.is_width_fixed:
        # The width is given and the height free: what is too wide is worst, then what leaves the width unused.
        share = wrapping.width / options.max_width
        cost += UNUSED_COST * (1.0 - share) if share <= 1.0 else OVERFLOW_COST * share
        cost += ASPECT_COST * aspect + tall_cost(options.max_width, wrapping.height + HEADER_ROOM)
    else:
        shrink = max(wrapping.width / options.max_width, wrapping.height / options.max_height, 1.0)
        misfit = OVERFLOW_COST if options.is_fit_first else MISFIT_COST
        cost += (misfit if shrink > 1.0 else 0.0) + (0.0 if wrapping.is_even else UNEVEN_COST)
        cost += 2.0 * math.log(shrink) + aspect + WIDE_COST * math.log(max(wrapping.width / PAPER_WIDTH, 1.0))
    return cost, wrapping.num_rows


def tall_cost(width: float, height: float) -> float:
    """Return what it costs a page of a given width that it is too high for a page of paper, or for its width."""
    return TALL_COST * max(0.0, math.log(height / max(MAX_HEIGHT, width * 9 / 16)))


def _wrap(draft: Draft, ruler: Ruler, cuts: list[int]) -> Wrapping:
    """Return the draft with rows that start at ``cuts``, and at its first layer."""
    plan = draft.plan
    bounds = [0, *cuts, plan.grid.num_layers]
    rows = [range(first, last) for first, last in pairwise(bounds)]
    row_of = [index for index, row in enumerate(rows) for _ in row]
    crossing = {layer: crossing_lines(plan, layer) for layer in cuts}
    margin = max((room_before(draft, layer, len(lines)) for layer, lines in crossing.items()), default=0.0)
    shifts: list[tuple[float, float]] = []
    wrapped: dict[int, Cut] = {}
    across = widest = gutter = 0.0
    above: list[tuple[float, float]] = []
    """How far along the flow each row reaches, and where there is room below it and its lines."""
    drawn: dict[int, list[Squeeze]] = {}
    for index, row in enumerate(rows):
        low, high = _row_extent(draft, ruler, row)
        if len(rows) > 1:
            drawn[index] = squeezes(plan, draft.tree, draft.rooms, row)
            high -= sum(amount for _, amount in drawn[index])
        along = margin - row_start(plan, draft.tree, row.start)
        rise = 0.0
        if index:
            lines = crossing[row.start]
            gutter = GUTTER + GUTTER_PITCH * max(0, len(lines) - 1)
            last = shifts[-1][0] + row_end(plan, draft.tree, row.start)
            enter = (margin, along)
            wrapped[row.start] = _run_back(draft, row.start, lines, last, across + GUTTER / 2, enter)
            reach = last + FIRST_TRACK + TRACK_PITCH * max(0, len(lines) - 1)
            widest = max(widest, reach)
            above.append((reach + GUTTER, across + gutter))
            tops = row_tops(plan, draft.tree, draft.rooms, row, drawn[index])
            rise = _rise([(start + along, across + gutter + top - low) for start, top in tops], above)
            across += gutter
        shifts.append((along, across - low - rise))
        across = max(across - gutter, across - rise + high - low)
        widest = max(widest, along + row_end(plan, draft.tree, row.stop))
    done = replace(draft, plan=replace(plan, row_of=row_of, shifts=shifts, cuts=wrapped, squeezes=drawn))
    # Return arrows turn round before the first row and after the last one.
    first = min([0.0, *(place + shifts[0][0] for place in _turning_places(plan, 0))])
    last = max([widest, *(place + shifts[-1][0] for place in _turning_places(plan, plan.grid.num_layers))])
    length = last - first
    lengths = [ruler.ends[row.stop] - ruler.starts[row.start] for row in rows]
    width, height = (length, across) if draft.direction == "lr" else (across, length)
    return Wrapping(
        draft=done,
        width=width,
        height=height,
        num_rows=len(rows),
        cut_cost=sum(ruler.costs[layer] for layer in cuts),
        shortest=min(lengths) / max(max(lengths), 1.0),
    )


def _rise(tops: list[tuple[float, float]], above: list[tuple[float, float]]) -> float:
    """Return by how much a row may move up beside the rows above it, each of which is shorter; 0 where that is little.

    Args:
        tops: where along the flow each part of the row starts, and where across the flow.
        above: how far along the flow each row above reaches, and from where across the flow there is room below it.
    """
    room = min(top - max([0.0, *(free for reach, free in above if start < reach)]) for start, top in tops)
    return room if room >= MIN_RISE else 0.0


def _turning_places(plan: Plan, layer: int) -> list[float]:
    """Return where lines turn round in a gap along the flow."""
    tracks = plan.bands.tracks[layer]
    return [tracks[line.zone] + line.track * TRACK_PITCH for line in plan.channels[layer].jogs()]


def _row_extent(draft: Draft, ruler: Ruler, row: range) -> tuple[float, float]:
    """Return how far a row reaches across the flow, frames with their titles included."""
    low, high = min(ruler.lows[row.start : row.stop]), max(ruler.highs[row.start : row.stop])
    if draft.tree.frames:
        for first, last in row_reach(draft.plan, draft.tree, draft.rooms, list(row)).values():
            low, high = min(low, first), max(high, last)
    return low, high


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
    enter = row[0] - last_stretch(draft, layer)
    for index, (key, line) in enumerate(lines):
        if line.left:
            cut.leave[key] = leave + FIRST_TRACK + TRACK_PITCH * index
        if line.left and line.right:
            cut.back[key] = gutter + GUTTER_PITCH * index
        if line.right:
            cut.enter[key] = enter - TRACK_PITCH * (len(lines) - 1 - index)
        # Lines part on their way along the row's start, but within a frame only once they have entered it.
        is_parting = bool(line.left) and max(line.right, default=0.0) - min(line.right, default=0.0) > SAME_PLACE
        if is_parting and line.track >= 0 and line.zone == Zone.OPENING:
            cut.jog[key] = plan.bands.tracks[layer][Zone.OPENING] + row[1] + line.track * TRACK_PITCH
    return cut
