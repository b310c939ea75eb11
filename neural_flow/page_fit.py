"""Fit a figure to its page: text keeps its size, pictures become as large or as small as the page allows.

A figure is drawn at its usual size first. Only where that does not fit the page, or leaves it empty, other sizes are
tried; a diagram so large that no size of pictures would help is laid out once.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

from neural_flow.diagram.build import build_diagram
from neural_flow.drawing import Diagram, Layout, LayoutOptions, Scene, Sizes
from neural_flow.errors import NeuralFlowWarning
from neural_flow.layout.choose import lay_out
from neural_flow.layout.wrap import HEADER_ROOM, tall_cost
from neural_flow.options import POINTS_OF_DEFAULT_PAGE, Options, layout_options, scene_options
from neural_flow.records import Capture, Measurements, Topology
from neural_flow.scene.build import build_scene
from neural_flow.scene.measure import measure_diagram
from neural_flow.scene.options import SceneOptions
from neural_flow.theme import Theme, get_theme

SMALLER = (0.9, 0.8, 0.7, 0.65, 0.6, 0.55, 0.5)
LARGER = (1.5, 1.35, 1.2)
FIXED_SMALLER = (0.85, 0.7, 0.55, 0.45)
FIXED_LARGER = (1.1, 1.25, 1.5, 1.75, 2.0)
"""Sizes of pictures, as shares of the usual one: tried in turn, or all of them where a width is given."""
WIDER = (1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0)
"""Shares of a given width, tried where a figure cannot be as narrow."""
MAX_TRIED_NODES = 250
"""Diagrams with more nodes are laid out once: they are read in parts, whatever the size of their pictures."""
MAX_SIZED_NODES = 60
"""Larger ones are tried with the smallest pictures first: where these do not fit, nothing does."""
MAX_OVERFLOW = 2.0
"""What is larger than that many pages does not fit with smaller pictures either."""
PADDED_ASPECT = 2.99
"""A page gets white above and below its figure where it would be flatter."""
MAX_LARGE_ROW = 704.0
"""A row of larger pictures may be that wide: on wider pages the text would be too small beside them."""
MIN_TIGHTNESS = 0.7
SMALL_COST = 0.8
LARGE_GAIN = 0.25
ASPECT_COST = 0.3
UNUSED_COST = 0.5
COLUMN_COST = 0.1
ROW_GAIN = 0.28
"""What one row is worth: it reads best, as long as it is no ribbon."""
GOOD_COST = 0.4
BROKEN_FRAME_COST = 0.3
U_GAIN = 0.5
"""What the shape of a U is worth, in the cost of a page of a given width."""
OVERFLOW_COST = 10.0
_CLOSE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedPage:
    """A finished page with what it was made of."""

    diagram: Diagram
    sizes: Sizes
    layout: Layout
    look: SceneOptions
    scene: Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class _Try:
    """A layout with pictures of one size, not yet drawn."""

    scale: float
    look: SceneOptions
    sizes: Sizes
    layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figure:
    """What every try draws, and what was asked of it."""

    topology: Topology
    capture: Capture
    measurements: tuple[Measurements, ...]
    diagram: Diagram
    theme: Theme
    look: SceneOptions
    options: LayoutOptions
    style: str

    @property
    def num_nodes(self) -> int:
        """Return how much there is to place."""
        return len(self.diagram.nodes)

    def lay_out(self, scale: float, options: LayoutOptions | None = None) -> _Try:
        """Return the layout with pictures of this size; smaller ones stand closer together."""
        look = replace(self.look, picture_scale=scale)
        sizes = measure_diagram(self.diagram, self.topology, self.capture, self.theme, look, self.measurements)
        sizes = replace(sizes, tightness=min(1.0, max(scale, MIN_TIGHTNESS)))
        layout = lay_out(self.diagram, sizes, options or self.options, self.style)
        return _Try(scale=scale, look=look, sizes=sizes, layout=layout)

    def draw(self, found: _Try) -> FittedPage:
        """Return the page of a layout."""
        scene = build_scene(
            self.topology, self.diagram, found.layout, self.capture, self.measurements, self.theme, found.look
        )
        return FittedPage(diagram=self.diagram, sizes=found.sizes, layout=found.layout, look=found.look, scene=scene)

    def page(self, scale: float) -> FittedPage:
        """Return the page with pictures of this size."""
        return self.draw(self.lay_out(scale))


def fit_page(
    topology: Topology, capture: Capture, measurements: tuple[Measurements, ...], asked: Options
) -> FittedPage:
    """Return one page of a topology, drawn as asked, with pictures of the size that suits the page."""
    figure = _Figure(
        topology=topology,
        capture=capture,
        measurements=measurements,
        diagram=build_diagram(topology),
        theme=get_theme(asked.theme),
        look=scene_options(asked),
        options=layout_options(asked),
        style=asked.layout,
    )
    return _fit_default(figure) if figure.look.page_width is None else _fit_width(figure, figure.look.page_width)


def _fit_default(figure: _Figure) -> FittedPage:
    """Return a page within the default one, if there is any."""
    usual = figure.page(1.0)
    overflow = _overflow(usual.scene)
    if overflow > MAX_OVERFLOW or figure.num_nodes > MAX_TRIED_NODES:
        return usual
    if overflow <= 1.0:
        is_padded = usual.scene.width >= PADDED_ASPECT * usual.scene.height and usual.layout.style == "layered"
        return _larger(figure, usual) if is_padded else usual
    best = usual
    if figure.num_nodes > MAX_SIZED_NODES:
        best = min(best, figure.page(SMALLER[-1]), key=lambda page: _overflow(page.scene))
        if _overflow(best.scene) > 1.0:
            return _another_way(figure, best)
    for scale in SMALLER:
        page = figure.page(scale)
        if _overflow(page.scene) <= 1.0:
            return page
        best = min(best, page, key=lambda page: _overflow(page.scene))
    return _another_way(figure, best)


def _another_way(figure: _Figure, best: FittedPage) -> FittedPage:
    """Return a page of the largest pictures with which some way of drawing fits, the best one or not; else ``best``.

    Columns are read less easily than rows, but more easily than rows that are too small.
    """
    options = replace(figure.options, is_fit_first=True)
    smallest = figure.draw(figure.lay_out(SMALLER[-1], options))
    if _overflow(smallest.scene) > 1.0:
        return best
    for scale in SMALLER[:-1]:
        page = figure.draw(figure.lay_out(scale, options))
        if _overflow(page.scene) <= 1.0:
            return page
    return smallest


def _overflow(scene: Scene) -> float:
    """Return how many times a page is larger than the default one."""
    width, height = POINTS_OF_DEFAULT_PAGE
    return max(scene.width / width, scene.height / height)


def _larger(figure: _Figure, usual: FittedPage) -> FittedPage:
    """Return the page of a short row with the largest pictures that leave it one row of moderate width."""
    options = replace(figure.options, plain_width=MAX_LARGE_ROW)
    for scale in LARGER:
        found = figure.lay_out(scale, options)
        if found.layout.style == usual.layout.style and found.layout.width <= MAX_LARGE_ROW:
            return figure.draw(found)
    return usual


def _fit_width(figure: _Figure, width: float) -> FittedPage:
    """Return the best page of a given width. Says how wide it must be where no way of drawing it is so narrow."""
    tries = _tries(figure, 1.0)
    cost = min(_cost(found, figure) for found in tries)
    if figure.num_nodes > MAX_SIZED_NODES:
        scales = FIXED_SMALLER[-1:] if cost >= OVERFLOW_COST else ()
    else:
        scales = (FIXED_SMALLER if cost > GOOD_COST else ()) + (FIXED_LARGER if cost < OVERFLOW_COST else ())
    tries += [found for scale in scales for found in _tries(figure, scale)]
    narrowest: FittedPage | None = None
    for found in sorted(tries, key=lambda found: _cost(found, figure)):
        page = _drawn_within(figure, found, width)
        if _fits(page, width):
            return page
        if narrowest is None or page.scene.width < narrowest.scene.width:
            narrowest = page
    assert narrowest is not None
    page = _narrowest(figure, narrowest, width)
    warnings.warn(
        f"no way to draw this figure is as narrow as {width:.0f} pt: "
        f"it is {math.ceil(page.scene.width - _CLOSE)} pt wide",
        NeuralFlowWarning,
        stacklevel=2,
    )
    return page


def _tries(figure: _Figure, scale: float) -> list[_Try]:
    """Return layouts with pictures of one size: one row, where that fits, and what else looks best."""
    row = figure.lay_out(scale, replace(figure.options, plain_width=figure.options.max_width))
    return [row, figure.lay_out(scale)] if _is_row(row.layout) else [row]


def _is_row(layout: Layout) -> bool:
    return layout.style == "layered" and layout.direction == "lr"


def _drawn_within(figure: _Figure, found: _Try, width: float) -> FittedPage:
    """Return the page of a layout; where something stands out of the layout, such as sheets, room is made for it."""
    page = figure.draw(found)
    beyond = page.scene.width - width
    if _fits(page, width) or beyond > figure.options.max_width / 4:
        return page
    return figure.draw(
        figure.lay_out(found.scale, replace(figure.options, max_width=figure.options.max_width - beyond))
    )


def _narrowest(figure: _Figure, found: FittedPage, width: float) -> FittedPage:
    """Return the page of the least width, among a few, that a figure can have, if it is narrower than ``found``."""
    for share in WIDER:
        wider = width * share
        if wider >= found.scene.width:
            break
        options = replace(figure.options, max_width=figure.options.max_width + wider - width)
        again = replace(figure, options=options, look=replace(figure.look, page_width=wider))
        page = _drawn_within(again, again.lay_out(min(FIXED_SMALLER)), wider)
        if _fits(page, wider):
            return page
    return found


def _fits(page: FittedPage, width: float) -> bool:
    return page.scene.width <= width + _CLOSE


def _cost(found: _Try, figure: _Figure) -> float:
    """Return how badly a layout serves a given width: too wide, too tall or flat, small pictures, frames broken."""
    layout, room = found.layout, figure.options.max_width
    if layout.width > room + _CLOSE:
        return OVERFLOW_COST * layout.width / room
    width, height = room + 2 * figure.theme.margin, layout.height + HEADER_ROOM
    cost = ASPECT_COST * abs(math.log(width / height * 9 / 16))
    cost += tall_cost(width, height)
    cost += UNUSED_COST * (1.0 - layout.width / room)
    cost += SMALL_COST * -math.log(found.scale) if found.scale < 1.0 else LARGE_GAIN * -math.log(found.scale)
    cost += BROKEN_FRAME_COST * sum(frame.is_continued for frame in layout.frames)
    cost += COLUMN_COST * (layout.direction == "tb" and len(layout.placements) > 1)
    return cost - U_GAIN * (layout.style == "u") - ROW_GAIN * _is_row(layout)
