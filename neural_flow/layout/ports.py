"""Where lines enter nodes: spread over the side that faces the flow, the primary line at the centre.

Where there are too many to tell their heads apart, those from either side come together in one place.
"""

from __future__ import annotations

from neural_flow.layout._base import PORT_PITCH, NodeShape
from neural_flow.layout.channels import back_ends
from neural_flow.layout.grid import Grid

MIN_HEAD_PITCH = 3.6


def assign_in_ports(grid: Grid, shapes: list[NodeShape]) -> dict[int, float]:
    """Return the offset of each edge's end from its target's axis; return arrow ``i`` has key ``-1 - i``.

    Edges that turn into the side of a ring have no port.
    """
    graph = grid.graph
    place = [0] * len(grid.layer)
    for row in grid.rows:
        for index, element in enumerate(row):
            place[element] = index
    entering: list[list[int]] = [[] for _ in range(graph.num_nodes)]
    for index, (_, target, _) in enumerate(graph.returns):
        entering[target].append(-1 - index)
    ports: dict[int, float] = {}
    for node in range(graph.num_nodes):
        edges = [edge for edge in graph.incoming[node] if edge not in grid.turns]
        keys = sorted(edges, key=lambda edge: (place[grid.hop_before(edge)], edge))
        for back in entering[node]:
            lane, _ = back_ends(grid, -1 - back)
            keys.insert(0 if place[lane] < place[node] else len(keys), back)
        if len(keys) < 2:
            ports.update(dict.fromkeys(keys, 0.0))
            continue
        primary = graph.primary[node]
        centre = keys.index(primary) if primary in keys else len(keys) // 2
        reach = max(centre, len(keys) - 1 - centre)
        pitch = min(PORT_PITCH, shapes[node].port_half / reach)
        if pitch < MIN_HEAD_PITCH:
            # Heads that would cover each other are one: what comes from one side ends in one place.
            pitch = 0.0 if shapes[node].is_ring else min(PORT_PITCH, shapes[node].port_half)
            ports.update({key: ((index > centre) - (index < centre)) * pitch for index, key in enumerate(keys)})
            continue
        for index, key in enumerate(keys):
            ports[key] = (index - centre) * pitch
    return ports
