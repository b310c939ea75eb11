import diagrams
import oracle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neural_flow.drawing import Arrow, Diagram, DiagramNode, LayoutOptions, NodeSize, Sizes
from neural_flow.layout.layered import lay_out_layered

DIRECTIONS = st.sampled_from(["lr", "tb"])


def lay_out(diagram, sizes, direction="lr"):
    return lay_out_layered(diagram, sizes, LayoutOptions(direction=direction))


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(diagrams.diagrams(), DIRECTIONS)
def test_any_diagram_is_drawn_without_a_fault(made, direction):
    diagram, sizes = made
    layout = lay_out(diagram, sizes, direction)
    assert oracle.faults(layout, diagram, sizes) == []
    assert oracle.mingled_parts(layout, diagram) == []


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(diagrams.large_diagrams(300), DIRECTIONS)
def test_any_large_diagram_is_drawn_without_a_fault(made, direction):
    diagram, sizes = made
    layout = lay_out(diagram, sizes, direction)
    assert oracle.faults(layout, diagram, sizes) == []
    assert oracle.mingled_parts(layout, diagram) == []


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(diagrams.diagrams(has_returns=False, has_frames=False), DIRECTIONS)
def test_the_trunk_is_straight(made, direction):
    diagram, sizes = made
    parts = oracle.parts_of(diagram)
    layout = lay_out(diagram, sizes, direction)
    for part in parts:
        assert oracle.trunk_straightness(layout, part, sizes) == 1.0


@pytest.mark.parametrize("direction", ["lr", "tb"])
@pytest.mark.parametrize("name", diagrams.NETS)
def test_usual_nets(name, direction):
    diagram, sizes = diagrams.NETS[name]()
    layout = lay_out(diagram, sizes, direction)
    assert layout.style == "layered"
    assert layout.direction == direction
    assert oracle.faults(layout, diagram, sizes) == []


@pytest.mark.parametrize("name", ["unet", "resnet", "transformer", "multimodal"])
def test_usual_nets_have_no_crossings_and_all_their_frames_and_texts(name):
    diagram, sizes = diagrams.NETS[name]()
    for direction in ("lr", "tb"):
        layout = lay_out(diagram, sizes, direction)
        assert oracle.crossings(layout, diagram) == 0
        assert [frame.is_bracket for frame in layout.frames] == [False] * len(diagram.frames)
        assert {route.arrow_id for route in layout.routes if route.label} == set(sizes.arrow_labels)


def test_skips_enter_rings_from_the_side_and_nest():
    diagram, sizes = diagrams.unet(3, has_frames=False)
    layout = lay_out(diagram, sizes)
    skips = [route for route in layout.routes if diagram.arrows[route.arrow_id].kind == "skip"]
    depths = [max(point[1] for point in route.points) for route in skips]
    assert depths == sorted(depths), "the inner skip comes first and lies nearest to the row"
    for route in skips:
        assert oracle.bends(route) == 3
        (x0, y0), (x1, y1) = route.points[-2:]
        assert x0 == x1
        assert y1 < y0, "from below, up into the ring"
        assert len(route.taps) == 1


def dense_block(num_layers):
    """Return layers of which each reads a ring over everything before it."""
    build = diagrams.Builder()
    outputs = [build.card("input")]
    for index in range(num_layers):
        reader = outputs[0]
        if index:
            reader = build.ring()
            for output in outputs:
                build.arrow(output, reader, "primary" if output == outputs[-1] else "skip")
        card = build.card(f"layer{index}")
        build.arrow(reader, card)
        outputs.append(card)
    return build.done()


@pytest.mark.parametrize("direction", ["lr", "tb"])
def test_lines_of_a_dense_block_turn_into_every_merge_from_one_bus(direction):
    diagram, sizes = dense_block(9)
    layout = lay_out(diagram, sizes, direction)
    assert oracle.faults(layout, diagram, sizes) == []
    for route in layout.routes:
        assert route.style == "orthogonal", "dense as it is, it stays calm"
        is_skip = diagram.arrows[route.arrow_id].kind == "skip"
        assert oracle.bends(route) == (3 if is_skip else 0), "out, along, in"


def test_fronts_of_a_row_stand_on_one_line():
    diagram, sizes = diagrams.resnet()
    layout = lay_out(diagram, sizes)
    axes = {
        round(place.body.y + place.body.height - sizes.nodes[place.node_id].front_height / 2, 3)
        for place in layout.placements
    }
    assert len(axes) == 1


def test_labels_stand_above_in_rows_and_beside_in_columns():
    diagram, sizes = diagrams.chain(3)
    for place in lay_out(diagram, sizes, "lr").placements:
        assert place.label_side == "above"
        assert place.label.x == place.body.x
        assert place.label.y + place.label.height < place.body.y
    for place in lay_out(diagram, sizes, "tb").placements:
        assert place.label.x > place.body.x + place.body.width
        assert abs(place.label.y + place.label.height / 2 - place.body.y - place.body.height / 2) < 0.01


def cards(num_nodes, *ends, kind="primary"):
    nodes = tuple(DiagramNode(node_id=node, role="card", order=node) for node in range(num_nodes))
    arrows = tuple(
        Arrow(arrow_id=arrow, source=source, target=target, kind=kind) for arrow, (source, target) in enumerate(ends)
    )
    size = NodeSize(width=46, height=46, front_width=40, front_height=40, label_width=30, label_height=13)
    return Diagram(nodes=nodes, arrows=arrows), Sizes(nodes=dict.fromkeys(range(num_nodes), size))


@pytest.mark.parametrize(
    ("num_nodes", "ends"),
    [
        (0, []),
        (1, []),
        (5, []),
        (4, [(0, 1), (2, 3)]),
        (2, [(0, 1), (0, 1), (0, 1)]),
        (1, [(0, 0)]),
        (3, [(0, 1), (1, 2), (2, 0)]),
        (3, [(0, 1), (1, 0), (1, 2), (2, 1), (2, 2)]),
        (4, [(3, 2), (2, 1), (1, 0)]),
    ],
)
def test_unusual_diagrams(num_nodes, ends):
    """Nothing, parts, several arrows between two nodes, cycles, calls against the execution order."""
    diagram, sizes = cards(num_nodes, *ends)
    for direction in ("lr", "tb"):
        layout = lay_out(diagram, sizes, direction)
        assert oracle.faults(layout, diagram, sizes) == []
        assert oracle.mingled_parts(layout, diagram) == []


def test_a_cycle_is_drawn_as_a_return_arc():
    diagram, sizes = cards(3, (0, 1), (1, 2), (2, 0))
    layout = lay_out(diagram, sizes)
    first, last = layout.placements[0].body, layout.placements[2].body
    back = layout.routes[2].points
    assert back[0][0] > last.x + last.width
    assert back[-1][0] < first.x
    assert max(y for _, y in back) > max(place.body.y + place.body.height for place in layout.placements)


def test_a_return_arrow_that_goes_forwards_is_an_arrow():
    diagram, sizes = cards(3, (0, 1), (1, 2), (0, 2), kind="return")
    layout = lay_out(diagram, sizes)
    assert oracle.faults(layout, diagram, sizes) == []


def order_across(layout):
    """Return the nodes of each layer (what is centred at one place along the flow), in order across it."""
    layers = {}
    for place in layout.placements:
        body = place.body
        layers.setdefault(round(body.y + body.height / 2, 1), []).append((body.x, place.node_id))
    return {tuple(node for _, node in sorted(row)) for row in layers.values()}


@pytest.mark.parametrize("name", ["unet4", "multimodal", "inception", "gpt2_12", "resnet152", "densenet121"])
def test_a_stage_added_at_the_end_moves_no_earlier_one_past_another(name):
    diagram, sizes = diagrams.diagram_of(diagrams.stored_graphs()[name])
    new = len(diagram.nodes)
    node = DiagramNode(node_id=new, role="card", order=new)
    last = diagram.arrows[oracle.trunk_edges(diagram)[-1]].target
    arrow = Arrow(arrow_id=len(diagram.arrows), source=last, target=new)
    longer = Diagram(nodes=(*diagram.nodes, node), arrows=(*diagram.arrows, arrow))
    size = NodeSize(width=30, height=30, front_width=30, front_height=30)
    before = order_across(lay_out(diagram, sizes, "tb"))
    after = order_across(lay_out(longer, Sizes(nodes={**sizes.nodes, new: size}), "tb"))
    assert before <= after


def test_dense_nets_are_drawn_in_curves():
    diagram, sizes = diagrams.densenet(10)
    layout = lay_out(diagram, sizes)
    assert {route.style for route in layout.routes} == {"curve"}
    for route in layout.routes:
        assert len(route.points) % 3 == 1
