"""Samples of the legend: each is drawn as the thing itself is."""

from __future__ import annotations

from dataclasses import replace

from neural_flow.drawing import Box, Mark, Path, Rect
from neural_flow.scene.cards import residual_marks
from neural_flow.scene.connectors import head, kind_color, opaque_marks, ring_at
from neural_flow.scene.legend_rows import Entry
from neural_flow.scene.look import Look
from neural_flow.summaries._planes import Plane, badge_at, stack_marks, triangle

_LEFT, _WIDTH, _HEIGHT = 4.0, 8.0, 7.0
_FRAME_WIDTH = 0.4


def sample_marks(entry: Entry, left: float, middle: float, look: Look) -> list[Mark]:
    """Return the marks of one sample, its left end at ``left`` and its middle at the height ``middle``."""
    theme = look.theme
    if entry.kind == "note":
        return []
    if entry.kind == "ring":
        return ring_at((left + theme.legend_sample / 2, middle), entry.what, theme)
    if entry.kind == "residual":
        return residual_marks(left + theme.legend_sample / 2, middle, look)
    if entry.kind in ("swatch", "dead", "constant", "truth", "infinite", "badge"):
        return _picture_sample(entry, Box(x=left + _LEFT, y=middle - _HEIGHT / 2, width=_WIDTH, height=_HEIGHT), look)
    is_inferred = entry.kind == "inferred"
    color = kind_color(entry.what if entry.kind == "arrow" else "primary", is_inferred, theme)
    tip = left + theme.legend_sample
    dash = tuple(length * theme.edge_width for length in theme.dash) if is_inferred else ()
    line = (("M", left, middle), ("L", tip - theme.line_stop, middle))
    marks: list[Mark] = [
        Path(commands=line, stroke=color, stroke_width=theme.edge_width, dash=dash, layer=2.5),
        Path(commands=head((tip, middle), (1.0, 0.0), theme), fill=color, layer=5.0),
    ]
    if entry.kind == "opaque":
        marks += opaque_marks((left + theme.legend_sample * 0.4, middle), color, theme)
    return marks


def _picture_sample(entry: Entry, box: Box, look: Look) -> list[Mark]:
    """Draw what is found in pictures: a colour, a struck or hatched channel, two tones, what is not finite."""
    style = look.style
    if entry.kind == "badge":
        return [*badge_at(box.x + box.width / 2, box.y + box.height / 2, style)]
    if entry.kind == "infinite":
        middle = box.y + box.height / 2
        return [triangle(box.x + 1.5, middle, 1.8, -1, style), triangle(box.x + box.width - 1.5, middle, 1.8, 1, style)]
    if entry.kind == "truth":
        halves = (replace(box, width=box.width / 2), replace(box, x=box.x + box.width / 2, width=box.width / 2))
        tones = zip(halves, (style.ink, style.paper), strict=True)
        return [_swatch(half, fill, look) for half, fill in tones]
    if entry.kind == "dead":
        return _channel(box, Plane(fill=style.dead, is_dead=True), look)
    if entry.kind == "constant":
        red, green, blue = style.sequential[len(style.sequential) // 2].tolist()
        return _channel(box, Plane(fill=f"#{red:02X}{green:02X}{blue:02X}", is_constant=True), look)
    return [_swatch(box, entry.what, look)]


def _swatch(box: Box, fill: str, look: Look) -> Mark:
    return Rect(x=box.x, y=box.y, width=box.width, height=box.height, fill=fill, stroke=look.theme.frame,
                stroke_width=_FRAME_WIDTH, layer=3.0)  # fmt: skip


def _channel(box: Box, plane: Plane, look: Look) -> list[Mark]:
    return [*stack_marks(box, [plane], replace(look.style, frame_width=_FRAME_WIDTH))]
