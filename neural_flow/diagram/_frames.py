"""Boxes round cards: containers that people would name, and repeats that are drawn in full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neural_flow.diagram._sketch import Key, Sketch
from neural_flow.drawing import Frame
from neural_flow.records import StageGroup

MAX_FRACTION = 0.75
"""A path that holds more of all cards than this is a wrapper, no part of the figure."""


def find_frames(sketch: Sketch, places: Mapping[Key, int], groups: Sequence[StageGroup]) -> tuple[Frame, ...]:
    """Return the frames, outer before inner; any two are nested or apart."""
    drafts: list[tuple[frozenset[Key], Frame]] = []
    for fold, members in sketch.opened:
        keys = frozenset(key for key in members if key in sketch.items)
        if len(_cards(keys)) > 1:
            badge = f"×{fold.count}"
            drafts.append((keys, Frame(frame_id=0, kind="fold", title=fold.label, badge=badge)))
    labels = {group.module: group.label for group in groups}
    for path, keys in _group_paths(sketch).items():
        if all(_is_apart(keys, other) for other, _ in drafts):
            drafts.append((keys, Frame(frame_id=0, kind="group", title=labels.get(path, path.rpartition(".")[2]))))
    drafts.sort(key=lambda draft: (-len(draft[0]), min(places[key] for key in draft[0]), draft[1].kind))
    return tuple(
        Frame(
            frame_id=index,
            kind=frame.kind,
            title=frame.title,
            badge=frame.badge,
            node_ids=tuple(sorted(places[key] for key in keys)),
            parent_id=_parent(drafts, index),
        )
        for index, (keys, frame) in enumerate(drafts)
    )


def _parent(drafts: Sequence[tuple[frozenset[Key], Frame]], index: int) -> int | None:
    """Return the smallest earlier frame that holds this one."""
    return next((other for other in range(index - 1, -1, -1) if drafts[index][0] <= drafts[other][0]), None)


def _is_apart(keys: frozenset[Key], other: frozenset[Key]) -> bool:
    """Return whether two frames are nested or apart, and do not frame the same cards."""
    is_same = _cards(keys) == _cards(other)
    return not is_same and (keys.isdisjoint(other) or keys < other or other < keys)


def _cards(keys: frozenset[Key]) -> frozenset[Key]:
    return frozenset(key for key in keys if key[0] == "stage")


def _group_paths(sketch: Sketch) -> dict[str, frozenset[Key]]:
    """Return the outermost module paths with at least two and not nearly all cards, with the rings in them."""
    cards = [
        (item.path.split("."), item.key)
        for item in sketch.items.values()
        if item.stage is not None and item.stage.kind in ("module", "op") and item.path
    ]
    found: dict[str, frozenset[Key]] = {}
    pending: list[tuple[int, list[tuple[list[str], Key]]]] = [(0, cards)]
    while pending:
        depth, inside = pending.pop()
        parts: dict[str, list[tuple[list[str], Key]]] = {}
        for path, key in inside:
            if len(path) > depth + 1:
                parts.setdefault(".".join(path[: depth + 1]), []).append((path, key))
        for prefix, members in parts.items():
            if len(members) < 2:
                continue
            if len(members) > MAX_FRACTION * len(cards):
                pending.append((depth + 1, members))
            else:
                found[prefix] = frozenset(key for _, key in members) | _rings_in(sketch, prefix, members)
    return found


def _rings_in(sketch: Sketch, prefix: str, members: Sequence[tuple[list[str], Key]]) -> frozenset[Key]:
    """Return the joins that the container's own code ran, and those of outer code that lead from it into it alone."""
    cards = {key for _, key in members}
    return frozenset(
        key
        for key, item in sketch.items.items()
        if key[0] == "join"
        and (
            (item.path + ".").startswith(prefix + ".")
            or (cards.issuperset(sketch.out[key]) and not cards.isdisjoint(sketch.into[key]))
        )
    )
