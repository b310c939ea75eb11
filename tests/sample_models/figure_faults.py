"""What a reader would call a fault of a figure, found from the layout and from the marks of the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from neural_flow.drawing import Box, Diagram, Layout, Picture, Scene, Text
from neural_flow.options import Options
from neural_flow.page_fit import fit_page
from neural_flow.text_metrics import text_width

SCREEN = (1920.0, 1080.0)
MIN_TEXT_PX = 9.0
MAX_CARDS = 24
MAX_ASPECT = 3.0
_TOUCH = 0.3
"""Boxes that share so little of a point only touch."""


@dataclass(frozen=True)
class Figure:
    """A figure with its diagram and layout, which a picture does not keep."""

    picture: Picture
    diagram: Diagram
    layout: Layout
    scene: Scene


def figure_of(picture: Picture, **options: Any) -> Figure:
    """Lay out a picture's topology again, as the pipeline does with these options."""
    page = fit_page(picture.topology, picture.capture, picture.measurements, Options(**options))
    return Figure(picture, page.diagram, page.layout, page.scene)


def faults_of(figure: Figure) -> list[str]:
    """Return every fault in words."""
    return [*page_faults(figure), *layout_faults(figure), *text_faults(figure.scene)]


def page_faults(figure: Figure) -> Iterator[str]:
    """Yield what is wrong with the page as a whole: too small to read, too flat, too many cards."""
    scene = figure.scene
    pixels = min(SCREEN[0] / scene.width, SCREEN[1] / scene.height)
    smallest = min(mark.size for mark in scene.marks if isinstance(mark, Text))
    if smallest * pixels < MIN_TEXT_PX - 0.01:
        yield f"text of {smallest * pixels:.1f} px on a page of {scene.width:.0f} x {scene.height:.0f} pt"
    aspect = scene.width / scene.height
    if not 1 / MAX_ASPECT - 0.01 <= aspect <= MAX_ASPECT + 0.01:
        yield f"an aspect of {aspect:.2f}"
    stages = {stage.stage_id: stage for stage in figure.picture.topology.stages}
    shown = [node.stage_id for node in figure.diagram.nodes if node.stage_id is not None]
    cards = sum(stages[stage_id].kind not in ("input", "output") for stage_id in shown)
    if cards > MAX_CARDS:
        yield f"{cards} cards"


def layout_faults(figure: Figure) -> Iterator[str]:
    """Yield boxes that overlap and arrows that run through what they do not join."""
    names = {node.node_id: node.label or node.symbol for node in figure.diagram.nodes}
    places = figure.layout.placements
    boxes = [(place.node_id, kind, box) for place in places for kind, box in _parts(place.body, place.label)]
    for (one, kind, box), (two, other_kind, other) in combinations(boxes, 2):
        if one != two and _overlap(box, other):
            yield f"{kind} of {names[one]} over {other_kind} of {names[two]}"
    arrows = {arrow.arrow_id: arrow for arrow in figure.diagram.arrows}
    for route in figure.layout.routes:
        arrow = arrows[route.arrow_id]
        words = f"{names[arrow.source]} to {names[arrow.target]}"
        lines = [_hull(start, end) for start, end in pairwise(route.points)]
        for node_id, kind, box in boxes:
            if kind == "body" and node_id in (arrow.source, arrow.target):
                continue
            if route.style == "orthogonal" and any(_overlap(line, box) for line in lines):
                yield f"the arrow from {words} through the {kind} of {names[node_id]}"
            if route.label is not None and _overlap(route.label, box):
                yield f"the text on {words} over the {kind} of {names[node_id]}"


def text_faults(scene: Scene) -> Iterator[str]:
    """Yield texts that lie over each other or leave the page."""
    texts = [(mark, _box_of(mark)) for mark in scene.marks if isinstance(mark, Text)]
    for mark, box in texts:
        if box.x < -_TOUCH or box.x + box.width > scene.width + _TOUCH or box.y + box.height > scene.height + _TOUCH:
            yield f"{mark.text!r} leaves the page"
    for (one, box), (two, other) in combinations(texts, 2):
        if _overlap(box, other):
            yield f"{one.text!r} over {two.text!r}"


def _parts(body: Box, label: Box | None) -> list[tuple[str, Box]]:
    return [("body", body)] + ([("label", label)] if label is not None else [])


def _box_of(mark: Text) -> Box:
    """Return the box of the letters of a text without accents and descenders."""
    width = text_width(mark.text, mark.size, mark.weight)
    left = mark.x - {"start": 0.0, "middle": width / 2, "end": width}[mark.anchor]
    return Box(x=left, y=mark.y - 0.72 * mark.size, width=width, height=0.72 * mark.size)


def _overlap(one: Box, two: Box) -> bool:
    across = min(one.x + one.width, two.x + two.width) - max(one.x, two.x)
    along = min(one.y + one.height, two.y + two.height) - max(one.y, two.y)
    return across > _TOUCH and along > _TOUCH


def _hull(start: Sequence[float], end: Sequence[float]) -> Box:
    (x0, y0), (x1, y1) = start, end
    half = 0.5
    return Box(
        x=min(x0, x1) - half, y=min(y0, y1) - half, width=abs(x1 - x0) + 2 * half, height=abs(y1 - y0) + 2 * half
    )
