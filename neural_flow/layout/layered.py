"""The layered style: layers along the flow, a straight trunk, every line free of cards."""

from __future__ import annotations

from dataclasses import dataclass, replace

from neural_flow.drawing import (
    Box,
    Diagram,
    Direction,
    FramePlacement,
    Layout,
    LayoutOptions,
    Placement,
    Sizes,
)
from neural_flow.layout._base import (
    ARROW_LABEL_GAP,
    FRAME_PADDING,
    LAYER_GAP,
    LAYOUT_STYLES,
    NodeShape,
    body_and_label,
    shape_of,
)
from neural_flow.layout.bands import GapNeeds, assign_bands
from neural_flow.layout.channels import assign_tracks, make_channels
from neural_flow.layout.coordinates import assign_coordinates
from neural_flow.layout.frame_boxes import frame_boxes, frame_rooms
from neural_flow.layout.frame_places import place_frames, title_strips
from neural_flow.layout.frames import TITLE_INSET, FrameTree, build_tree, mark_elements
from neural_flow.layout.graph import FlowGraph, adopt_forward_returns, build_graph, split_diagram
from neural_flow.layout.grid import Grid, build_grid, num_passing, place_turns
from neural_flow.layout.labels import SIDE_GAP, place_arrow_labels
from neural_flow.layout.line_kinds import line_kinds, order_ways, words_of
from neural_flow.layout.order import order_layers
from neural_flow.layout.plan import Plan
from neural_flow.layout.ports import assign_in_ports
from neural_flow.layout.ranks import assign_ranks
from neural_flow.layout.routing import route_curves, route_orthogonal
from neural_flow.layout.settle import FrameRooms
from neural_flow.layout.sheet import Sheet, finish, make_routes, pack
from neural_flow.layout.u_find import find_u

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
    """Return the sheet of a connected diagram, in one row or column."""
    return make_sheet(make_draft(diagram, sizes, direction), "layered")


@dataclass(slots=True)
class Draft:
    """A placed connected diagram with what a sheet is made of."""

    plan: Plan
    tree: FrameTree
    rooms: FrameRooms
    sizes: Sizes
    direction: Direction
    is_curved: bool


def make_draft(diagram: Diagram, sizes: Sizes, direction: Direction) -> Draft:
    """Place a connected diagram in one row."""
    graph = build_graph(diagram)
    place = {node.node_id: index for index, node in enumerate(graph.nodes)}
    tree = build_tree(diagram.frames, place, sizes)
    ranks = assign_ranks(graph, [nodes for nodes, loose in zip(tree.members, tree.is_loose, strict=True) if not loose])
    adopt_forward_returns(graph, ranks)
    rooms = frame_rooms(tree, direction)
    grid = build_grid(graph, ranks)
    mark_elements(grid, tree)
    order_layers(grid, lanes_after=direction == "lr")
    is_curved = not _is_calm(graph, num_passing(grid))
    if not is_curved:
        place_turns(grid)
    shapes = [shape_of(node, sizes.nodes[node.node_id], direction) for node in graph.nodes]
    label_room = _make_label_room(grid, shapes, sizes, direction)
    in_ports = assign_in_ports(grid, shapes)
    x = assign_coordinates(grid, shapes, in_ports, rooms, is_calm=not is_curved)
    channels = make_channels(grid, x, in_ports)
    if not is_curved:
        assign_tracks(channels)
        is_curved = any(channel.num_overlaps for channel in channels)
    if is_curved:
        # Curves use the whole gap, so labels must not reach into it.
        shapes = [replace(shape, length=shape.length + shape.overhang, overhang=0.0) for shape in shapes]
    is_level = direction == "lr"
    needs = GapNeeds(
        label_room=label_room,
        opening_room=[FRAME_PADDING if is_level else tree.top_room(frame) for frame in range(len(tree.frames))],
        min_frame_length=[width + 2 * TITLE_INSET if width and is_level else 0.0 for width in tree.title_width],
        is_curved=is_curved,
        layer_gap=LAYER_GAP * sizes.tightness,
    )
    plan = Plan(
        grid=grid,
        shapes=shapes,
        x=x,
        in_ports=in_ports,
        channels=channels,
        bands=assign_bands(grid, shapes, x, channels, needs),
        row_of=[0] * grid.num_layers,
        shifts=[(0.0, 0.0)],
    )
    return Draft(plan=plan, tree=tree, rooms=rooms, sizes=sizes, direction=direction, is_curved=is_curved)


def _is_calm(graph: FlowGraph, num_passing: int) -> bool:
    """Return whether right-angled lines stay readable: few stages, or few lines per stage.

    Lines that turn off one that is there anyway do not count.
    """
    density = (graph.num_edges - num_passing) / max(graph.num_nodes, 1)
    if graph.num_nodes <= MAX_ORTHOGONAL_NODES:
        return density <= MAX_ORTHOGONAL_DENSITY
    return density <= MAX_SPARSE_DENSITY


def _make_label_room(
    grid: Grid, shapes: list[NodeShape], sizes: Sizes, direction: Direction
) -> list[tuple[float, float]]:
    """Return the room for arrow labels in each gap, and widen ``shapes`` where labels stand beside lines.

    The label of a line that is alone at its source stands there; else at its target, where lines have parted.
    """
    graph = grid.graph
    room = [(0.0, 0.0)] * (grid.num_layers + 1)
    for edge in range(graph.num_edges):
        width, height = sizes.arrow_labels.get(graph.arrows[edge].arrow_id, (0.0, 0.0))
        if width <= 0:
            continue
        source, target = graph.source[edge], graph.target[edge]
        is_alone = len(graph.outgoing[source]) == 1
        length = width + 2.0 if direction == "lr" else height + 2.0
        layer = grid.layer[source] + 1 if is_alone else grid.layer[target]
        before, after = room[layer]
        room[layer] = (max(before, length), after) if is_alone else (before, max(after, length))
        node = source if is_alone else target
        shape = shapes[node]
        if direction == "lr":
            shapes[node] = replace(shape, before=max(shape.before, height + ARROW_LABEL_GAP))
        else:
            shapes[node] = replace(shape, after=max(shape.after, width + SIDE_GAP))
    return room


def make_sheet(draft: Draft, style: str) -> Sheet:
    """Return the sheet of a draft: nodes, routes, frames and arrow labels in page coordinates."""
    plan, graph = draft.plan, draft.plan.grid.graph
    sheet = Sheet(style=style, direction=draft.direction)
    obstacles: list[tuple[int, Box]] = []
    for index, node in enumerate(graph.nodes):
        body, label = body_and_label(
            plan.shapes[index],
            draft.sizes.nodes[node.node_id],
            draft.direction,
            plan.node_start(index),
            plan.across(index),
        )
        side = "above" if draft.direction == "lr" else "below"
        sheet.placements.append(Placement(node_id=node.node_id, body=body, label=label, label_side=side))
        obstacles += [(index, box) for box in (body, label) if box is not None]
    points = route_curves(plan) if draft.is_curved else route_orthogonal(plan)
    u_shape = find_u(graph, draft.sizes)
    kinds = line_kinds(graph, u_shape.bridges if u_shape is not None else ())
    ways = order_ways(graph, points, kinds)
    routes = make_routes(ways, is_curved=draft.is_curved, direction=draft.direction)
    sheet.frames.extend(_place_all_frames(draft, obstacles))
    taken = [box for _, box in obstacles] + title_strips(draft.tree, sheet.frames)
    is_level = draft.direction == "lr"
    labelled = place_arrow_labels(
        routes, draft.sizes.arrow_labels, taken, prefers_level=is_level, words=words_of(graph)
    )
    sheet.routes.extend(labelled)
    return sheet


def _place_all_frames(draft: Draft, obstacles: list[tuple[int, Box]]) -> list[FramePlacement]:
    """Return the frames of all rows. A frame that cannot be a box in one of its rows is a box in none."""
    rows = frame_boxes(draft.plan, draft.tree, draft.rooms, draft.direction)
    rings = {index for index, shape in enumerate(draft.plan.shapes) if shape.is_ring}
    while True:
        placed: list[FramePlacement] = []
        titled: set[int] = set()
        broken: set[int] = set()
        for boxes in rows:
            found = place_frames(draft.tree, boxes, obstacles, titled, rings)
            whole = {frame.frame_id for frame in found if not frame.is_bracket}
            broken |= {index for index in boxes if draft.tree.frames[index].frame_id not in whole}
            titled.update(boxes)
            placed += found
        boxed = {index for index in broken if not draft.tree.is_loose[index]}
        boxed = {index for index in boxed if sum(index in boxes for boxes in rows) > 1}
        if not boxed:
            return placed
        for index in boxed:
            draft.tree.is_loose[index] = True
