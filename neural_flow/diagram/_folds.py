"""Fold repeats: every member is drawn as one representative, and lines between members become what they mean.

A line from outside into any member ends at the card that shows it. A line from a member to the outside starts at the
card that shows its source, or at the value that members hand on. What the first member reads from outside enters where
later members read their predecessor; lines between members vanish.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from neural_flow.diagram._members import Members, find_members
from neural_flow.diagram._sketch import Key, Sketch
from neural_flow.records import Flow, Fold


def apply_folds(sketch: Sketch, folds: Sequence[Fold]) -> None:
    """Replace all members of every fold by its representative, outer folds first, and close what is one card."""
    live: list[tuple[Fold, list[Key]]] = []
    for fold in _outer_first(folds):
        members = find_members(sketch, fold)
        if members is not None:
            keys = _fold_once(sketch, fold, members)
            for key in keys:
                sketch.items[key].scope = fold.fold_id
            live.append((fold, keys))
    for fold, keys in reversed(live):
        _close_or_open(sketch, fold, [key for key in keys if key in sketch.items])


def _outer_first(folds: Sequence[Fold]) -> list[Fold]:
    by_id = {fold.fold_id: fold for fold in folds}

    def depth(fold: Fold) -> int:
        count, seen = 0, {fold.fold_id}
        while fold.parent_id is not None and fold.parent_id in by_id and fold.parent_id not in seen:
            fold = by_id[fold.parent_id]
            seen.add(fold.fold_id)
            count += 1
        return count

    return sorted(folds, key=depth)


@dataclass(slots=True)
class _Lines:
    """The lines of all members by what they become; ends are items of the representative, None for what it lacks.

    ``to_odd`` are the lines to cards that it lacks, by the card that stands for them.
    """

    entering: list[tuple[Key, Key | None, Flow, int]] = field(default_factory=list[tuple[Key, Key | None, Flow, int]])
    to_odd: list[tuple[Key, Key, Flow]] = field(default_factory=list[tuple[Key, Key, Flow]])
    leaving: list[tuple[Key | None, Key, Flow]] = field(default_factory=list[tuple[Key | None, Key, Flow]])
    handed_on: dict[tuple[Key, Key], Flow] = field(default_factory=dict[tuple[Key, Key], Flow])
    """(exit, entry) by what members read of earlier ones."""

    latest: dict[Key, dict[Key, int]] = field(default_factory=dict[Key, dict[Key, int]])
    """By entry and exit, the last member that reads so."""

    from_odd: dict[Key, Flow] = field(default_factory=dict[Key, Flow])
    """Entries that read what the representative does not have."""

    turns: dict[tuple[Key, Key], None] = field(default_factory=dict[tuple[Key, Key], None])
    """(exit, entry) by what members read of the one before them."""


def _fold_once(sketch: Sketch, fold: Fold, members: Members) -> list[Key]:
    """Rewire the lines of all members to the representative; return its items."""
    drawn = members.representative
    kept = members.keys[drawn]
    lines = _sort_lines(sketch, members)
    exit_key = _exit(sketch, lines.handed_on, kept)
    for entry, flow in lines.from_odd.items():
        lines.handed_on.setdefault((exit_key, entry), flow)
        lines.latest.setdefault(entry, {}).setdefault(exit_key, 0)
    several = [target for _, target, _ in lines.leaving if target[0] == "join" and len(sketch.into[target]) > 1]
    several += [key for key in kept if key[0] == "join" and key in lines.latest]
    readers = _readers(lines.latest)
    _drop_members(sketch, members)
    _add_entering(sketch, members, lines, {} if fold.kind == "loop" else readers, kept)
    for shown, target, flow in lines.leaving:
        source = shown or exit_key
        sketch.link(source, target, replace(flow, source=source))
    for key in several:
        sketch.items[key].was_many = True
    for key in readers:
        sketch.items[key].is_handed_on = True
    if fold.kind == "loop":
        sketch.returns |= {(key, entry): None for key, entry in lines.turns if entry in readers.get(key, ())}
    return kept


def _sort_lines(sketch: Sketch, members: Members) -> _Lines:
    lines = _Lines()
    for number, keys in enumerate(members.keys):
        for key in keys:
            for source, flow in sketch.into[key].items():
                other = members.number_of.get(source)
                if other is None:
                    if number != members.representative:
                        lines.entering.append((source, members.shown_by.get(key), flow, number))
                        if key in members.holders:
                            lines.to_odd.append((source, members.holders[key], flow))
                elif other != number:
                    _add_handed_on(lines, members, source, key, flow)
            if number != members.representative:
                lines.leaving += [
                    (shown, target, flow)
                    for target, flow in sketch.out[key].items()
                    if target not in members.number_of
                    for shown in _shown_ends(sketch, members, key)
                ]
    return lines


def _add_handed_on(lines: _Lines, members: Members, source: Key, target: Key, flow: Flow) -> None:
    number = members.number_of[target]
    exit_key, entry = members.shown_by.get(source), members.shown_by.get(target)
    if entry is None:
        return
    if exit_key is None:
        lines.from_odd.setdefault(entry, flow)
        return
    lines.handed_on.setdefault((exit_key, entry), flow)
    lines.latest.setdefault(entry, {})[exit_key] = number
    if number == members.number_of[source] + 1:
        lines.turns[exit_key, entry] = None


def _shown_ends(sketch: Sketch, members: Members, key: Key) -> Sequence[Key | None]:
    """Return what shows the value of an item: a join that the representative lacks is shown by what it joins."""
    found: dict[Key | None, None] = {}
    pending, seen = [key], {key}
    while pending:
        at = pending.pop()
        if shown := members.shown_by.get(at) or members.holders.get(at):
            found[shown] = None
            continue
        sources = [source for source in sketch.into[at] if source in members.number_of and source not in seen]
        seen.update(sources)
        pending += sources
    return list(found) or [None]


def _drop_members(sketch: Sketch, members: Members) -> None:
    for number, keys in enumerate(members.keys):
        for key in keys:
            if number == members.representative:
                continue
            item, shown = sketch.items[key], members.shown_by.get(key)
            holder = shown or members.holders.get(key)
            if holder is not None:
                sketch.items[holder].stage_ids += item.stage_ids
                sketch.items[holder].join_ids += item.join_ids
            if shown is not None:
                sketch.items[shown].first_time = min(sketch.items[shown].first_time, item.first_time)
            sketch.remove(key)


def _exit(sketch: Sketch, handed_on: dict[tuple[Key, Key], Flow], kept: Sequence[Key]) -> Key:
    """Return the item whose value members hand on: the latest one that a later member reads, else the last card."""
    exits = [source for source, _ in handed_on]
    return max(exits or [key for key in kept if key[0] == "stage"], key=lambda key: sketch.items[key].time)


def _readers(latest: dict[Key, dict[Key, int]]) -> dict[Key, list[Key]]:
    """Return the items that read each exit in the next member, as the last members do.

    Early members may read otherwise: a sum over all results starts with the first one itself.
    """
    readers: dict[Key, list[Key]] = {}
    for entry, exits in latest.items():
        last = max(exits.values())
        for exit_key, number in exits.items():
            if number == last:
                readers.setdefault(exit_key, []).append(entry)
    return readers


def _add_entering(
    sketch: Sketch, members: Members, lines: _Lines, readers: dict[Key, list[Key]], kept: Sequence[Key]
) -> None:
    """Lead what members read from outside to the representative."""
    # what later members read as well is no state: a memory, a table of positions
    lasting: set[tuple[Key, Key | None]] = {(source, target) for source, target, _, number in lines.entering if number}
    if members.representative:
        lasting |= {(source, key) for key in kept for source in sketch.into[key]}
    shown: dict[int, set[Key]] = {}
    for key, number in members.number_of.items():
        shown.setdefault(number, set()).add(members.shown_by.get(key, key))
    joins = [key for key in kept if key[0] == "join"]
    for source, target, flow, number in sorted(lines.entering, key=lambda line: not line[1] or line[1][0] != "join"):
        # an early member may lack a join that the box shows on this way
        ways = [key for key in joins if key not in shown[number] and key in sketch.out[source]]
        if target is not None and not any(target in sketch.out[key] for key in ways):
            sketch.link(source, target, replace(flow, target=target))
    first = [
        (source, target, flow)
        for source, target, flow, number in lines.entering
        if number == 0 and (source, target) not in lasting
    ]
    for entries in readers.values():
        # a read of the first member that has no place of its own feeds what members hand on
        _feed(sketch, entries, [line for line in first if line[1] in entries or (not line[1] and len(readers) == 1)])
    for source, target, flow in lines.to_odd:
        if not any(key in sketch.out[source] for key in kept):
            sketch.link(source, target, replace(flow, target=target))


def _feed(sketch: Sketch, entries: Sequence[Key], first: Sequence[tuple[Key, Key | None, Flow]]) -> None:
    """Lead what the first member was given to where later members read the one before them."""
    for entry in entries:
        if not any(source in sketch.into[entry] for source, _, _ in first):
            for source, _, flow in first:
                sketch.link(source, entry, Flow(source=source, target=entry, tensors=flow.tensors))


def _close_or_open(sketch: Sketch, fold: Fold, keys: list[Key]) -> None:
    """Make one stacked card of a fold that shows a single card, is dense or an interval; else remember its frame."""
    cards = [key for key in keys if key[0] == "stage"]
    if not cards:
        return
    if len(cards) > 1 and not fold.is_dense and fold.kind != "interval":
        sketch.opened.append((fold, keys))
        return
    inside = frozenset(keys)
    has_residual = len(cards) == 1 and any(
        key[0] == "join"
        and sketch.items[key].symbol == "add"
        and 0 < sum(source in inside for source in sketch.into[key]) < len(sketch.into[key])
        for key in keys
    )
    into = max(cards, key=lambda key: sketch.items[key].time)
    sketch.contract(keys, into)
    item = sketch.items[into]
    item.has_residual = item.has_residual or has_residual
    item.label = fold.label or item.label
    item.count = fold.count if fold.kind != "interval" else 1
    item.fold_kind = fold.kind
    item.is_dense = fold.is_dense
