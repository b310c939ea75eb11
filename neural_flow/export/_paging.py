"""Cuts a page that readers would refuse into smaller ones, between cards."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import numpy as np

from neural_flow.drawing import Box, Image, Mark, Path, Rect, Scene, Text
from neural_flow.export._lowering import left_of
from neural_flow.records import Array
from neural_flow.text_metrics import text_width

Extent = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def pages_of(scene: Scene, max_side: float, font_file: str | None = None) -> Iterator[tuple[Box, tuple[Mark, ...]]]:
    """Yield the window of each page of ``scene`` and the marks to draw on it, in reading order.

    No side of a window is longer than ``max_side``. Cards are whole: one that lies on a cut is drawn on the pages
    whose windows reach round it; lines run to the edge of their page and go on on the next.
    """
    if max(scene.width, scene.height) <= max_side:
        yield Box(x=0, y=0, width=scene.width, height=scene.height), scene.marks
        return
    extents = np.array([_extent(mark, font_file) for mark in scene.marks]).reshape(-1, 4)
    whole = _wholes(scene, extents)
    boxes = whole[~np.isnan(whole[:, 0])]
    columns = _windows(scene.width, max_side, boxes[:, [0, 2]])
    for top, bottom in _windows(scene.height, max_side, boxes[:, [1, 3]]):
        for left, right in columns:
            shown = _is_shown(extents, whole, (left, top, right, bottom), max_side)
            marks = tuple(scene.marks[index] for index in np.flatnonzero(shown))
            if marks:
                yield Box(x=left, y=top, width=right - left, height=bottom - top), marks


def _wholes(scene: Scene, extents: Array) -> Array:
    """Return for each mark the extent of what it may not be torn from: its card, its own if alone; NaN for lines."""
    classes = {group.group_id: set(group.css_class.split()) for group in scene.groups}
    whole = np.full_like(extents, np.nan)
    cards: dict[str, list[int]] = {}
    for index, mark in enumerate(scene.marks):
        if classes.get(mark.group, set()) & {"nf-stage", "nf-ring"}:
            cards.setdefault(mark.group, []).append(index)
        elif isinstance(mark, (Text, Image)):
            whole[index] = extents[index]
    for members in cards.values():
        own = extents[members]
        whole[members] = (*own[:, :2].min(axis=0), *own[:, 2:].max(axis=0))
    return whole


def _is_shown(extents: Array, whole: Array, window: Extent, max_side: float) -> Array:
    left, top, right, bottom = window
    touches = (extents[:, 0] < right) & (extents[:, 2] > left) & (extents[:, 1] < bottom) & (extents[:, 3] > top)
    is_line = np.isnan(whole[:, 0])
    is_huge = (whole[:, 2] - whole[:, 0] > max_side / 4) | (whole[:, 3] - whole[:, 1] > max_side / 4)
    is_inside = (whole[:, 0] >= left) & (whole[:, 2] <= right) & (whole[:, 1] >= top) & (whole[:, 3] <= bottom)
    return touches & (is_line | is_huge | is_inside)


def _windows(size: float, max_side: float, spans: Array) -> list[tuple[float, float]]:
    """Return windows over ``size`` points, cut where the fewest of ``spans`` lie and reaching round those that do."""
    if size <= max_side:
        return [(0.0, size)]
    spans = spans[spans[:, 1] - spans[:, 0] <= max_side / 4]
    longest = float((spans[:, 1] - spans[:, 0]).max(initial=0.0))
    step = max_side - 2 * longest
    windows: list[tuple[float, float]] = []
    first = start = 0.0
    while size - start > step:
        cut = _best_cut(start, step, start + (size - start) / ceil((size - start) / step), spans)
        torn = spans[(spans[:, 0] < cut) & (spans[:, 1] > cut)]
        windows.append((first, float(torn[:, 1].max(initial=cut))))
        first, start = float(torn[:, 0].min(initial=cut)), cut
    return [*windows, (first, size)]


def _best_cut(start: float, step: float, target: float, spans: Array) -> float:
    starts, ends = np.sort(spans[:, 0]), np.sort(spans[:, 1])
    # Half way between the end of one card and the start of the next; the target itself for a page without cards.
    nexts = starts[np.minimum(np.searchsorted(starts, ends), len(starts) - 1)] if len(starts) else ends
    places = np.append(np.where(nexts > ends, (nexts + ends) / 2, ends), target)
    places = places[(places > start + step / 2) & (places <= start + step)]
    num_torn = np.searchsorted(starts, places, "left") - np.searchsorted(ends, places, "right")
    return float(places[np.lexsort((np.abs(places - target), num_torn))[0]])


def _extent(mark: Mark, font_file: str | None) -> Extent:
    if isinstance(mark, Text):
        left = left_of(mark, font_file)
        width = text_width(mark.text, mark.size, mark.weight, font_file)
        return left, mark.y - mark.size, left + width, mark.y + mark.size / 3
    if isinstance(mark, Path):
        values = [value for _, *numbers in mark.commands for value in numbers]
        reach = mark.stroke_width
        xs, ys = values[::2] or [0.0], values[1::2] or [0.0]
        return min(xs) - reach, min(ys) - reach, max(xs) + reach, max(ys) + reach
    reach = mark.stroke_width if isinstance(mark, Rect) else 0.0
    return mark.x - reach, mark.y - reach, mark.x + mark.width + reach, mark.y + mark.height + reach
