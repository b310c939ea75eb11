"""Sizes of everything that layout must place, before anything is drawn."""

from __future__ import annotations

from neural_flow.drawing import Arrow, Diagram, DiagramNode, Frame, NodeSize, Sizes
from neural_flow.records import Capture, Measurements, Topology
from neural_flow.scene.cards import card_size, fitted_lines
from neural_flow.scene.connectors import label_of
from neural_flow.scene.look import Look, make_look
from neural_flow.scene.options import SceneOptions
from neural_flow.scene.words import resolution
from neural_flow.theme import Theme


def measure_diagram(
    diagram: Diagram,
    topology: Topology,
    capture: Capture,
    theme: Theme,
    options: SceneOptions,
    measurements: tuple[Measurements, ...] = (),
) -> Sizes:
    """Return the size of every node, arrow label and frame title in points."""
    look = make_look(diagram, topology, capture, theme, options, measurements)
    labels = {arrow.arrow_id: _label_size(arrow, look) for arrow in diagram.arrows if label_of(arrow, look)}
    return Sizes(
        nodes={node.node_id: _node_size(node, look) for node in diagram.nodes},
        arrow_labels=labels,
        frame_titles={frame.frame_id: _title_size(frame, look) for frame in diagram.frames},
    )


def _node_size(node: DiagramNode, look: Look) -> NodeSize:
    theme = look.theme
    if node.role == "ring":
        side = 2 * theme.ring_radius
        return NodeSize(width=side, height=side, front_width=side, front_height=side)
    size = card_size(node, look)
    lines = fitted_lines(node, look, size)
    stage = look.stage_of(node)
    return NodeSize(
        width=size.width,
        height=size.height,
        front_width=size.front_width,
        front_height=size.front_height,
        label_width=max((look.width_of(*line) for line in lines), default=0.0),
        label_height=theme.label_gap * len(lines) + theme.label_pad if lines else 0.0,
        resolution=0 if stage is None else resolution(look.shape_of(stage)),
    )


def _label_size(arrow: Arrow, look: Look) -> tuple[float, float]:
    size = look.theme.edge_label_size
    return look.width_of(label_of(arrow, look), size), size * 1.2


def _title_size(frame: Frame, look: Look) -> tuple[float, float]:
    theme = look.theme
    width = look.width_of(frame.title, theme.group_size)
    if frame.badge:
        width += look.width_of(frame.badge, theme.badge_size, "bold") + theme.badge_pad * 2 + 3.0
    return width, theme.group_size * 1.4
