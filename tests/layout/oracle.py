"""Judge a finished layout from the outside: what overlaps, what crosses, how long, how straight.

Nothing here is shared with the engine. The oracle reads the records only: boxes, points, and the diagram they stand
for. Lengths are points.
"""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise

import networkx as nx
import numpy as np

from neural_flow.drawing import Diagram

TOUCH = 0.05


# -- boxes -----------------------------------------------------------------------------------------------------------


def edges_of(box):
    return box.x, box.y, box.x + box.width, box.y + box.height


def overlap_pairs(boxes, others=None, margin=-TOUCH):
    """Return index pairs of boxes that share more than a hair; within ``boxes``, or between both lists."""
    is_same = others is None
    others = boxes if is_same else others
    if not len(boxes) or not len(others):
        return []
    a = np.array([edges_of(box) for box in boxes])
    b = np.array([edges_of(box) for box in others])
    order = np.argsort(b[:, 0], kind="stable")
    starts = b[order, 0]
    widest = float((b[:, 2] - b[:, 0]).max())
    found = []
    for index, (x0, y0, x1, y1) in enumerate(a):
        low = np.searchsorted(starts, x0 - widest - 1.0)
        high = np.searchsorted(starts, x1 + 1.0)
        near = order[low:high]
        hits = near[
            (b[near, 0] < x1 + margin)
            & (b[near, 2] > x0 - margin)
            & (b[near, 1] < y1 + margin)
            & (b[near, 3] > y0 - margin)
        ]
        found += [(index, int(hit)) for hit in hits if not is_same or hit > index]
    return found


def node_overlaps(layout):
    """Return pairs of node ids whose bodies overlap."""
    ids = [place.node_id for place in layout.placements]
    return [(ids[a], ids[b]) for a, b in overlap_pairs([place.body for place in layout.placements])]


def label_overlaps(layout):
    """Return what node labels and arrow labels overlap: bodies, each other."""
    labels = [(f"label {place.node_id}", place.label) for place in layout.placements if place.label]
    labels += [(f"arrow {route.arrow_id}", route.label) for route in layout.routes if route.label]
    bodies = [(f"body {place.node_id}", place.body) for place in layout.placements]
    boxes = [box for _, box in labels]
    found = [(labels[a][0], labels[b][0]) for a, b in overlap_pairs(boxes)]
    found += [(labels[a][0], bodies[b][0]) for a, b in overlap_pairs(boxes, [box for _, box in bodies])]
    return found


# -- lines -----------------------------------------------------------------------------------------------------------


def corners(route, chords=12):
    """Return the route as a chord line."""
    points = [tuple(point) for point in route.points]
    if route.style == "orthogonal":
        return points
    assert len(points) % 3 == 1, "a curve is a start and three points per cubic"
    result = [points[0]]
    for index in range(0, len(points) - 1, 3):
        p = np.array(points[index : index + 4])
        steps = np.linspace(0, 1, chords + 1)[1:, None]
        values = (
            (1 - steps) ** 3 * p[0]
            + 3 * (1 - steps) ** 2 * steps * p[1]
            + 3 * (1 - steps) * steps**2 * p[2]
            + steps**3 * p[3]
        )
        result += [tuple(value) for value in values]
    return result


def segments_of(layout, chords=12):
    """Return all straight pieces as an array (x0, y0, x1, y1) and the arrow id of each."""
    pieces, owners = [], []
    for route in layout.routes:
        line = corners(route, chords)
        for (x0, y0), (x1, y1) in pairwise(line):
            pieces.append((x0, y0, x1, y1))
            owners.append(route.arrow_id)
    return np.array(pieces).reshape(-1, 4), np.array(owners, dtype=int)


def lines_through(layout, boxes, allowed):
    """Return (arrow id, box index) where a line enters the inside of a box, but for pairs in ``allowed``."""
    pieces, owners = segments_of(layout)
    if not len(pieces) or not boxes:
        return []
    x0, x1 = np.minimum(pieces[:, 0], pieces[:, 2]), np.maximum(pieces[:, 0], pieces[:, 2])
    y0, y1 = np.minimum(pieces[:, 1], pieces[:, 3]), np.maximum(pieces[:, 1], pieces[:, 3])
    order = np.argsort(x0, kind="stable")
    starts, longest = x0[order], float((x1 - x0).max())
    found = set()
    for index, box in enumerate(boxes):
        left, top, right, bottom = edges_of(box)
        left, top, right, bottom = left + TOUCH, top + TOUCH, right - TOUCH, bottom - TOUCH
        near = order[np.searchsorted(starts, left - longest - 1.0) : np.searchsorted(starts, right)]
        near = near[(x1[near] > left) & (y0[near] < bottom) & (y1[near] > top)]
        for piece in near:
            if (int(owners[piece]), index) not in allowed and _enters(pieces[piece], left, top, right, bottom):
                found.add((int(owners[piece]), index))
    return sorted(found)


def _enters(piece, left, top, right, bottom):
    """Return whether a straight piece runs inside a box (Liang-Barsky)."""
    x0, y0, x1, y1 = piece
    low, high = 0.0, 1.0
    for step, start, least, most in ((x1 - x0, x0, left, right), (y1 - y0, y0, top, bottom)):
        if abs(step) < 1e-12:
            if not least < start < most:
                return False
            continue
        a, b = sorted(((least - start) / step, (most - start) / step))
        low, high = max(low, a), min(high, b)
    return low < high


def edges_through_nodes(layout):
    """Return (arrow, node) where a line runs through a body; its own ends count too."""
    hits = lines_through(layout, [place.body for place in layout.placements], set())
    return [(arrow, layout.placements[index].node_id) for arrow, index in hits]


def edges_through_labels(layout, diagram):
    """Return (arrow, label) where a line runs through a foreign node's label or any arrow's label."""
    ends = {arrow.arrow_id: (arrow.source, arrow.target) for arrow in diagram.arrows}
    labelled = [place for place in layout.placements if place.label]
    names = [f"label {place.node_id}" for place in labelled]
    boxes = [place.label for place in labelled]
    at = defaultdict(list)
    for index, place in enumerate(labelled):
        at[place.node_id].append(index)
    allowed = {(arrow, index) for arrow, nodes in ends.items() for node in nodes for index in at[node]}
    for route in layout.routes:
        if route.label:
            names.append(f"arrow {route.arrow_id}")
            boxes.append(route.label)
    return [(arrow, names[index]) for arrow, index in lines_through(layout, boxes, allowed)]


def unique_pieces(layout, diagram, chords=12):
    """Return straight pieces with what is drawn twice by arrows of one source counted once, and their sources.

    Level and upright pieces of one source are merged where they lie on each other.
    """
    source_of = {arrow.arrow_id: arrow.source for arrow in diagram.arrows}
    pieces, owners = segments_of(layout, chords)
    level, upright, rest = defaultdict(list), defaultdict(list), set()
    for (x0, y0, x1, y1), owner in zip(pieces.tolist(), owners.tolist(), strict=False):
        source = source_of[owner]
        if abs(y0 - y1) < 1e-6:
            level[source, round(y0, 3)].append((min(x0, x1), max(x0, x1)))
        elif abs(x0 - x1) < 1e-6:
            upright[source, round(x0, 3)].append((min(y0, y1), max(y0, y1)))
        else:
            rest.add((source, round(x0, 3), round(y0, 3), round(x1, 3), round(y1, 3)))
    result, sources = [], []
    for (source, place), spans in level.items():
        for low, high in _union(spans):
            result.append((low, place, high, place))
            sources.append(source)
    for (source, place), spans in upright.items():
        for low, high in _union(spans):
            result.append((place, low, place, high))
            sources.append(source)
    for source, *piece in sorted(rest):
        result.append(tuple(piece))
        sources.append(source)
    return np.array(result).reshape(-1, 4), np.array(sources, dtype=int)


def _union(spans):
    merged = []
    for low, high in sorted(spans):
        if merged and low <= merged[-1][1] + 1e-6:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    return merged


def crossings(layout, diagram, chords=12):
    """Return how often lines of different sources cross in the open, shared lines counted once."""
    pieces, sources = unique_pieces(layout, diagram, chords)
    if not len(pieces):
        return 0
    axis = 1 if layout.direction == "tb" else 0
    low = np.minimum(pieces[:, axis], pieces[:, axis + 2])
    high = np.maximum(pieces[:, axis], pieces[:, axis + 2])
    order = np.argsort(low, kind="stable")
    pieces, sources, low, high = pieces[order], sources[order], low[order], high[order]
    total = 0
    for index in range(len(pieces)):
        end = np.searchsorted(low, high[index], side="right")
        near = slice(index + 1, end)
        keep = (sources[near] != sources[index]) & (high[near] >= low[index])
        if keep.any():
            total += int(_cross(pieces[index], pieces[near][keep]).sum())
    return total


def _cross(piece, others):
    """Return which of ``others`` cross ``piece`` properly: each separates the ends of the other by a hair."""
    ax, ay, bx, by = piece
    cx, cy, dx, dy = others.T
    length = math.hypot(bx - ax, by - ay) or 1.0
    lengths = np.hypot(dx - cx, dy - cy)
    lengths[lengths == 0] = 1.0
    c_side = ((bx - ax) * (cy - ay) - (by - ay) * (cx - ax)) / length
    d_side = ((bx - ax) * (dy - ay) - (by - ay) * (dx - ax)) / length
    a_side = ((dx - cx) * (ay - cy) - (dy - cy) * (ax - cx)) / lengths
    b_side = ((dx - cx) * (by - cy) - (dy - cy) * (bx - cx)) / lengths
    hair = 1e-4
    return (
        (np.minimum(c_side, d_side) < -hair)
        & (np.maximum(c_side, d_side) > hair)
        & (np.minimum(a_side, b_side) < -hair)
        & (np.maximum(a_side, b_side) > hair)
    )


def shared_runs(layout, diagram, least=2.0):
    """Return pairs of arrows of different sources and targets that lie on each other for more than ``least``."""
    ends = {arrow.arrow_id: (arrow.source, arrow.target) for arrow in diagram.arrows}
    lines = defaultdict(list)
    for route in layout.routes:
        if route.style != "orthogonal":
            continue
        for (x0, y0), (x1, y1) in zip(route.points, route.points[1:], strict=False):
            if abs(y0 - y1) < 1e-6:
                lines["level", round(y0, 1)].append((min(x0, x1), max(x0, x1), route.arrow_id))
            else:
                lines["upright", round(x0, 1)].append((min(y0, y1), max(y0, y1), route.arrow_id))
    found = set()
    for spans in lines.values():
        spans.sort()
        for index, (low, high, first) in enumerate(spans):
            for other_low, other_high, second in spans[index + 1 :]:
                if other_low >= high - least:
                    break
                if min(high, other_high) - max(low, other_low) > least and not set(ends[first]) & set(ends[second]):
                    found.add((first, second))
    return sorted(found)


def ink(layout, diagram):
    """Return the length of all lines, what is drawn twice counted once."""
    pieces, _ = unique_pieces(layout, diagram)
    if not len(pieces):
        return 0.0
    return float(np.hypot(pieces[:, 2] - pieces[:, 0], pieces[:, 3] - pieces[:, 1]).sum())


def bends(route):
    """Return how often an orthogonal route turns."""
    turns = 0
    for a, b, c in zip(route.points, route.points[1:], route.points[2:], strict=False):
        if abs((b[0] - a[0]) * (c[1] - b[1]) - (b[1] - a[1]) * (c[0] - b[0])) > 1e-6:
            turns += 1
    return turns


def loose_ends(layout, diagram, reach=2.0):
    """Return arrows whose ends lie further than ``reach`` from the border of their node, or inside it."""
    body = {place.node_id: place.body for place in layout.placements}
    arrows = {arrow.arrow_id: arrow for arrow in diagram.arrows}
    found = []
    for route in layout.routes:
        arrow = arrows[route.arrow_id]
        for point, node in ((route.points[0], arrow.source), (route.points[-1], arrow.target)):
            left, top, right, bottom = edges_of(body[node])
            dx = max(left - point[0], 0.0, point[0] - right)
            dy = max(top - point[1], 0.0, point[1] - bottom)
            if not 0.0 < math.hypot(dx, dy) <= reach:
                found.append((route.arrow_id, node))
    return found


def tap_faults(layout, diagram):
    """Return arrows whose taps are not where their own line starts on another line of the same source."""
    source_of = {arrow.arrow_id: arrow.source for arrow in diagram.arrows}
    lines = {route.arrow_id: corners(route) for route in layout.routes}
    siblings = defaultdict(list)
    for arrow, source in source_of.items():
        siblings[source].append(arrow)
    found = []
    for route in layout.routes:
        if not route.num_shared_points:
            if route.taps:
                found.append(route.arrow_id)
            continue
        tap = route.points[route.num_shared_points - 1]
        is_on_other = any(
            _distance(tap, a, b) < 0.01
            for other in siblings[source_of[route.arrow_id]]
            if other != route.arrow_id
            for a, b in zip(lines[other], lines[other][1:], strict=False)
        )
        if tuple(route.taps) != (tap,) or not is_on_other:
            found.append(route.arrow_id)
    return found


def _distance(point, a, b):
    (px, py), (ax, ay), (bx, by) = point, a, b
    length = (bx - ax) ** 2 + (by - ay) ** 2
    t = 0.0 if not length else max(0.0, min(1.0, ((px - ax) * (bx - ax) + (py - ay) * (by - ay)) / length))
    return math.hypot(px - ax - t * (bx - ax), py - ay - t * (by - ay))


# -- the graph -------------------------------------------------------------------------------------------------------


def parts_of(diagram):
    """Return one diagram per connected part."""
    graph = nx.Graph()
    graph.add_nodes_from(node.node_id for node in diagram.nodes)
    graph.add_edges_from((arrow.source, arrow.target) for arrow in diagram.arrows)
    return [
        Diagram(
            nodes=tuple(node for node in diagram.nodes if node.node_id in part),
            arrows=tuple(arrow for arrow in diagram.arrows if arrow.source in part),
        )
        for part in sorted(nx.connected_components(graph), key=min)
    ]


def trunk_edges(diagram):
    """Return the arrows along the deepest path, by ancestor sets; needs an acyclic diagram of equal arrow kinds."""
    graph = nx.MultiDiGraph()
    order = {node.node_id: (node.order, node.node_id) for node in diagram.nodes}
    graph.add_nodes_from(order)
    for arrow in diagram.arrows:
        graph.add_edge(arrow.source, arrow.target, arrow.arrow_id)
    ancestors = {}
    for node in nx.lexicographical_topological_sort(graph, key=order.__getitem__):
        ancestors[node] = set().union(*(ancestors[p] | {p} for p in graph.predecessors(node)))
    path = []
    node = max(ancestors, key=lambda node: (len(ancestors[node]), [-value for value in order[node]]), default=None)
    while node is not None and graph.in_degree(node):
        best = min(graph.in_edges(node, keys=True), key=lambda e: (-len(ancestors[e[0]]), order[e[0]], e[2]))
        path.append(best[2])
        node = best[0]
    return path[::-1]


def trunk_straightness(layout, diagram, sizes):
    """Return the share of trunk arrows whose two fronts are level within 1.5 pt."""
    ends = {arrow.arrow_id: (arrow.source, arrow.target) for arrow in diagram.arrows}
    body = {place.node_id: place.body for place in layout.placements}

    def axis(node):
        size, box = sizes.nodes[node], body[node]
        if layout.direction == "lr":
            return box.y + box.height - size.front_height / 2
        return box.x + size.front_width / 2

    trunk = trunk_edges(diagram)
    if not trunk:
        return 1.0
    return sum(abs(axis(ends[edge][0]) - axis(ends[edge][1])) < 1.5 for edge in trunk) / len(trunk)


def mingled_parts(layout, diagram):
    """Return pairs of parts that share no data but whose outlines overlap."""
    graph = nx.Graph()
    graph.add_nodes_from(node.node_id for node in diagram.nodes)
    graph.add_edges_from((arrow.source, arrow.target) for arrow in diagram.arrows)
    places = {place.node_id: place for place in layout.placements}
    outlines = []
    for part in sorted(nx.connected_components(graph), key=min):
        boxes = [box for node in part for box in (places[node].body, places[node].label) if box]
        xs = [x for box in boxes for x in edges_of(box)[::2]]
        ys = [y for box in boxes for y in edges_of(box)[1::2]]
        for route in layout.routes:
            arrow = next(arrow for arrow in diagram.arrows if arrow.arrow_id == route.arrow_id)
            if arrow.source in part:
                xs += [point[0] for point in route.points]
                ys += [point[1] for point in route.points]
        outlines.append((min(xs), min(ys), max(xs), max(ys)))
    return [
        (a, b)
        for a in range(len(outlines))
        for b in range(a + 1, len(outlines))
        if outlines[a][0] < outlines[b][2] - TOUCH
        and outlines[b][0] < outlines[a][2] - TOUCH
        and outlines[a][1] < outlines[b][3] - TOUCH
        and outlines[b][1] < outlines[a][3] - TOUCH
    ]


# -- frames ----------------------------------------------------------------------------------------------------------


def frame_faults(layout, diagram, sizes):
    """Return what is wrong with frames: foreign things inside, members outside, boxes that meet, hidden titles."""
    frames = {frame.frame_id: frame for frame in diagram.frames}
    members = {key: set(frame.node_ids) for key, frame in frames.items()}
    for frame in diagram.frames:
        parent, seen = frame.parent_id, set()
        while parent is not None and parent not in seen:
            seen.add(parent)
            members[parent] |= set(frame.node_ids)
            parent = frames[parent].parent_id
    graph = nx.Graph()
    graph.add_nodes_from(node.node_id for node in diagram.nodes)
    graph.add_edges_from((arrow.source, arrow.target) for arrow in diagram.arrows)
    part_of = {node: index for index, part in enumerate(nx.connected_components(graph)) for node in part}
    # A frame over several parts that share no data is drawn where it can be.
    scattered = {key for key, nodes in members.items() if len({part_of[node] for node in nodes}) > 1}
    found = []
    boxes = defaultdict(list)
    bracketed = {place.frame_id for place in layout.frames if place.is_bracket}
    for place in layout.frames:
        if not place.is_bracket:
            boxes[place.frame_id].append(place.box)
    outer = {key: [_with_sheets(frames[key], box) for box in parts] for key, parts in boxes.items()}
    for key, parts in boxes.items():
        for place in layout.placements:
            for name, box in (("body", place.body), ("label", place.label)):
                if box is None:
                    continue
                inside = any(_contains(part, box) for part in parts)
                touching = bool(overlap_pairs(outer[key], [box]))
                if place.node_id in members[key] and not inside and key not in bracketed | scattered:
                    found.append(f"frame {key} leaves out {name} {place.node_id}")
                if place.node_id not in members[key] and touching:
                    found.append(f"frame {key} encloses foreign {name} {place.node_id}")
    keys = sorted(boxes)
    for index, first in enumerate(keys):
        for second in keys[index + 1 :]:
            is_nested = members[first] <= members[second] or members[second] <= members[first]
            # Frames that overlap as sets may still nest within one part of the figure.
            if not is_nested and any(
                not _contains(boxes[first][a], boxes[second][b]) and not _contains(boxes[second][b], boxes[first][a])
                for a, b in overlap_pairs(outer[first], outer[second])
            ):
                found.append(f"frames {first} and {second} meet")
    found += _title_faults(layout, sizes)
    return found


def _with_sheets(frame, box):
    """Return what a repeat covers: two sheets show above its box and right of it."""
    reach = 5.0 if frame.kind == "fold" else 0.0
    return type(box)(x=box.x, y=box.y - reach, width=box.width + reach, height=box.height + reach)


def _contains(outer, inner):
    a, b = edges_of(outer), edges_of(inner)
    return a[0] - TOUCH <= b[0] and a[1] - TOUCH <= b[1] and a[2] + TOUCH >= b[2] and a[3] + TOUCH >= b[3]


def _title_faults(layout, sizes):
    """Return frames without a free place for their title in the upper left, right or middle."""
    taken = [box for place in layout.placements for box in (place.body, place.label) if box]
    taken += [route.label for route in layout.routes if route.label]
    found = []
    for place in layout.frames:
        width, height = sizes.frame_titles.get(place.frame_id, (0.0, 0.0))
        if not width or place.is_continued:
            continue
        box = place.box
        top = box.y - height - 1.0 if place.is_bracket else box.y + 2.0
        if not place.is_bracket and width + 6.0 > box.width:
            found.append(f"title {place.frame_id} is wider than its frame")
        left, right = box.x + 6.0, box.x + box.width - 6.0 - width
        spots = [type(box)(x=x, y=top, width=width, height=height) for x in (left, right, (left + right) / 2)]
        if all(overlap_pairs([spot], taken) for spot in spots):
            found.append(f"title {place.frame_id} has no free place")
    return found


# -- all at once -----------------------------------------------------------------------------------------------------


def faults(layout, diagram, sizes):
    """Return everything that must never be: a list of (what, where), empty for a good layout."""
    found = [("nodes", pair) for pair in node_overlaps(layout)]
    found += [("labels", pair) for pair in label_overlaps(layout)]
    found += [("line through node", hit) for hit in edges_through_nodes(layout)]
    found += [("line through label", hit) for hit in edges_through_labels(layout, diagram)]
    found += [("loose end", end) for end in loose_ends(layout, diagram)]
    found += [("lines on each other", pair) for pair in shared_runs(layout, diagram)]
    found += [("tap", arrow) for arrow in tap_faults(layout, diagram)]
    found += [("frame", fault) for fault in frame_faults(layout, diagram, sizes)]
    if sorted(place.node_id for place in layout.placements) != sorted(node.node_id for node in diagram.nodes):
        found.append(("placements", "not one per node"))
    if sorted(route.arrow_id for route in layout.routes) != sorted(arrow.arrow_id for arrow in diagram.arrows):
        found.append(("routes", "not one per arrow"))
    boxes = [box for place in layout.placements for box in (place.body, place.label) if box]
    boxes += [frame.box for frame in layout.frames] + [route.label for route in layout.routes if route.label]
    points = [point for route in layout.routes for point in corners(route)]
    xs = [x for box in boxes for x in edges_of(box)[::2]] + [point[0] for point in points]
    ys = [y for box in boxes for y in edges_of(box)[1::2]] + [point[1] for point in points]
    if xs and (
        min(xs) < -TOUCH or min(ys) < -TOUCH or max(xs) > layout.width + TOUCH or max(ys) > layout.height + TOUCH
    ):
        found.append(("page", (min(xs), min(ys), max(xs), max(ys), layout.width, layout.height)))
    return found
