"""Boxes round cards: containers that people would name, and repeats that are drawn in full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neural_flow.diagram._sketch import Key, Sketch
from neural_flow.drawing import Frame
from neural_flow.records import StageGroup


def find_frames(sketch: Sketch, places: Mapping[Key, int], groups: Sequence[StageGroup]) -> tuple[Frame, ...]:
    """Return the frames, outer before inner; any two are nested or apart."""
    drafts: list[tuple[frozenset[Key], Frame]] = []
    for fold, members in sketch.opened:
        keys = frozenset(key for key in members if key in sketch.items)
        if len(_cards(keys)) > 1:
            badge = f"×{fold.count}"
            drafts.append((keys, Frame(frame_id=0, kind="fold", title=fold.label, badge=badge)))
    for group in groups:
        cards = _cards_under(sketch, group.module)
        keys = cards | _rings_in(sketch, group.module, cards)
        # after folding, what was a container of many cards may be a single one
        if group.label and len(cards) > 1 and all(_is_apart(keys, other) for other, _ in drafts):
            drafts.append((keys, Frame(frame_id=0, kind="group", title=group.label)))
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


def _cards_under(sketch: Sketch, path: str) -> frozenset[Key]:
    """Return the cards of the modules in a container, and of the ops that its own code ran."""
    found: set[Key] = set()
    for key, item in sketch.items.items():
        if item.stage is None or item.stage.kind not in ("module", "op"):
            continue
        if item.path.startswith(path + ".") or (item.path == path and item.stage.kind == "op"):
            found.add(key)
    return frozenset(found)


def _rings_in(sketch: Sketch, prefix: str, cards: frozenset[Key]) -> frozenset[Key]:
    """Return the joins that the container's own code ran, and those of outer code that lead into it alone.

    Of the latter, one that nothing inside leads to counts only if it concatenates or does what the others do: it
    prepares what the container reads, as the first merge of a decoder does.
    """
    joins = {key: item for key, item in sketch.items.items() if key[0] == "join"}
    own = frozenset(key for key, item in joins.items() if (item.path + ".").startswith(prefix + "."))
    ahead = {key: item for key, item in joins.items() if sketch.out[key] and cards.issuperset(sketch.out[key])}
    passing = {key: item.symbol for key, item in ahead.items() if not cards.isdisjoint(sketch.into[key])}
    symbols = {"concat", *passing.values()}
    entering = frozenset(
        key
        for key, item in ahead.items()
        if item.symbol in symbols and (not item.path or prefix.startswith(item.path + "."))
    )
    return own | passing.keys() | entering
