"""The layered style: layers along the flow, a straight trunk, every line free of cards."""

from __future__ import annotations

from neural_flow.drawing import Diagram, Direction, Layout, LayoutOptions, Placement, Point, Sizes
from neural_flow.layout._base import LAYOUT_STYLES, body_and_label, shape_of
from neural_flow.layout.bands import assign_bands
from neural_flow.layout.channels import make_channels
from neural_flow.layout.coordinates import assign_coordinates
from neural_flow.layout.graph import FlowGraph, adopt_forward_returns, build_graph, split_diagram
from neural_flow.layout.grid import build_grid, place_turns
from neural_flow.layout.order import order_layers
from neural_flow.layout.ports import assign_in_ports
from neural_flow.layout.ranks import assign_ranks
from neural_flow.layout.routing import Plan, route_curves, route_orthogonal
from neural_flow.layout.sheet import Sheet, finish, make_routes, pack

MAX_ORTHOGONAL_NODES = 60
MAX_ORTHOGONAL_DENSITY = 2.5
MAX_SPARSE_DENSITY = 1.4


@LAYOUT_STYLES.register("layered")
def lay_out_layered(diagram: Diagram, sizes: Sizes, options: LayoutOptions) -> Layout:
    """Place ``diagram`` in layers, in one row or one column."""
    direction: Direction = "tb" if options.direction == "tb" else "lr"
    sheets = [lay_out_part(part, sizes, direction) for part in split_diagram(diagram)]
    return finish(pack(sheets, max_width=options.max_width))


def lay_out_part(diagram: Diagram, sizes: Sizes, direction: Direction) -> Sheet:
    """Return the sheet of a connected diagram."""
    plan, is_curved = make_plan(build_graph(diagram), sizes, direction)
    sheet = Sheet(style="layered", direction=direction)
    fill_sheet(sheet, plan, sizes, is_curved=is_curved)
    return sheet


def make_plan(graph: FlowGraph, sizes: Sizes, direction: Direction) -> tuple[Plan, bool]:
    """Return the placed grid of a connected graph, and whether its lines are curves."""
    shapes = [shape_of(node, sizes.nodes[node.node_id], direction) for node in graph.nodes]
    is_curved = not _is_calm(graph)
    ranks = assign_ranks(graph)
    adopt_forward_returns(graph, ranks)
    grid = build_grid(graph, ranks)
    order_layers(grid, lanes_after=direction == "lr")
    if not is_curved:
        place_turns(grid)
    in_ports = assign_in_ports(grid, shapes)
    x = assign_coordinates(grid, shapes, in_ports)
    channels = make_channels(grid, x, in_ports)
    room = [(0.0, 0.0)] * (grid.num_layers + 1)
    bands = assign_bands(grid, shapes, x, channels, room)
    plan = Plan(grid=grid, shapes=shapes, x=x, in_ports=in_ports, channels=channels, bands=bands)
    return plan, is_curved or any(channel.num_overlaps for channel in channels)


def _is_calm(graph: FlowGraph) -> bool:
    """Return whether right-angled lines stay readable: few stages, or few lines per stage."""
    density = graph.num_edges / max(graph.num_nodes, 1)
    if graph.num_nodes <= MAX_ORTHOGONAL_NODES:
        return density <= MAX_ORTHOGONAL_DENSITY
    return density <= MAX_SPARSE_DENSITY


def fill_sheet(sheet: Sheet, plan: Plan, sizes: Sizes, *, is_curved: bool) -> None:
    """Add the nodes and routes of ``plan`` to ``sheet``."""
    graph = plan.grid.graph
    for index, node in enumerate(graph.nodes):
        body, label = body_and_label(
            plan.shapes[index], sizes.nodes[node.node_id], sheet.direction, plan.node_start(index), plan.x[index]
        )
        sheet.placements.append(
            Placement(
                node_id=node.node_id,
                body=body,
                label=label,
                label_side="above" if sheet.direction == "lr" else "below",
            )
        )
    points = route_curves(plan) if is_curved else route_orthogonal(plan)
    sheet.routes.extend(make_routes(order_ways(graph, points), is_curved=is_curved, direction=sheet.direction))


def order_ways(graph: FlowGraph, points: dict[int, list[Point]]) -> list[tuple]:
    """Return arrows with source and points; the line that others split off comes first."""
    is_trunk = [False] * graph.num_nodes
    for node in graph.trunk:
        is_trunk[node] = True
    edges = sorted(
        range(graph.num_edges),
        key=lambda edge: (
            not (is_trunk[graph.target[edge]] and graph.primary[graph.target[edge]] == edge),
            graph.primary[graph.target[edge]] != edge,
            graph.arrows[edge].arrow_id,
        ),
    )
    ways = [(graph.arrows[edge], graph.source[edge], points[edge]) for edge in edges]
    ways += [(arrow, source, points[-1 - index]) for index, (source, _, arrow) in enumerate(graph.returns)]
    return ways
