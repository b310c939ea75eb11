"""The face of a card: the picture of what flowed, or where nothing was captured, its shape drawn as people do.

A face without activation is an empty stack of planes (side = resolution, depth = channels), a sheet of tokens or a
strip, filled with the colour of the module's family.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log2, sqrt
from typing import Any

from neural_flow.drawing import Box, Mark, Path, Rect, Text
from neural_flow.records import Stage, Summary
from neural_flow.scene.look import Look
from neural_flow.scene.shapes import Commands, circle
from neural_flow.scene.words import family
from neural_flow.summaries._base import SUMMARIES, DrawStyle, front_size
from neural_flow.summaries._planes import Plane, map_side, num_planes, stack_marks
from neural_flow.theme import mix

GAP = 4.0
"""Between the picture of a stage and its attention."""
_IMAGE_LAYER = 3.0
_FRAME_LAYER = 3.9
_MAX_RULES = 9
_OUTLINE_FRACTION = 0.62
"""How much of its family's colour the outline of a card without picture has; the rest is ink."""
_MIN_SIDE = 20.0
"""No picture's longer side is made smaller than this."""
_STRIP_HEIGHT = 14.0
"""What is not higher is a strip: its height says nothing. Made smaller it keeps it, made larger it gains more of it."""


@dataclass(frozen=True, slots=True)
class FaceSize:
    """Size of a face, and of its front plane at the lower left."""

    width: float
    height: float
    front_width: float
    front_height: float


STUB_SIZE = FaceSize(9.0, 9.0, 9.0, 9.0)
"""Of an output that hands out what an earlier card shows already."""


def stub_marks(box: Box, look: Look) -> tuple[Mark, ...]:
    """Draw the stub of such an output: an open end instead of the same picture again."""
    theme = look.theme
    x, y, half = box.x + box.width / 2, box.y + box.height / 2, box.width / 2 - theme.frame_width
    ring = Path(
        commands=circle(x, y, half), fill=theme.paper, stroke=theme.inferred, stroke_width=0.8, layer=_FRAME_LAYER
    )
    dot = Path(commands=circle(x, y, half * 0.42), fill=theme.inferred, layer=_FRAME_LAYER + 0.05)
    return ring, dot


def face_size(stage: Stage, look: Look) -> FaceSize:
    """Return the size of the face of ``stage`` in points."""
    size = _picture_size(stage, look)
    extra = attention_of(stage, look)
    if extra is None:
        return size
    beside = _summary_size(extra, look)
    wide = size.width + GAP + beside.width
    return FaceSize(wide, max(size.height, beside.height), wide, max(size.front_height, beside.height))


def face_marks(stage: Stage, box: Box, look: Look) -> tuple[Mark, ...]:
    """Draw the face of ``stage`` into ``box``."""
    style = _scaled_style(look)
    extra = attention_of(stage, look)
    marks: tuple[Mark, ...] = ()
    if extra is not None:
        size = _summary_size(extra, look)
        marks = SUMMARIES.get(extra.kind).draw(extra, _beside(box, box.x + box.width - size.width, size), style)
        box = _beside(box, box.x, _picture_size(stage, look))
    summary = look.summary_of(stage)
    if summary is None:
        return (*_structure_marks(stage, box, look), *marks)
    return (*SUMMARIES.get(summary.kind).draw(summary, box, style), *marks)


def _beside(box: Box, x: float, size: FaceSize) -> Box:
    """Return a box of ``size`` at ``x``, centred on the height at which arrows arrive."""
    return Box(x=x, y=box.y + (box.height - size.height) / 2, width=size.width, height=size.height)


def _picture_size(stage: Stage, look: Look) -> FaceSize:
    summary = look.summary_of(stage)
    return _structure_size(stage, look) if summary is None else _summary_size(summary, look)


def _summary_size(summary: Summary, look: Look) -> FaceSize:
    """Return the size of a summary, scaled as the page needs it; what says words keeps its size, as its words do."""
    kind = SUMMARIES.get(summary.kind)
    width, height = kind.size(summary, look.context)
    front = front_size(summary, look.context, look.style)
    if look.options.picture_scale == 1.0 or _says_words(summary, look):
        return FaceSize(width, height, *front)
    front_width, front_height = _scaled(*front, look)
    share = _scaled_style(look).plane_offset / look.style.plane_offset
    return FaceSize(
        front_width + (width - front[0]) * share, front_height + (height - front[1]) * share, front_width, front_height
    )


def _says_words(summary: Summary, look: Look) -> bool:
    """Return whether a summary writes words, or letters whose places do not follow its box: it keeps its size."""
    kind = SUMMARIES.get(summary.kind)
    width, height = kind.size(summary, look.context)

    def texts(scale: float) -> list[tuple[str, float, float]]:
        marks = kind.draw(summary, Box(x=0.0, y=0.0, width=scale * width, height=scale * height), look.style)
        return [(mark.text, mark.x, mark.y) for mark in marks if isinstance(mark, Text)]

    usual = texts(1.0)
    return any(len(text) > 1 for text, _, _ in usual) or (bool(usual) and texts(2.0) == usual)


def _scaled(width: float, height: float, look: Look) -> tuple[float, float]:
    """Return the size of a front as the scale of the page makes it."""
    scale = look.options.picture_scale
    if scale >= 1.0:
        return width * scale, height * scale * (scale if height <= _STRIP_HEIGHT else 1.0)
    scale = max(scale, min(1.0, _MIN_SIDE / max(width, height)))
    return width * scale, height * scale if height > _STRIP_HEIGHT else height


def _scaled_style(look: Look) -> DrawStyle:
    """Return the style with an offset of planes that goes with the size of pictures: it changes less than they do."""
    if look.options.picture_scale == 1.0:
        return look.style
    return replace(look.style, plane_offset=look.style.plane_offset * sqrt(look.options.picture_scale))


def attention_of(stage: Stage, look: Look) -> Summary | None:
    """Return the attention that is drawn beside a stage's picture: its first one."""
    found = look.capture.attention.get(stage.stage_id, ())
    return found[0] if found and found[0].facts.get("is_drawn", True) else None


def _structure_size(stage: Stage, look: Look) -> FaceSize:
    shape = look.shape_of(stage)
    theme = look.theme
    if len(shape) in (3, 4):
        width, height = map_side(shape[-2], shape[-1], look.input_side)
        if stage.kind in ("input", "output"):
            # As a captured picture has it, so that a figure with and without activations is laid out alike.
            width, height = (side * theme.picture_side / theme.map_side for side in (width, height))
        width, height = _scaled(width, height, look)
        depth = _scaled_style(look).plane_offset * (_num_planes(stage, shape, look) - 1)
        return FaceSize(width + depth, height + depth, width, height)
    if len(shape) == 2:
        width, height = _scaled(_side_of(shape[1], 20.0, 60.0), _side_of(shape[0], 14.0, 44.0), look)
    elif len(shape) == 1 and shape[0] > 1:
        width, height = _scaled(_side_of(shape[0], 24.0, 64.0), 10.0, look)
    else:
        width, height = _scaled(24.0, 10.0, look)
    return FaceSize(width, height, width, height)


def _num_planes(stage: Stage, shape: tuple[int, ...], look: Look) -> int:
    is_picture = stage.kind == "input" and shape[0] <= 3
    return 1 if is_picture else num_planes(shape[0], look.theme.max_planes)


def _side_of(count: int, low: float, high: float) -> float:
    """Return a side that grows with the logarithm of ``count``: 1 is ``low``, 1024 and more is ``high``."""
    return low + (high - low) * min(log2(max(count, 1)) / 10, 1.0)


def fill_of(stage: Stage, look: Look) -> str:
    """Return the colour of the front plane of a stage without picture."""
    theme = look.theme
    return mix(theme.families[family(stage)], theme.paper, theme.tint_fraction)


def _structure_marks(stage: Stage, box: Box, look: Look) -> tuple[Mark, ...]:
    shape = look.shape_of(stage)
    theme = look.theme
    front, hue = fill_of(stage, look), theme.families[family(stage)]
    outline = mix(hue, theme.ink, _OUTLINE_FRACTION)
    if len(shape) in (3, 4):
        # From plane to plane the fill deepens, so that the stack reads as depth without any outline.
        count = _num_planes(stage, shape, look)
        depths = [theme.tint_fraction + (1 - theme.tint_fraction) * (0.35 + 0.65 * k / count) for k in range(count)]
        planes = [Plane(fill=front), *(Plane(fill=mix(hue, theme.paper, depth)) for depth in depths[1:])]
        return stack_marks(box, planes, replace(_scaled_style(look), frame=outline))
    rules = _rules(shape, box)
    sheet = Rect(x=box.x, y=box.y, width=box.width, height=box.height, fill=front, layer=_IMAGE_LAYER)
    frame = Rect(
        x=box.x,
        y=box.y,
        width=box.width,
        height=box.height,
        stroke=outline,
        stroke_width=theme.frame_width,
        layer=_FRAME_LAYER,
    )
    if not rules:
        return sheet, frame
    color = mix(theme.paper, front, 0.6)
    lines = Path(commands=rules, stroke=color, stroke_width=theme.separator_width, layer=_IMAGE_LAYER + 0.2)
    return sheet, lines, frame


def _rules(shape: tuple[int, ...], box: Box) -> Commands:
    """Return the lines that part tokens of a sheet (rows) or values of a strip (columns)."""
    commands: list[tuple[Any, ...]] = []
    if len(shape) == 2:
        count = min(shape[0], _MAX_RULES)
        for index in range(1, count):
            y = box.y + box.height * index / count
            commands += [("M", box.x, y), ("L", box.x + box.width, y)]
    elif len(shape) == 1:
        count = min(shape[0], _MAX_RULES + 3)
        for index in range(1, count):
            x = box.x + box.width * index / count
            commands += [("M", x, box.y), ("L", x, box.y + box.height)]
    return tuple(commands)
