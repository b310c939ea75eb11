"""A placed grid: everything that routes, boxes and frames are read from, wrapped into rows or not."""

from __future__ import annotations

from dataclasses import dataclass, field

from neural_flow.layout._base import TRACK_PITCH, NodeShape
from neural_flow.layout.bands import Bands
from neural_flow.layout.channels import Channel
from neural_flow.layout.grid import Grid

Squeeze = tuple[float, float]
"""A place across the flow, and by how much what lies there or beyond is drawn towards what lies before."""


@dataclass(slots=True)
class Cut:
    """A gap at which the drawing is wrapped: lines leave at the row's end, run back, and enter at the next row's start.

    Each line has a place along the flow where it leaves and one where it enters, and one across it where it runs back.
    """

    leave: dict[int, float] = field(default_factory=dict[int, float])
    back: dict[int, float] = field(default_factory=dict[int, float])
    enter: dict[int, float] = field(default_factory=dict[int, float])
    jog: dict[int, float] = field(default_factory=dict[int, float])
    """Where a line that has several ends changes its place, after it has entered."""


@dataclass(slots=True)
class Plan:
    """Elements with places ``x`` across the flow and bands along it. Rows shift both."""

    grid: Grid
    shapes: list[NodeShape]
    x: list[float]
    in_ports: dict[int, float]
    channels: list[Channel]
    bands: Bands
    row_of: list[int]
    """Row of each layer."""
    shifts: list[tuple[float, float]]
    """How far each row is moved, (along, across)."""
    cuts: dict[int, Cut] = field(default_factory=dict[int, Cut])
    """By the layer after the gap."""
    squeezes: dict[int, list[Squeeze]] = field(default_factory=dict[int, list[Squeeze]])
    """By row."""

    def across(self, element: int) -> float:
        """Return the place of an element across the flow."""
        return self.moved_across(self.grid.layer[element], self.x[element])

    def moved_across(self, layer: int, place: float) -> float:
        """Return a place of ``layer`` across the flow, moved with its row."""
        row = self.row_of[layer]
        drawn = sum(amount for start, amount in self.squeezes.get(row, ()) if place >= start)
        return place + self.shifts[row][1] - drawn

    def entry(self, edge: int) -> float:
        """Return where ``edge`` ends across the flow; return arrow ``i`` has key ``-1 - i``."""
        graph = self.grid.graph
        target = graph.target[edge] if edge >= 0 else graph.returns[-1 - edge][1]
        return self.across(target) + self.in_ports.get(edge, 0.0)

    def along(self, layer: int, place: float) -> float:
        """Return a place near ``layer`` along the flow, moved with its row."""
        return place + self.shifts[self.row_of[min(layer, len(self.row_of) - 1)]][0]

    def node_start(self, node: int) -> float:
        """Return where the room of ``node`` starts along the flow: nodes are centred in their band."""
        layer = self.grid.layer[node]
        spare = self.bands.end[layer] - self.bands.start[layer] - self.shapes[node].length
        return self.along(layer, self.bands.start[layer] + spare / 2)

    def body_span(self, node: int) -> tuple[float, float]:
        """Return where the body of ``node`` starts and ends along the flow."""
        shape = self.shapes[node]
        start = self.node_start(node) + shape.body_offset
        return start, start + shape.body_length

    def track(self, layer: int, key: int) -> float:
        """Return where a jogging line of the gap before ``layer`` changes its place."""
        line = self.channels[layer].lines[key]
        return self.along(layer, self.bands.tracks[layer][line.zone] + line.track * TRACK_PITCH)
