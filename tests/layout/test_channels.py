import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from neural_flow.layout.channels import OVERLAP_COST, Channel, Line, Zone, assign_tracks

PLACES = st.integers(0, 12).map(lambda step: 10.0 * step)


@st.composite
def channels(draw):
    """Draw a gap: lines from distinct places to distinct places."""
    num_lines = draw(st.integers(1, 5))
    starts = draw(st.lists(PLACES, min_size=num_lines, max_size=num_lines, unique=True))
    ends = draw(st.lists(PLACES, min_size=num_lines, max_size=12, unique=True))
    channel = Channel()
    for key, start in enumerate(starts):
        channel.lines[key] = Line(left=[start])
    for index, end in enumerate(ends):
        line = channel.lines[index % num_lines]
        line.right.append(end)
        line.right_frames.append(frozenset())
    return channel


def count_faults(channel):
    """Count crossings and overlaps of all pairs from the pieces that would be drawn."""
    crossings = overlaps = 0
    pieces = []
    for key, line in channel.lines.items():
        if line.track < 0:
            pieces.append((key, "level", line.left[0], -1.0, 99.0))
            continue
        pieces += [(key, "level", place, -1.0, line.track) for place in set(line.left)]
        pieces += [(key, "level", place, line.track, 99.0) for place in set(line.right)]
        pieces.append((key, "upright", line.track, line.low, line.high))
    for first, second in itertools.permutations(pieces, 2):
        if first[0] == second[0]:
            continue
        if first[1] == "level" and second[1] == "upright":
            crossings += second[3] < first[2] < second[4] and first[3] < second[2] < first[4]
        if first[1] == second[1] and first < second:
            is_same = abs(first[2] - second[2]) < 0.01
            overlaps += is_same and min(first[4], second[4]) - max(first[3], second[3]) > 0.01
    return crossings, overlaps


@settings(max_examples=200, deadline=None)
@given(channels())
def test_lines_overlap_only_where_the_channel_says_so(channel):
    assign_tracks([channel])
    _, overlaps = count_faults(channel)
    if not channel.num_overlaps:
        assert overlaps == 0


@settings(max_examples=100, deadline=None)
@given(channels())
def test_no_swap_of_two_neighbouring_tracks_saves_crossings(channel):
    assign_tracks([channel])
    if channel.num_overlaps:
        return
    crossings, _ = count_faults(channel)
    tracks = sorted({line.track for line in channel.lines.values() if line.track >= 0})
    for low, high in itertools.pairwise(tracks):
        for line in channel.lines.values():
            line.track = {low: high, high: low}.get(line.track, line.track)
        swapped, overlaps = count_faults(channel)
        assert swapped + OVERLAP_COST * overlaps >= crossings
        for line in channel.lines.values():
            line.track = {low: high, high: low}.get(line.track, line.track)


def test_a_straight_line_takes_no_track():
    channel = Channel(lines={0: Line(left=[5.0], right=[5.0], right_frames=[frozenset()])})
    assign_tracks([channel])
    assert channel.lines[0].track == -1
    assert channel.num_tracks == [0, 0, 0]


def test_nested_jogs_nest():
    """Two lines that swing to the same side take tracks in the order that keeps them apart."""
    lines = {
        0: Line(left=[0.0], right=[30.0], right_frames=[frozenset()]),
        1: Line(left=[10.0], right=[40.0], right_frames=[frozenset()]),
    }
    channel = Channel(lines=lines)
    assign_tracks([channel])
    assert lines[1].track < lines[0].track
    assert count_faults(channel) == (0, 0)


def test_a_line_parts_inside_a_frame_only_if_all_of_it_goes_there():
    frame, inner = frozenset({0}), frozenset({0, 1})
    line = Line(left=[0.0], right=[0.0, 30.0], right_frames=[inner, inner])
    line.choose_zone()
    assert line.zone == Zone.OPENING
    for frames in ([inner, frame], [frozenset(), frame], [frame, frozenset()], [frozenset(), frozenset()]):
        line = Line(left=[0.0], right=[0.0, 30.0], right_frames=frames)
        line.choose_zone()
        assert line.zone == Zone.BETWEEN
