"""Frames round nodes: which elements they hold, and how they nest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from neural_flow.drawing import Frame, Sizes
from neural_flow.layout._base import FRAME_PADDING, SHEETS
from neural_flow.layout.grid import Grid

TITLE_SPACE = 1.0
TITLE_INSET = 6.0


@dataclass(slots=True)
class FrameTree:
    """Frames with members, by place in ``frames``: parents come before their children.

    Frames that overlap another one without lying inside it are ``loose``: they only ever become brackets.
    """

    frames: list[Frame]
    members: list[frozenset[int]]
    parent: list[int]
    is_loose: list[bool]
    title_width: list[float]
    title_height: list[float]
    spans: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """First and last layer of each frame, once elements are marked."""

    def top_room(self, frame: int) -> float:
        """Return the room between the upper border and what the frame holds."""
        height = self.title_height[frame]
        return FRAME_PADDING + (height + TITLE_SPACE if height else 0.0)

    def sheets(self, frame: int) -> float:
        """Return how far the sheets behind a repeat reach beyond its box, up and to the right."""
        return SHEETS if self.frames[frame].kind == "fold" else 0.0

    def path(self, node: int) -> tuple[int, ...]:
        """Return the frames that hold ``node``, outermost first."""
        return tuple(
            frame for frame, members in enumerate(self.members) if node in members and not self.is_loose[frame]
        )


def build_tree(frames: Sequence[Frame], place: dict[int, int], sizes: Sizes) -> FrameTree:
    """Return the frames that hold at least one of the nodes in ``place`` (node id to index), nested by members."""
    found = [
        (frame, frozenset(place[node] for node in frame.node_ids if node in place))
        for frame in sorted(frames, key=lambda frame: frame.frame_id)
    ]
    # Members of children count for the parent, whether or not the diagram repeats them.
    members_of = {frame.frame_id: set(members) for frame, members in found}
    parents = {frame.frame_id: frame.parent_id for frame, _ in found}
    for frame, members in found:
        above, guard = frame.parent_id, 0
        while above is not None and above in members_of and guard < len(found):
            members_of[above] |= members
            above, guard = parents[above], guard + 1
    depth = {frame.frame_id: _depth(frame.frame_id, parents) for frame, _ in found}
    kept = [frame for frame, _ in found if members_of[frame.frame_id]]
    kept.sort(key=lambda frame: (-len(members_of[frame.frame_id]), depth[frame.frame_id], frame.frame_id))
    tree = FrameTree(
        frames=kept,
        members=[frozenset(members_of[frame.frame_id]) for frame in kept],
        parent=[-1] * len(kept),
        is_loose=[False] * len(kept),
        title_width=[sizes.frame_titles.get(frame.frame_id, (0.0, 0.0))[0] for frame in kept],
        title_height=[sizes.frame_titles.get(frame.frame_id, (0.0, 0.0))[1] for frame in kept],
    )
    for frame, members in enumerate(tree.members):
        for other in range(frame):
            if not tree.is_loose[other] and members & tree.members[other]:
                if members <= tree.members[other]:
                    tree.parent[frame] = other
                else:
                    tree.is_loose[frame] = True
    return tree


def _depth(frame: int, parents: dict[int, int | None]) -> int:
    depth = 0
    above = parents[frame]
    while above is not None and above in parents and depth <= len(parents):
        depth += 1
        above = parents[above]
    return depth


def mark_elements(grid: Grid, tree: FrameTree) -> None:
    """Fill ``grid.frames``: nodes by membership, lanes where their line comes from the frame or ends in it."""
    graph = grid.graph
    for node in range(graph.num_nodes):
        grid.frames[node] = tree.path(node)
    if not tree.frames:
        return
    tree.spans = [_layer_span(grid, members) for members in tree.members]
    for source, lanes in grid.buses.items():
        targets = [graph.target[edge] for edge in graph.outgoing[source]]
        for lane in lanes:
            layer = grid.layer[lane]
            ahead = [target for target in targets if grid.layer[target] > layer]
            grid.frames[lane] = _lane_path(tree, layer, source, ahead)
    for lanes, (source, target, _) in zip(grid.backs, graph.returns, strict=True):
        shared = tuple(frame for frame in grid.frames[source] if frame in grid.frames[target])
        for lane in lanes:
            grid.frames[lane] = shared


def _lane_path(tree: FrameTree, layer: int, source: int, ahead: Sequence[int]) -> tuple[int, ...]:
    """Return the frames of a lane, outermost first. Of two side by side it is in the one that it comes from."""
    path: list[int] = []
    for frame, members in enumerate(tree.members):
        first, last = tree.spans[frame]
        if tree.is_loose[frame] or not first <= layer <= last:
            continue
        is_own = source in members
        if not is_own and not all(target in members for target in ahead):
            continue
        beside = next((place for place, other in enumerate(path) if tree.parent[other] == tree.parent[frame]), -1)
        if beside < 0 and tree.parent[frame] == (path[-1] if path else -1):
            path.append(frame)
        elif beside >= 0 and is_own:
            path[beside:] = [frame]
    return tuple(path)


def _layer_span(grid: Grid, members: Iterable[int]) -> tuple[int, int]:
    layers = [grid.layer[node] for node in members]
    return min(layers), max(layers)
