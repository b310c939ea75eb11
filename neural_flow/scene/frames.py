"""Quiet boxes round containers and repeats, and brackets where a box would enclose what does not belong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from neural_flow.drawing import Box, Frame, FramePlacement, Mark, Path, Rect, Text
from neural_flow.scene.look import Look
from neural_flow.scene.space import covered_area
from neural_flow.theme import Theme

_FRAME_LAYER = 0.5
_INSET = 6.0
_STEP = 6.0
_CLEAR = 2.0
"""White on either side of a title."""
_TITLE_BASELINE = 8.8
_BRACKET_BASELINE = -2.6


def frame_marks(
    frame: Frame, place: FramePlacement, depth: int, obstacles: Sequence[Box], look: Look
) -> tuple[Mark, ...]:
    """Draw a frame; ``depth`` is how many frames lie around it, ``obstacles`` what its title must not touch."""
    layer = _FRAME_LAYER + 0.1 * depth
    marks = _bracket(place.box, look, layer) if place.is_bracket else _box(frame, place.box, look, layer)
    marks += _title(frame, place, obstacles, look)
    return tuple(replace(mark, group=f"frame-{frame.frame_id}") for mark in marks)


def _box(frame: Frame, box: Box, look: Look, layer: float) -> list[Mark]:
    theme = look.theme
    is_fold = frame.kind == "fold"
    fill = theme.fold_fill if is_fold else theme.group_fill
    edge = theme.plate_edge if is_fold else theme.group_edge
    rect = Rect(
        x=box.x,
        y=box.y,
        width=box.width,
        height=box.height,
        radius=theme.group_radius,
        fill=fill,
        stroke=edge,
        stroke_width=theme.group_width,
        layer=layer,
    )
    if not is_fold:
        return [rect]
    # More sheets behind the box say that it stands for several.
    behind: list[Mark] = [
        replace(rect, x=box.x + step, y=box.y - step, layer=layer - 0.01 * index)
        for index, step in ((2, 2 * theme.plate_offset), (1, theme.plate_offset))
    ]
    return [*behind, rect]


def _bracket(box: Box, look: Look, layer: float) -> list[Mark]:
    theme = look.theme
    right, tick = box.x + box.width, 4.0
    line = (("M", box.x, box.y + tick), ("L", box.x, box.y), ("L", right, box.y), ("L", right, box.y + tick))
    return [Path(commands=line, stroke=theme.plate_edge, stroke_width=0.7, layer=layer)]


def frame_extent(frame: Frame, place: FramePlacement, theme: Theme) -> Box:
    """Return the box of a frame with the sheets behind it, of a bracket with the title above it."""
    box = place.box
    if place.is_bracket:
        rise = theme.group_size - _BRACKET_BASELINE
        return Box(x=box.x, y=box.y - rise, width=box.width, height=box.height + rise)
    rise = 2 * theme.plate_offset if frame.kind == "fold" else 0.0
    return Box(x=box.x, y=box.y - rise, width=box.width + rise, height=box.height + rise)


def _title(frame: Frame, place: FramePlacement, obstacles: Sequence[Box], look: Look) -> list[Mark]:
    theme = look.theme
    box = place.box
    badge_width = look.width_of(frame.badge, theme.badge_size, "bold") + 2 * theme.badge_pad if frame.badge else 0.0
    gap = 3.0 if frame.badge and frame.title else 0.0
    room = max(box.width - 2 * _INSET - badge_width - gap, 12.0)
    baseline = box.y + _BRACKET_BASELINE if place.is_bracket else box.y + _TITLE_BASELINE
    if place.is_continued:
        choices = [words for words in _continued(frame.title) if look.width_of(words, theme.group_size) <= room]
    else:
        choices = [look.fitted(frame.title, theme.group_size, "regular", room) if frame.title else ""]
    for title in choices:
        width = badge_width + gap + (look.width_of(title, theme.group_size) if title else 0.0)
        left, covered = _title_x(box, width, baseline - theme.group_size, obstacles)
        if not (place.is_continued and covered):
            return _title_marks(frame.badge, badge_width, title, left, width, baseline, theme)
    return []


def _title_marks(
    badge: str, badge_width: float, title: str, left: float, width: float, baseline: float, theme: Theme
) -> list[Mark]:
    marks: list[Mark] = []
    if badge:
        height = theme.badge_size + 3.0
        pill = Rect(
            x=left,
            y=baseline - theme.badge_size * 0.36 - height / 2,
            width=badge_width,
            height=height,
            radius=height / 2,
            fill=theme.ink,
            layer=5.5,
        )
        marks.append(pill)
        marks.append(
            Text(
                x=left + badge_width / 2,
                y=baseline,
                text=badge,
                size=theme.badge_size,
                weight="bold",
                color=theme.paper,
                anchor="middle",
            )
        )
    if title:
        x = left + (badge_width + 3.0 if badge else 0.0)
        marks.append(Text(x=x, y=baseline, text=title, size=theme.group_size, color=theme.sub))
    return marks


def _continued(title: str) -> tuple[str, str]:
    """Return what a frame is called where it goes on in another row, the fullest words first."""
    return (f"{title} (continued)", f"… {title}") if title else ("(continued)", "…")


def _title_x(box: Box, width: float, top: float, obstacles: Sequence[Box]) -> tuple[float, float]:
    """Return where a title starts (left, right, centred or between: where it covers least), and how much it covers."""
    left, right = box.x + _INSET, box.x + box.width - _INSET - width
    between = (left + step * _STEP for step in range(1, max(0, int((right - left) / _STEP)) + 1))
    places = (left, right, (left + right) / 2, *between)
    strips = [Box(x=x - _CLEAR, y=top, width=width + 2 * _CLEAR, height=7.0) for x in places]
    near = [other for other in obstacles if other.y < top + 7.0 and top < other.y + max(other.height, 1.0)]
    covered = [round(covered_area(strip, near), 3) for strip in strips]
    least = min(covered)
    return places[covered.index(least)], least
