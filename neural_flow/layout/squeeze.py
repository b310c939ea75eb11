"""Draw the parts of a row together: what stands far apart for the sake of another row leaves much white in this one."""

from __future__ import annotations

from collections.abc import Sequence

from neural_flow.layout._base import LANE_WIDTH
from neural_flow.layout.frame_boxes import row_reach
from neural_flow.layout.frames import FrameTree
from neural_flow.layout.plan import Plan, Squeeze
from neural_flow.layout.settle import FrameRooms

MAX_WHITE = 26.0
"""Across the flow, between what stands in a row."""


def squeezes(plan: Plan, tree: FrameTree, rooms: FrameRooms, layers: Sequence[int]) -> list[Squeeze]:
    """Return the bands across the flow in which a row of ``layers`` has nothing, as far as they are wider than needed.

    Frames stay as they are. The order of all places is kept, so no line that was clear of another one meets it.
    """
    taken: list[tuple[float, float]] = []
    for layer in layers:
        for element in plan.grid.rows[layer]:
            at = plan.across(element)
            is_node = plan.grid.is_node(element)
            before = plan.shapes[element].before if is_node else LANE_WIDTH / 2
            after = plan.shapes[element].after if is_node else LANE_WIDTH / 2
            taken.append((at - before, at + after))
    if tree.frames:
        taken += row_reach(plan, tree, rooms, list(layers)).values()
    taken.sort()
    found: list[Squeeze] = []
    end = taken[0][1]
    for low, high in taken:
        if low - end > MAX_WHITE:
            found.append((low, low - end - MAX_WHITE))
        end = max(end, high)
    return found


def row_tops(
    plan: Plan, tree: FrameTree, rooms: FrameRooms, layers: Sequence[int], drawn: Sequence[Squeeze]
) -> list[tuple[float, float]]:
    """Return where along the flow each part of a row starts, and the least place across the flow that it takes.

    Parts are layers, each with the gap before it, and frames.
    """
    tops: list[tuple[float, float]] = []
    for layer in layers:
        start = plan.bands.end[layer - 1] if layer > layers[0] else float("-inf")
        for element in plan.grid.rows[layer]:
            before = plan.shapes[element].before if plan.grid.is_node(element) else LANE_WIDTH / 2
            tops.append((start, _drawn_in(plan.across(element), drawn) - before))
    if tree.frames:
        for frame, (low, _) in row_reach(plan, tree, rooms, list(layers)).items():
            is_new = tree.spans[frame][0] > layers[0] and frame in plan.bands.frame_start
            start = plan.bands.frame_start[frame] if is_new else float("-inf")
            tops.append((start, _drawn_in(low, drawn)))
    return tops


def _drawn_in(place: float, drawn: Sequence[Squeeze]) -> float:
    return place - sum(amount for start, amount in drawn if place >= start)
