"""Drawing that kinds share: palettes, stacks of planes, frames, marks for what is not finite. Numpy only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import hypot, log2, sqrt
from typing import Any, Literal

import numpy as np

from neural_flow.drawing import Box, Image, Mark, Path, Point, Rect, Text
from neural_flow.records import Array, Summary
from neural_flow.summaries._base import DrawStyle
from neural_flow.summaries._colormaps import colormap
from neural_flow.summaries._pixels import MAX_INDEX, NEGATIVE_INFINITY, NOT_A_NUMBER, POSITIVE_INFINITY
from neural_flow.theme import rgb

IMAGE_LAYER = 3.0
FRAME_LAYER = 3.9
_PLANE_STEP = 0.1  # planes must be painted back to front, whatever an exporter batches within a layer
_MAX_FLAGS = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plane:
    """What one plane of a stack shows: pixels (with their palette), or a plain fill.

    ``is_dead`` strikes it through with a thin diagonal, ``is_constant`` hatches it.
    """

    pixels: Array | None = None
    palette: Array | None = None
    fill: str | None = None
    is_dead: bool = False
    is_constant: bool = False


def map_side(height: float, width: float, input_side: float) -> tuple[float, float]:
    """Return width and height in points of a map of ``height`` x ``width`` pixels.

    56 pt at the resolution of the input, 0.8 of that at half the resolution, never below 18 or above 64.
    """
    side = sqrt(max(height, 1) * max(width, 1))
    points = 56.0 * 0.8 ** log2(max(input_side, 1e-9) / side) if input_side > 0 else 56.0
    points = min(max(points, 18.0), 64.0)
    stretch = sqrt(min(max(width / max(height, 1), 1 / 3), 3.0))
    return points * stretch, points / stretch


def num_planes(num_channels: int, most: int = 6) -> int:
    """Return how many planes stand for ``num_channels``; never more planes than channels."""
    if num_channels < 2:
        return 1
    return min(max(round(log2(num_channels)) - 1, 2), most, num_channels)


def palette(style: DrawStyle, is_signed: bool, *, is_grey: bool = False) -> Array:
    """Return the uint8 ``[256, 3]`` palette of quantised values: 253 colours of the map, then ∓infinity and NaN.

    Inputs are grey, as pictures are; what a model makes of them has colours.
    """
    table = colormap("gray") if is_grey else style.diverging if is_signed else style.sequential
    return _palette(table.tobytes(), style.not_a_number)


@lru_cache(maxsize=32)
def _palette(table: bytes, not_a_number: str) -> Array:
    colors = np.frombuffer(table, np.uint8).reshape(256, 3)
    shown = np.empty((256, 3), np.uint8)
    shown[: MAX_INDEX + 1] = colors[np.rint(np.linspace(0, 255, MAX_INDEX + 1)).astype(int)]
    shown[NEGATIVE_INFINITY], shown[POSITIVE_INFINITY] = colors[0], colors[255]
    shown[NOT_A_NUMBER] = rgb(not_a_number)
    shown.flags.writeable = False
    return shown


def two_tone(first: str, second: str) -> Array:
    """Return a uint8 ``[256, 3]`` palette that runs from one colour to another."""
    return _two_tone(first, second)


@lru_cache(maxsize=32)
def _two_tone(first: str, second: str) -> Array:
    share = np.linspace(0, 1, 256)[:, None]
    table = np.rint((1 - share) * np.asarray(rgb(first)) + share * np.asarray(rgb(second))).astype(np.uint8)
    table.flags.writeable = False
    return table


def stack_marks(box: Box, planes: Sequence[Plane], style: DrawStyle) -> tuple[Mark, ...]:
    """Draw planes one behind the other: the first is the front one, at the lower left of ``box``.

    Each further plane stands ``style.plane_offset`` to the right and above, parted from its neighbours by a line in
    the colour of the paper. The front plane has a frame.
    """
    depth = style.plane_offset * (len(planes) - 1)
    width, height = max(box.width - depth, 0.1), max(box.height - depth, 0.1)
    marks: list[Mark] = []
    for index in reversed(range(len(planes))):
        step = style.plane_offset * index
        place = Box(x=box.x + step, y=box.y + depth - step, width=width, height=height)
        layer = IMAGE_LAYER + _PLANE_STEP * (len(planes) - 1 - index) / max(len(planes) / 8, 1)
        marks += _plane_marks(place, planes[index], style, layer)
        if index:
            marks.append(_outline(place, style.separator, style.separator_width, layer + _PLANE_STEP / 4))
        else:
            front = planes[0]
            marks += (
                infinity_marks(place, front.pixels, style)
                if front.pixels is not None and front.palette is not None
                else []
            )
            marks += frame_marks(place, style)
    return tuple(marks)


def _plane_marks(place: Box, plane: Plane, style: DrawStyle, layer: float) -> list[Mark]:
    fill = style.dead if plane.is_dead else plane.fill
    marks: list[Mark] = []
    if fill is not None or plane.pixels is None:
        marks.append(Rect(x=place.x, y=place.y, width=place.width, height=place.height, fill=fill, layer=layer))
    elif plane.pixels is not None:
        marks.append(image_mark(place, plane.pixels, plane.palette, layer))
    right, bottom = place.x + place.width, place.y + place.height
    if plane.is_dead:
        line = (("M", place.x, bottom), ("L", right, place.y))
        marks.append(Path(commands=line, stroke=style.sub, stroke_width=0.4, layer=layer + _PLANE_STEP / 8))
    elif plane.is_constant:
        marks.append(_hatch(place, style, layer + _PLANE_STEP / 8))
    return marks


def cell_marks(place: Box, summary: Summary, style: DrawStyle) -> list[Mark]:
    """Return the cells of a matrix or a strip, with marks for what is infinite; flat ones are drawn as flat planes."""
    cells = summary.arrays["cells"]
    look = flatness(summary)
    colors = palette(style, bool(summary.facts["is_signed"]))
    plane = Plane(pixels=cells, palette=colors, is_dead=look == "dead", is_constant=look == "constant")
    return [*_plane_marks(place, plane, style, IMAGE_LAYER), *infinity_marks(place, cells, style)]


def flatness(summary: Summary) -> Literal["", "dead", "constant"]:
    """Return whether all values of a matrix or a vector are zero, or are one and the same."""
    cells, ends = summary.arrays.get("cells"), (*summary.facts.get("low", ()), *summary.facts.get("high", ()))
    if cells is None or not ends or len(set(ends)) > 1 or not (cells == MAX_INDEX // 2).all():
        return ""
    return "constant" if ends[0] else "dead"


def _hatch(place: Box, style: DrawStyle, layer: float) -> Mark:
    right, bottom = place.x + place.width, place.y + place.height
    commands: list[tuple[Any, ...]] = [("M", place.x, bottom), ("L", right, place.y)]
    for share in (1 / 3, 2 / 3):
        x, y = place.x + place.width * share, place.y + place.height * share
        commands += [("M", place.x, y), ("L", x, place.y), ("M", x, bottom), ("L", right, y)]
    return Path(commands=tuple(commands), stroke=style.paper, stroke_width=0.4, layer=layer)


def image_mark(place: Box, pixels: Array, colors: Array | None, layer: float = IMAGE_LAYER) -> Image:
    """Return pixels painted into ``place``: indices with a palette, or RGB, or RGBA."""
    if colors is None and pixels.ndim == 3 and pixels.shape[2] == 3:
        opaque = np.full((*pixels.shape[:2], 1), 255, np.uint8)
        pixels = np.concatenate([pixels, opaque], axis=2)
    return Image(
        x=place.x, y=place.y, width=place.width, height=place.height, pixels=pixels, palette=colors, layer=layer
    )


def frame_marks(place: Box, style: DrawStyle, *, color: str | None = None, width: float | None = None) -> list[Mark]:
    """Return the frame round a picture, square-cornered."""
    return [_outline(place, color or style.frame, style.frame_width if width is None else width, FRAME_LAYER)]


def _outline(place: Box, color: str, width: float, layer: float) -> Rect:
    return Rect(
        x=place.x, y=place.y, width=place.width, height=place.height, stroke=color, stroke_width=width, layer=layer
    )


def infinity_marks(place: Box, pixels: Array, style: DrawStyle) -> list[Mark]:
    """Return ▲ and ▼ over pixels that are plus or minus infinity: a few of each, apart from each other."""
    half = min(1.5, place.width / 2, place.height / 2)
    marks: list[Mark] = []
    for index, way in ((POSITIVE_INFINITY, -1), (NEGATIVE_INFINITY, 1)):
        shown: list[Point] = []
        for row, column in np.argwhere(pixels == index).tolist():
            x = place.x + (column + 0.5) / pixels.shape[1] * place.width
            y = place.y + (row + 0.5) / pixels.shape[0] * place.height
            x = min(max(x, place.x + half), place.x + place.width - half)
            y = min(max(y, place.y + half), place.y + place.height - half)
            if len(shown) < _MAX_FLAGS and all(hypot(x - ox, y - oy) > 4 * half for ox, oy in shown):
                shown.append((x, y))
        marks += [triangle(x, y, half, way, style) for x, y in shown]
    return marks


def triangle(x: float, y: float, half: float, way: int, style: DrawStyle) -> Path:
    """Return the sign of an infinite value: its tip up where ``way`` is -1, down where it is 1."""
    base, tip = y - way * half, y + way * half
    commands = (("M", x - half, base), ("L", x + half, base), ("L", x, tip), ("Z",))
    return Path(commands=commands, fill=style.ink, stroke=style.paper, stroke_width=0.3, layer=FRAME_LAYER - 0.05)


def badge_marks(summary: Summary, box: Box, style: DrawStyle) -> tuple[Mark, ...]:
    """Return the warning badge at the top right of ``box``, if any value is NaN or infinite."""
    if not (summary.facts.get("num_nan") or summary.facts.get("num_inf")):
        return ()
    return badge_at(box.x + box.width, box.y, style)


def badge_at(x: float, y: float, style: DrawStyle) -> tuple[Mark, ...]:
    """Return a warning badge round a point."""
    half = 3.2
    return (
        Rect(x=x - half, y=y - half, width=2 * half, height=2 * half, radius=half, fill=style.warning, layer=5.8),
        Text(x=x, y=y + 1.85, text="!", size=style.small_size, color=style.paper, weight="bold", anchor="middle"),
    )


def input_side(summary: Summary, input_hw: tuple[int, int] | None) -> float:
    """Return the side of the image input in pixels (the root of its area), 0 where there is none."""
    known = summary.facts.get("input_side")
    if known:
        return float(known)
    return sqrt(input_hw[0] * input_hw[1]) if input_hw else 0.0
