"""What every registered layout style promises, checked on the day it is added."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "layout"))

import diagrams
import oracle

from neural_flow.drawing import Diagram, LayoutOptions, Sizes
from neural_flow.layout._base import LAYOUT_STYLES
from neural_flow.layout.choose import lay_out

STYLES = LAYOUT_STYLES.names()


def test_the_styles_of_the_contract_are_there():
    assert {"layered", "u", "wrapped"} <= set(STYLES)
    assert "auto" not in STYLES


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", diagrams.NETS)
def test_a_style_draws_every_usual_net_without_a_fault(style, name):
    diagram, sizes = diagrams.NETS[name]()
    for direction in ("auto", "lr", "tb"):
        layout = LAYOUT_STYLES.get(style)(diagram, sizes, LayoutOptions(direction=direction))
        assert oracle.faults(layout, diagram, sizes) == []
        assert layout == lay_out(diagram, sizes, LayoutOptions(direction=direction), style)


@pytest.mark.parametrize("style", STYLES)
def test_a_style_draws_nothing_and_one_card(style):
    empty = LAYOUT_STYLES.get(style)(Diagram(nodes=()), Sizes(nodes={}), LayoutOptions())
    assert (empty.width, empty.height, empty.placements, empty.routes) == (0.0, 0.0, (), ())
    diagram, sizes = diagrams.chain(1)
    layout = LAYOUT_STYLES.get(style)(diagram, sizes, LayoutOptions())
    assert len(layout.placements) == 1
    assert layout.placements[0].body.x == 0.0


@pytest.mark.parametrize("style", STYLES)
def test_a_style_bounds_its_page_and_starts_at_its_corner(style):
    diagram, sizes = diagrams.multimodal()
    layout = LAYOUT_STYLES.get(style)(diagram, sizes, LayoutOptions())
    boxes = [place.body for place in layout.placements] + [frame.box for frame in layout.frames]
    assert min(box.x for box in boxes) >= 0.0
    assert max(box.x + box.width for box in boxes) <= layout.width + 0.01
    assert max(box.y + box.height for box in boxes) <= layout.height + 0.01


@pytest.mark.parametrize("style", STYLES)
def test_a_style_has_a_docstring_that_says_what_it_draws(style):
    assert (LAYOUT_STYLES.get(style).__doc__ or "").strip()
