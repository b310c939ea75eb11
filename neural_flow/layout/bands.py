"""Places along the flow: a band for each layer, and gaps wide enough for the tracks, labels and borders in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from neural_flow.layout._base import FRAME_PADDING, LAYER_GAP, SHEETS, TRACK_PITCH, NodeShape
from neural_flow.layout.channels import Channel, Zone
from neural_flow.layout.grid import Grid

FIRST_TRACK = 11.0
LAST_TRACK = 15.0
BORDER_TRACK = 6.0
OVERHANG_GAP = 4.0
LABEL_MARGIN = 5.0
MIN_OUTSIDE = 14.0
"""Least stretch of an arrow outside frames."""
CURVE_SPREAD = 150.0
MAX_CURVE_PITCHES = 6.0


@dataclass(slots=True)
class Bands:
    """Where layers start and end along the flow, and what lies in the gap before each layer."""

    start: list[float] = field(default_factory=list[float])
    end: list[float] = field(default_factory=list[float])
    tracks: list[list[float]] = field(default_factory=list[list[float]])
    """First track of each zone of each gap."""
    closed: list[float] = field(default_factory=list[float])
    """Where the last frame of the layer before has closed, and where its labels end."""
    opening: list[float] = field(default_factory=list[float])
    """Where the first frame of the next layer opens, or that layer's start."""
    frame_start: dict[int, float] = field(default_factory=dict[int, float])
    frame_end: dict[int, float] = field(default_factory=dict[int, float])


@dataclass(slots=True)
class GapNeeds:
    """What gaps must hold besides tracks."""

    label_room: list[tuple[float, float]]
    """Room for arrow labels before and after the tracks, by gap."""
    opening_room: Sequence[float]
    """Room along the flow between the border of each frame and what it holds."""
    min_frame_length: Sequence[float]
    is_curved: bool
    layer_gap: float = LAYER_GAP


def assign_bands(
    grid: Grid, shapes: list[NodeShape], x: list[float], channels: list[Channel], needs: GapNeeds
) -> Bands:
    """Return the bands of all layers."""
    bands = Bands()
    at = 0.0
    for layer in range(grid.num_layers + 1):
        at = _lay_gap(grid, shapes, x, channels[layer], needs, bands, layer, at)
        if layer < grid.num_layers:
            bands.start.append(at)
            at += max((shapes[element].length for element in grid.rows[layer] if grid.is_node(element)), default=0.0)
            bands.end.append(at)
    return bands


def _lay_gap(
    grid: Grid,
    shapes: list[NodeShape],
    x: list[float],
    channel: Channel,
    needs: GapNeeds,
    bands: Bands,
    layer: int,
    start: float,
) -> float:
    """Lay the parts of one gap one after the other and return where it ends."""
    overhang, is_crossed = _overhang(grid, shapes, x, layer, channel) if layer else (0.0, False)
    at = start + (overhang + OVERHANG_GAP if is_crossed or (overhang and channel.closing) else 0.0)
    tracks = [at + FIRST_TRACK] * 3
    if channel.num_tracks[Zone.CLOSING]:
        at = tracks[Zone.CLOSING] + _spread(channel, Zone.CLOSING)
    for frame in channel.closing:
        at += FRAME_PADDING
        at = max(at, bands.frame_start[frame] + needs.min_frame_length[frame])
        bands.frame_end[frame] = at
    bands.closed.append(max(at, start + overhang))
    is_inner = 0 < layer < grid.num_layers
    between, first = _between(channel, needs, layer, is_inner=is_inner)
    after = _after_opening(channel, needs)
    # Borders that open here lie behind the labels that reach into the gap, or they would enclose them.
    reach = overhang + OVERHANG_GAP + (after if channel.opening and overhang else 0.0)
    least = max(0.0 if any(channel.num_tracks) else needs.layer_gap, reach)
    spare = max(0.0, start + least - (at + between + after)) if is_inner else 0.0
    before, behind = needs.label_room[layer]
    tracks[Zone.BETWEEN] = at + first + (spare / 2 if not is_crossed and not before and not behind else 0.0)
    at += between + spare
    bands.opening.append(at)
    for frame in channel.opening:
        bands.frame_start[frame] = at
        at += needs.opening_room[frame]
    if channel.num_tracks[Zone.OPENING]:
        tracks[Zone.OPENING] = at
        at += _spread(channel, Zone.OPENING) + LAST_TRACK
    bands.tracks.append(tracks)
    return at


def _spread(channel: Channel, zone: Zone) -> float:
    return max(0, channel.num_tracks[zone] - 1) * TRACK_PITCH


def _between(channel: Channel, needs: GapNeeds, layer: int, *, is_inner: bool) -> tuple[float, float]:
    """Return the length of the middle part of a gap, and where its first track lies in it."""
    before, after = needs.label_room[layer]
    if before and channel.closing:
        before += SHEETS
    if needs.is_curved:
        span = max((line.high - line.low for line in channel.lines.values()), default=0.0)
        return LAYER_GAP + TRACK_PITCH * min(MAX_CURVE_PITCHES, span / CURVE_SPREAD), 0.0
    first = (BORDER_TRACK if channel.closing else FIRST_TRACK) + before
    if channel.num_tracks[Zone.BETWEEN]:
        last = BORDER_TRACK if channel.opening else LAST_TRACK
        return first + _spread(channel, Zone.BETWEEN) + last + after, first
    length = before + after + (2 * LABEL_MARGIN if before or after else 0.0)
    if (channel.closing or channel.opening) and is_inner:
        length = max(length, MIN_OUTSIDE)
    return length, first


def _after_opening(channel: Channel, needs: GapNeeds) -> float:
    """Return the length of the last part of a gap: borders that open, and the tracks behind them."""
    length = sum(needs.opening_room[frame] for frame in channel.opening)
    if channel.num_tracks[Zone.OPENING]:
        length += _spread(channel, Zone.OPENING) + LAST_TRACK
    return length


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
            is_crossed = is_crossed or any(line.low < high and line.high > low for line in channel.jogs())
    return reach, is_crossed
