"""From records and a layout to the marks of one page."""

from __future__ import annotations

from dataclasses import replace

from neural_flow.drawing import Box, Diagram, Frame, Layout, Mark, MarkGroup, Scene, Text
from neural_flow.records import Capture, Measurements, Topology
from neural_flow.scene.cards import card_marks
from neural_flow.scene.connectors import arrow_marks, ring_marks
from neural_flow.scene.failure import failure_lines
from neural_flow.scene.frames import frame_extent, frame_marks
from neural_flow.scene.legend import cost_color, legend_marks
from neural_flow.scene.look import Look, make_look
from neural_flow.scene.options import SceneOptions
from neural_flow.scene.space import bounds, contents, moved
from neural_flow.scene.tooltips import (
    arrow_group,
    card_group,
    figure_description,
    figure_facts,
    figure_title,
    frame_group,
    ring_group,
)
from neural_flow.scene.tracks import shared_way
from neural_flow.theme import Theme

__all__ = ["SceneOptions", "build_scene", "room_inside"]

_FACTS_GAP = 5.0
_LINE = 8.2
_MAX_ASPECT = 3.0


def room_inside(width: float, height: float, theme: Theme) -> tuple[float, float]:
    """Return the width and height that a page of this size leaves for the layout, without legend, in points."""
    return max(width - 2 * theme.margin, 1.0), max(height - theme.header_height - theme.margin, 1.0)


def build_scene(
    topology: Topology,
    diagram: Diagram,
    layout: Layout,
    capture: Capture,
    measurements: tuple[Measurements, ...],
    theme: Theme,
    options: SceneOptions,
) -> Scene:
    """Draw one page.

    Args:
        topology: stages and edges.
        diagram: what layout placed: cards, rings, arrows, frames.
        layout: where everything stands, in points.
        capture: pictures and statistics; empty for a figure of the structure alone.
        measurements: numbers that cards may be coloured by.
        theme: colours and sizes.
        options: what the user asked of the look.
    """
    look = make_look(_as_drawn(diagram, layout), topology, capture, theme, options, measurements)
    extent = bounds([*contents(layout), *_frame_boxes(look, layout)])
    inner = None if options.page_width is None else max(options.page_width - 2 * theme.margin, 1.0)
    header, header_bottom, header_width = _header(look, extent.width, inner)
    page = _page(extent, header_bottom, header_width, theme, inner)
    left = page.x if inner is None else page.x + (page.width - extent.width) / 2
    layout = moved(layout, left - extent.x, page.y + (page.height - extent.height) / 2 - extent.y)
    obstacles = contents(layout)
    marks, groups, cost_top = _figure(look, layout, obstacles)
    if options.has_legend:
        boxes = [*obstacles, *_frame_boxes(look, layout)]
        legend, page = legend_marks(look, marks, page, boxes, cost_top)
        marks += legend
    return Scene(
        width=round(page.width + 2 * theme.margin, 2),
        height=round(page.y + page.height + theme.margin, 2),
        marks=(*header, *marks),
        groups=tuple(groups),
        title=figure_title(look),
        description=figure_description(look),
        background=None if options.is_transparent else theme.paper,
    )


def _as_drawn(diagram: Diagram, layout: Layout) -> Diagram:
    """Return the diagram with the kinds of arrows that their lines have in this layout."""
    kinds = {route.arrow_id: route.kind for route in layout.routes if route.kind is not None}
    arrows = (replace(arrow, kind=kinds.get(arrow.arrow_id, arrow.kind)) for arrow in diagram.arrows)
    return replace(diagram, arrows=tuple(arrows)) if kinds else diagram


def _page(extent: Box, header_bottom: float, header_width: float, theme: Theme, fixed: float | None) -> Box:
    """Return the part of the page that holds the figure: at most three times as wide as the page is high, or as high.

    A short chain in one row would be a strip; it stands in the middle of a page of usual proportions instead. Where
    the width is ``fixed``, the height follows from the figure.
    """
    beyond = header_bottom + theme.margin
    if fixed is not None:
        return Box(x=theme.margin, y=header_bottom, width=max(fixed, extent.width), height=extent.height)
    width = max(extent.width, header_width)
    height = max(extent.height, (width + 2 * theme.margin) / _MAX_ASPECT - beyond)
    width = max(width, (height + beyond) / _MAX_ASPECT - 2 * theme.margin)
    return Box(x=theme.margin, y=header_bottom, width=width, height=height)


def _frame_boxes(look: Look, layout: Layout) -> list[Box]:
    frames = {frame.frame_id: frame for frame in look.diagram.frames}
    return [frame_extent(frames[place.frame_id], place, look.theme) for place in layout.frames]


def _figure(look: Look, layout: Layout, obstacles: list[Box]) -> tuple[list[Mark], list[MarkGroup], float]:
    marks: list[Mark] = []
    groups: list[MarkGroup] = []
    frames = {frame.frame_id: frame for frame in look.diagram.frames}
    for found in sorted(layout.frames, key=lambda place: _depth(frames[place.frame_id], frames)):
        frame = frames[found.frame_id]
        marks += frame_marks(frame, found, _depth(frame, frames), obstacles, look)
        groups.append(frame_group(frame))
    places = {place.node_id: place for place in layout.placements}
    arrows = {arrow.arrow_id: arrow for arrow in look.diagram.arrows}
    for route in layout.routes:
        marks += arrow_marks(arrows[route.arrow_id], route, places, look)
        group = arrow_group(arrows[route.arrow_id], look)
        shared = shared_way(route)
        groups.append(replace(group, data=(*group.data, ("shared", shared))) if shared else group)
    costs = {
        node.node_id: value
        for node in look.diagram.nodes
        if look.options.color_by and node.stage_ids and (value := look.value_of(node.stage_ids)) is not None
    }
    top = max(costs.values(), default=0.0)
    for node in look.diagram.nodes:
        place = places.get(node.node_id)
        if place is None:
            continue
        if node.role == "ring":
            marks += ring_marks(node, place, look)
            groups.append(ring_group(node))
        elif look.stage_of(node) is not None:
            color = cost_color(costs[node.node_id], top, look) if node.node_id in costs else None
            marks += card_marks(node, place, look, color)
            groups.append(card_group(node, look))
    return marks, groups, top


def _depth(frame: Frame, frames: dict[int, Frame]) -> int:
    depth = 0
    while frame.parent_id is not None and frame.parent_id in frames and depth < len(frames):
        frame = frames[frame.parent_id]
        depth += 1
    return depth


def _header(look: Look, figure_width: float, fixed: float | None) -> tuple[list[Mark], float, float]:
    """Return the marks of the header, the y at which the figure starts, and the width that the header takes.

    It may be wider than a narrow figure, unless the width of the page is ``fixed``.
    """
    theme = look.theme
    title = look.options.title if look.options.title is not None else look.topology.model.name
    facts = " · ".join(figure_facts(look))
    room = max(figure_width, 160.0) if fixed is None else fixed
    words_room = max(room, 200.0) if fixed is None else fixed
    title = look.fitted(title, theme.title_size, "bold", room)
    title_width = look.width_of(title, theme.title_size, "bold")
    facts_width = look.width_of(facts, theme.facts_size)
    y, x = theme.header_baseline, theme.margin
    marks: list[Mark] = [Text(x=x, y=y, text=title, size=theme.title_size, color=theme.ink, weight="bold")]
    if title_width + _FACTS_GAP + facts_width <= room:
        x += title_width + _FACTS_GAP
        width = title_width + _FACTS_GAP + facts_width
        marks.append(Text(x=x, y=y, text=facts, size=theme.facts_size, color=theme.sub))
    else:
        width = title_width
        for words in _fact_lines(look, words_room):
            y += _LINE
            marks.append(Text(x=x, y=y, text=words, size=theme.facts_size, color=theme.sub))
            width = max(width, look.width_of(words, theme.facts_size))
    for words in failure_lines(look, words_room):
        y += _LINE
        marks.append(Text(x=theme.margin, y=y, text=words, size=theme.facts_size, color=theme.failure))
        width = max(width, look.width_of(words, theme.facts_size))
    return marks, y + theme.header_height - theme.header_baseline, width


def _fact_lines(look: Look, room: float) -> list[str]:
    """Return the facts in as many lines as they need, broken between facts; one that is too long loses its middle."""
    size = look.theme.facts_size
    lines: list[str] = []
    for fact in figure_facts(look):
        longer = f"{lines[-1]} · {fact}" if lines else fact
        if lines and look.width_of(longer, size) <= room:
            lines[-1] = longer
        else:
            lines.append(look.fitted(fact, size, "regular", room))
    return lines
