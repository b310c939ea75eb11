import diagrams
import oracle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neural_flow.drawing import LayoutOptions
from neural_flow.errors import UnknownNameError
from neural_flow.layout.choose import lay_out


def test_unknown_styles_are_refused_with_the_choices():
    diagram, sizes = diagrams.chain(2)
    with pytest.raises(UnknownNameError, match="layered, u, wrapped"):
        lay_out(diagram, sizes, LayoutOptions(), "spiral")


@pytest.mark.parametrize(
    ("name", "style"),
    [
        ("unet", "u"),
        ("additive unet", "u"),
        ("attention unet", "u"),
        ("diffusion unet", "u"),
        ("side stage unet", "u"),
        ("transformer", "layered"),
        ("multimodal", "layered"),
        ("densenet", "wrapped"),
        ("chain", "wrapped"),
        ("resnet", "wrapped"),
    ],
)
def test_the_usual_nets_get_the_usual_style(name, style):
    diagram, sizes = diagrams.NETS[name]()
    layout = lay_out(diagram, sizes, LayoutOptions())
    assert layout.style == style
    assert layout.direction == "lr"
    assert layout.width <= 1067
    assert layout.height <= 600
    assert oracle.faults(layout, diagram, sizes) == []


def test_a_given_direction_is_kept():
    for name in diagrams.NETS:
        diagram, sizes = diagrams.NETS[name]()
        assert lay_out(diagram, sizes, LayoutOptions(direction="tb")).direction == "tb"
        assert lay_out(diagram, sizes, LayoutOptions(direction="lr")).direction == "lr"


@pytest.mark.parametrize("num_nodes", [2, 12, 13, 24, 60])
def test_chains_fit_the_page_and_are_no_ribbons(num_nodes):
    """A header and a legend add about 48 pt to the height."""
    diagram, sizes = diagrams.chain(num_nodes)
    layout = lay_out(diagram, sizes, LayoutOptions())
    assert layout.width <= 1067
    assert layout.height <= 600
    if num_nodes > 12:
        assert 1 / 3 <= layout.width / (layout.height + 48) <= 3


def test_what_is_too_large_makes_the_page_grow():
    diagram, sizes = diagrams.chain(600)
    layout = lay_out(diagram, sizes, LayoutOptions())
    assert layout.width * layout.height > 1067 * 600
    assert 1 / 3 <= layout.width / layout.height <= 3


@pytest.mark.parametrize("name", diagrams.NETS)
def test_a_given_width_is_kept(name):
    """The width of a page of text; a U may tighten its white space, or give way to what fits."""
    diagram, sizes = diagrams.NETS[name]()
    layout = lay_out(diagram, sizes, LayoutOptions(max_width=516.0, max_height=290.0, is_width_fixed=True))
    assert layout.width <= 516.0
    assert oracle.faults(layout, diagram, sizes) == []


@pytest.mark.parametrize(("num_nodes", "style"), [(5, "layered"), (9, "wrapped")])
def test_a_short_row_stays_one_row(num_nodes, style):
    diagram, sizes = diagrams.chain(num_nodes)
    layout = lay_out(diagram, sizes, LayoutOptions())
    assert layout.style == style
    assert lay_out(diagram, sizes, LayoutOptions(plain_width=800.0)).style == "layered"
    assert (
        lay_out(diagram, sizes, LayoutOptions(max_width=800.0, plain_width=800.0, is_width_fixed=True)).style
        == "layered"
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 40), st.floats(130.0, 1200.0), st.sampled_from(["auto", "lr", "tb"]))
def test_a_chain_has_any_width_that_holds_a_card_and_its_lines(num_nodes, width, direction):
    diagram, sizes = diagrams.chain(num_nodes)
    layout = lay_out(diagram, sizes, LayoutOptions(direction=direction, max_width=width, is_width_fixed=True))
    assert layout.width <= width + 0.001
    assert oracle.faults(layout, diagram, sizes) == []


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    diagrams.diagrams(), st.sampled_from(["auto", "lr", "tb"]), st.sampled_from([200.0, 516.0, 1067.0]), st.booleans()
)
def test_any_diagram_is_drawn_without_a_fault(made, direction, width, is_width_fixed):
    diagram, sizes = made
    options = LayoutOptions(direction=direction, max_width=width, is_width_fixed=is_width_fixed)
    layout = lay_out(diagram, sizes, options)
    assert oracle.faults(layout, diagram, sizes) == []
    assert oracle.mingled_parts(layout, diagram) == []
