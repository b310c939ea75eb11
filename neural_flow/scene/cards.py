"""Cards: a face, its label, and what says that it stands for many, failed, or costs much."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from neural_flow.drawing import Box, DiagramNode, Mark, Path, Placement, Rect, Text
from neural_flow.scene.faces import STUB_SIZE, face_marks, face_size, stub_marks
from neural_flow.scene.look import Look, label_lines
from neural_flow.scene.options import Change
from neural_flow.scene.shapes import circle, cross
from neural_flow.scene.strip import STRIP_GAP, Strip, strip_marks, strip_of
from neural_flow.theme import Theme, mix

_MIN_LABEL_WIDTH = 72.0
_NARROW_LABEL = 0.75
"""What is left of that beside small pictures."""
_MAX_BROKEN = 80
_JOINT = re.compile(r"[_. /-]|(?<=[a-z0-9])(?=[A-Z])")
_PLATE_LAYER = 2.8
_BADGE_LAYER = 5.2
_RESIDUAL_RADIUS = 3.2

Line = tuple[str, float, Literal["regular", "bold"]]


@dataclass(frozen=True, slots=True)
class CardSize:
    """Size of a card's body and of its front, and how far the face stands inside."""

    width: float
    height: float
    front_width: float
    front_height: float
    left: float = 0.0
    top: float = 0.0
    face_width: float = 0.0
    face_height: float = 0.0
    num_plates: int = 0
    strip: Strip | None = None


def card_size(node: DiagramNode, look: Look) -> CardSize:
    """Return the size of the body of a card. A plate lies under cards that are folded, coloured or marked."""
    stage = look.stage_of(node)
    theme = look.theme
    if stage is None:
        return CardSize(24.0, 10.0, 24.0, 10.0)
    face = STUB_SIZE if node.is_thin else face_size(stage, look)
    plates = _num_plates(node, look)
    if not plates:
        return CardSize(face.width, face.height, face.front_width, face.front_height, 0, 0, face.width, face.height)
    pad, depth = theme.plate_padding, theme.plate_offset * (plates - 1)
    head = theme.plate_head if node.count > 1 else pad
    strip = strip_of(node, face.width, look)
    foot = strip.height + STRIP_GAP if strip is not None else 0.0
    front_width, front_height = face.width + 2 * pad, face.height + pad + head + foot
    return CardSize(
        width=front_width + depth,
        height=front_height + depth,
        front_width=front_width,
        front_height=front_height,
        left=pad,
        top=head + depth,
        face_width=face.width,
        face_height=face.height,
        num_plates=plates,
        strip=strip,
    )


def _num_plates(node: DiagramNode, look: Look) -> int:
    if node.count > 1:
        return 3
    is_marked = look.is_highlighted(node) or look.is_failed(node) or look.change_of(node) is not None
    stage = look.stage_of(node)
    is_coloured = look.options.color_by is not None and stage is not None and stage.kind not in ("input", "output")
    return 1 if is_marked or is_coloured else 0


def fitted_lines(node: DiagramNode, look: Look, size: CardSize) -> list[Line]:
    """Return the lines of a card's label with size and weight, fitted to the width that a label may take.

    A name that is too long is set in two lines if it has a joint to break at; what is longer loses its middle. Labels
    of small pictures are narrower, where they lose nothing by it.
    """
    theme = look.theme
    usual = max(_MIN_LABEL_WIDTH, size.width)
    room = max(_MIN_LABEL_WIDTH * min(1.0, max(look.options.picture_scale, _NARROW_LABEL)), size.width)
    name, *facts = label_lines(node, look) or ("",)
    parts = _broken(name, room, look)
    if max(look.width_of(part, theme.name_size, "bold") for part in parts) > room:
        room, parts = usual, _broken(name, usual, look)
    lines: list[Line] = [
        (look.fitted(part, theme.name_size, "bold", room), theme.name_size, "bold") for part in parts if part
    ]
    return lines + [
        (look.fitted(text, theme.shape_size, "regular", usual), theme.shape_size, "regular") for text in facts
    ]


def _broken(name: str, room: float, look: Look) -> tuple[str, ...]:
    """Return a name in two lines where one would be too narrow for it and both together are not."""
    size = look.theme.name_size
    if look.width_of(name, size, "bold") <= room or len(name) > _MAX_BROKEN:
        return (name,)
    pairs = [(name[: joint.end()].rstrip(), name[joint.end() :]) for joint in _JOINT.finditer(name)]
    widths = {pair: max(look.width_of(part, size, "bold") for part in pair) for pair in pairs if all(pair)}
    best = min(widths, key=lambda pair: widths[pair], default=None)
    return best if best is not None and widths[best] <= room else (name,)


def card_marks(node: DiagramNode, place: Placement, look: Look, cost_color: str | None) -> tuple[Mark, ...]:
    """Draw a card at ``place``, all marks in the group of its stage."""
    stage = look.stage_of(node)
    if stage is None:
        return ()
    theme = look.theme
    size = card_size(node, look)
    body = place.body
    face = Box(x=body.x + size.left, y=body.y + size.top, width=size.face_width, height=size.face_height)
    marks: list[Mark] = [
        *_plate_marks(node, body, size, look, cost_color),
        *(stub_marks(face, look) if node.is_thin else face_marks(stage, face, look)),
    ]
    if size.strip is not None:
        marks += strip_marks(size.strip, face.x, face.y + face.height + STRIP_GAP, face.width, look)
    if node.has_residual:
        # In the head of a plate, beside the count; else in the corner of the picture, clear of the label above.
        top = body.y + body.height - size.front_height
        middle = theme.plate_head / 2 if node.count > 1 else _RESIDUAL_RADIUS + 1.4
        marks += residual_marks(body.x + max(size.left, 1.4) + _RESIDUAL_RADIUS, top + middle, look)
    marks += _label_marks(node, place, look, size)
    return tuple(replace(mark, group=f"stage-{stage.stage_id}") for mark in marks)


def _plate_marks(node: DiagramNode, body: Box, size: CardSize, look: Look, cost_color: str | None) -> list[Mark]:
    theme = look.theme
    fill, stroke, width = _plate_colors(node, look, cost_color)
    marks: list[Mark] = []
    for index in reversed(range(size.num_plates)):
        step = theme.plate_offset * index
        marks.append(
            Rect(
                x=body.x + step,
                y=body.y + body.height - size.front_height - step,
                width=size.front_width,
                height=size.front_height,
                radius=theme.group_radius - 1,
                fill=fill,
                stroke=stroke,
                stroke_width=width,
                layer=_PLATE_LAYER - 0.01 * index,
            )
        )
    if node.count > 1:
        marks.append(
            Text(
                x=body.x + size.front_width - theme.plate_padding,
                y=body.y + body.height - size.front_height + theme.plate_head - 3.0,
                text=f"×{node.count}",
                size=theme.badge_size,
                weight="bold",
                color=theme.ink,
                anchor="end",
            )
        )
    return marks


def _plate_colors(node: DiagramNode, look: Look, cost_color: str | None) -> tuple[str, str, float]:
    """Return fill, border and border width of a card's plate; what went wrong outranks what was asked for."""
    theme = look.theme
    change = look.change_of(node)
    if look.is_failed(node):
        return mix(theme.failure, theme.paper, 0.14), theme.failure, theme.ring_width
    if change is not None:
        color = change_color(change, theme)
        return mix(color, theme.paper, 0.18), color, theme.ring_width
    if look.is_highlighted(node):
        return cost_color or mix(theme.highlight, theme.paper, 0.22), theme.highlight, theme.ring_width
    return cost_color or theme.plate, theme.plate_edge, 0.6


def change_color(change: Change, theme: Theme) -> str:
    """Return the colour of what happened to a stage between two models."""
    return {"added": theme.merge, "removed": theme.failure, "changed": theme.highlight}[change]


def residual_marks(x: float, y: float, look: Look) -> list[Mark]:
    """Return the small ⊕ of a card that adds its own input to its result, out of sight."""
    theme = look.theme
    return [
        Path(
            commands=circle(x, y, _RESIDUAL_RADIUS),
            fill=theme.paper,
            stroke=theme.merge,
            stroke_width=0.8,
            layer=_BADGE_LAYER,
        ),
        Path(commands=cross(x, y, 3.4), stroke=theme.merge, stroke_width=0.8, layer=_BADGE_LAYER + 0.1),
    ]


def _label_marks(node: DiagramNode, place: Placement, look: Look, size: CardSize) -> list[Mark]:
    if place.label is None:
        return []
    theme = look.theme
    ink = theme.failure if look.is_failed(node) else theme.ink
    return [
        Text(
            x=place.label.x,
            y=place.label.y + theme.label_first + theme.label_gap * index,
            text=text,
            size=font_size,
            weight=weight,
            color=ink if weight == "bold" else theme.sub,
        )
        for index, (text, font_size, weight) in enumerate(fitted_lines(node, look, size))
    ]
