"""Places along the flow: a band for each layer, and gaps wide enough for the tracks and arrow labels in them."""

from __future__ import annotations

from dataclasses import dataclass

from neural_flow.layout._base import LAYER_GAP, TRACK_PITCH, NodeShape
from neural_flow.layout.channels import Channel, jogs
from neural_flow.layout.grid import Grid

FIRST_TRACK = 11.0
LAST_TRACK = 15.0
OVERHANG_GAP = 4.0
LABEL_MARGIN = 5.0


@dataclass(slots=True)
class Bands:
    """Where layers start and end along the flow, and where the tracks of the gap before each layer start."""

    start: list[float]
    end: list[float]
    track: list[float]


def assign_bands(
    grid: Grid, shapes: list[NodeShape], x: list[float], channels: list[Channel], label_room: list[tuple[float, float]]
) -> Bands:
    """Return the bands of all layers.

    Args:
        grid: ordered elements.
        shapes: room of each node.
        x: places across the flow.
        channels: lines of each gap.
        label_room: for each gap, room for arrow labels before its tracks and after them.
    """
    start: list[float] = []
    end: list[float] = []
    track: list[float] = []
    at = 0.0
    for layer in range(grid.num_layers + 1):
        channel = channels[layer]
        before, after = label_room[layer]
        spread = (channel.num_tracks - 1) * TRACK_PITCH if channel.num_tracks else 0.0
        overhang, is_crossed = _overhang(grid, shapes, x, layer, channel) if layer else (0.0, False)
        first = at + FIRST_TRACK + before
        if is_crossed:
            first = max(first, at + overhang + OVERHANG_GAP)
        track.append(first)
        if layer == grid.num_layers:
            break
        if channel.num_tracks:
            gap = first - at + spread + LAST_TRACK + after
        else:
            gap = before + after + (2 * LABEL_MARGIN if before or after else 0.0)
        gap = max(gap, LAYER_GAP + spread, overhang + OVERHANG_GAP)
        if not layer:
            gap = gap if channel.num_tracks else 0.0
        elif channel.num_tracks and not is_crossed and not before and not after:
            track[-1] = at + FIRST_TRACK + (gap - FIRST_TRACK - spread - LAST_TRACK) / 2
        at += gap
        start.append(at)
        at += max((shapes[element].length for element in grid.rows[layer] if grid.is_node(element)), default=0.0)
        end.append(at)
    return Bands(start=start, end=end, track=track)


def _overhang(grid: Grid, shapes: list[NodeShape], x: list[float], layer: int, channel: Channel) -> tuple[float, bool]:
    """Return how far labels of the layer before the gap reach into it, and whether a jog runs through that room."""
    nodes = [element for element in grid.rows[layer - 1] if grid.is_node(element)]
    length = max((shapes[node].length for node in nodes), default=0.0)
    reach, is_crossed = 0.0, False
    for node in nodes:
        shape = shapes[node]
        overhang = shape.overhang - (length - shape.length) / 2
        if overhang > 0:
            reach = max(reach, overhang)
            low, high = x[node] - shape.before, x[node] - shape.body_before
            is_crossed = is_crossed or any(line.low < high and line.high > low for line in jogs(channel))
    return reach, is_crossed


def track_position(bands: Bands, layer: int, track: int) -> float:
    """Return where a track of the gap before ``layer`` lies along the flow."""
    return bands.track[layer] + track * TRACK_PITCH
