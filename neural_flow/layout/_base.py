"""The registry of layout styles, and the spacings and node geometry that all of them share.

The engine is free of direction. It counts ``along`` the flow and ``across`` it; left-to-right figures map along to x
and across to y, top-to-bottom figures the other way round. All lengths are points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from neural_flow.drawing import Box, Diagram, DiagramNode, Direction, Layout, LayoutOptions, NodeSize, Sizes
from neural_flow.registry import Registry

NODE_GAP = 18.0
NODE_LANE_GAP = 10.8
LANE_WIDTH = 10.0
LINE_REACH = 0.5
"""From the middle of a line to what a frame keeps its padding from."""
LAYER_GAP = 28.0
TRACK_PITCH = 7.0
GUTTER = 28.0
GUTTER_PITCH = 8.0
PORT_PITCH = 6.0
MIN_PORT_PITCH = 5.0
CLEARANCE = 1.4
CORNER_RADIUS = 6.0
FRAME_PADDING = 9.0
SHEETS = 5.0
"""What the sheets behind a repeat reach beyond its frame, up and to the right."""
LABEL_GAP = 2.0
SIDE_LABEL_GAP = 5.0
ARROW_LABEL_GAP = 3.0
HEAD_LENGTH = 6.0


class LayoutStyle(Protocol):
    """A way of placing a diagram."""

    def __call__(self, diagram: Diagram, sizes: Sizes, options: LayoutOptions) -> Layout:
        """Place every node and route every arrow of ``diagram``."""
        ...


LAYOUT_STYLES: Registry[LayoutStyle] = Registry("layout style", "neural_flow.layout")


@dataclass(frozen=True, slots=True)
class NodeShape:
    """One node seen along the flow. ``before`` and ``after`` reach from the port axis across the flow.

    The body occupies ``body_before`` to ``body_after``; the rest is the label, when it stands beside the axis. Ports
    spread over ``port_half`` to either side of the axis.
    """

    before: float
    after: float
    body_before: float
    body_after: float
    length: float
    body_offset: float
    """From the start of the room to the start of the body, along the flow."""
    body_length: float
    overhang: float
    port_half: float
    is_ring: bool


def shape_of(node: DiagramNode, size: NodeSize, direction: Direction) -> NodeShape:
    """Return how much room ``node`` takes along and across the flow."""
    is_ring = node.role == "ring"
    if direction == "lr":
        body_after = size.front_height / 2
        body_before = size.height - body_after
        label = size.label_height + LABEL_GAP if size.label_height else 0.0
        return NodeShape(
            before=body_before + label,
            after=body_after,
            body_before=body_before,
            body_after=body_after,
            length=size.width,
            body_offset=0.0,
            body_length=size.width,
            overhang=max(0.0, size.label_width - size.width),
            port_half=_port_half(size.front_height),
            is_ring=is_ring,
        )
    body_before = size.front_width / 2
    body_after = size.width - body_before
    label = size.label_width + SIDE_LABEL_GAP if size.label_width else 0.0
    return NodeShape(
        before=body_before,
        after=body_after + label,
        body_before=body_before,
        body_after=body_after,
        length=max(size.height, size.label_height),
        body_offset=max(0.0, size.label_height - size.height) / 2,
        body_length=size.height,
        overhang=0.0,
        port_half=_port_half(size.front_width),
        is_ring=is_ring,
    )


def _port_half(side: float) -> float:
    """Return how far from its middle a side takes lines: not near its corners, unless it is a strip."""
    return max(side / 2 - 3.0, min(side / 2 - 0.5, 3.5), 0.5)


def body_and_label(
    shape: NodeShape, size: NodeSize, direction: Direction, along: float, across: float
) -> tuple[Box, Box | None]:
    """Return the body of a node whose axis is at ``across`` and whose room starts at ``along``, and its label."""
    has_label = size.label_width > 0 and size.label_height > 0
    if direction == "lr":
        body = Box(x=along, y=across - shape.body_before, width=size.width, height=size.height)
        label = Box(
            x=body.x, y=body.y - LABEL_GAP - size.label_height, width=size.label_width, height=size.label_height
        )
        return body, label if has_label else None
    top = along + (shape.length - size.height) / 2
    body = Box(x=across - shape.body_before, y=top, width=size.width, height=size.height)
    label = Box(
        x=body.x + size.width + SIDE_LABEL_GAP,
        y=along + (shape.length - size.label_height) / 2,
        width=size.label_width,
        height=size.label_height,
    )
    return body, label if has_label else None
