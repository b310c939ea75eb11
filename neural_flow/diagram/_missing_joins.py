"""Joins that most members have and the drawn one has not are copied into it; totals of what stays closed stand outside.

The first turn of a loop starts with constants, so what later turns join with the turn before is no join in it; yet it
is what the loop does. A running total (skips that are summed over all blocks) starts with the first member's alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

from neural_flow.diagram._member_joins import Numbering, Place
from neural_flow.diagram._sketch import Key, Sketch


def release_outer(
    sketch: Sketch, drawn: int, members: Numbering, places: Mapping[Key, Place], *, is_closed: bool
) -> None:
    """Take out of ``members`` the joins that no member reads and few have; of what is drawn closed, totals as well."""
    by_place = _by_place(members, places)
    free = _free(sketch, members, by_place)
    totals: set[Key] = set()
    rare: set[Key] = set()
    for keys in by_place.values():
        if free.issuperset(keys):
            is_total = any(source in keys for key in keys for source in sketch.into[key])
            if is_closed and is_total:
                totals.update(keys)
            elif _is_rare(keys, drawn, members):
                rare.update(keys)
    pending = list(totals)
    while pending:  # what reads a total stands outside with it
        behind = [target for target in sketch.out[pending.pop()] if target in free and target not in totals]
        totals.update(behind)
        pending += behind
    rare = _unread(sketch, rare, members, apart=totals)
    for key in totals | rare:
        del members.number_of[key]
        members.shown_by.pop(key, None)


def _free(sketch: Sketch, members: Numbering, by_place: Mapping[Place, Sequence[Key]]) -> set[Key]:
    """Return the joins that no member reads, nor any of the same place."""
    free = {key for keys in by_place.values() for key in keys}
    num_before = -1
    while len(free) != num_before:
        num_before = len(free)
        free = _unread(sketch, free, members)
        # the residual of the last member is read outside alone, yet it is one like the others
        free -= {key for keys in by_place.values() if not free.issuperset(keys) for key in keys}
    return free


def _unread(sketch: Sketch, keys: Set[Key], members: Numbering, apart: Set[Key] = frozenset()) -> set[Key]:
    """Return those of some joins that nothing in a member reads but others of them."""
    kept = set(keys)
    newest_first = sorted(keys, key=lambda key: sketch.items[key].time, reverse=True)
    num_before = -1
    while len(kept) != num_before:
        num_before = len(kept)
        for key in newest_first:
            if any(end in members.number_of and end not in kept and end not in apart for end in sketch.out[key]):
                kept.discard(key)
    return kept


def _is_rare(keys: Sequence[Key], drawn: int, members: Numbering) -> bool:
    """Return whether neither the drawn member nor most others have a join of one place."""
    numbers = {members.number_of[key] for key in keys}
    return drawn not in numbers and 2 * len(numbers) <= len(members.stages)


def adopt_missing(sketch: Sketch, drawn: int, members: Numbering, places: Mapping[Key, Place]) -> None:
    """Copy into the drawn member the joins that most members have and it has not."""
    models: dict[Key, Key] = {}  # by copy
    for keys in _by_place(members, places).values():
        numbers = {members.number_of[key]: key for key in keys}
        if drawn in numbers or _is_rare(keys, drawn, members):
            continue
        model = numbers[min(numbers, key=lambda number: (number < drawn, number))]
        copy: Key = ("join", max(key[1] for key in sketch.items if key[0] == "join") + 1)
        sketch.add_item(replace(sketch.items[model], key=copy, join_ids=[]))
        models[copy] = model
        members.number_of[copy] = drawn
        members.shown_by.update(dict.fromkeys((*keys, copy), copy))
    for copy, model in models.items():
        _link_copy(sketch, copy, model, members)
    for copy in models:
        _set_time(sketch, copy)


def _by_place(members: Numbering, places: Mapping[Key, Place]) -> dict[Place, list[Key]]:
    found: dict[Place, list[Key]] = {}
    for key, place in places.items():
        if key in members.number_of:
            found.setdefault(place, []).append(key)
    return found


def _link_copy(sketch: Sketch, copy: Key, model: Key, members: Numbering) -> None:
    """Link a copy as its model is linked within its member and without, in place of the lines that pass it by."""
    own = members.number_of[model]

    def ends(keys: Iterable[Key]) -> dict[Key, Key]:
        shown = {key: members.shown_by.get(key) if key in members.number_of else key for key in keys}
        return {end: key for key, end in shown.items() if end and members.number_of.get(key, own) == own}

    sources, targets = ends(sketch.into[model]), ends(sketch.out[model])
    for end, key in sources.items():
        sketch.link(end, copy, replace(sketch.into[model][key], source=end, target=copy))
    for end, key in targets.items():
        sketch.link(copy, end, replace(sketch.out[model][key], source=copy, target=end))
    for source, first in sources.items():
        for target, second in targets.items():
            is_inside = source in members.number_of or target in members.number_of
            if is_inside and target in sketch.out[source] and second not in sketch.out[first]:
                sketch.unlink(source, target)


def _set_time(sketch: Sketch, copy: Key) -> None:
    """Place a copy after what it reads and before the joins that read it."""
    item = sketch.items[copy]
    newest = max((sketch.items[source].time for source in sketch.into[copy]), default=item.time)
    readers = [sketch.items[target].time for target in sketch.out[copy] if target[0] == "join"]
    time = (newest[0], max(newest[1], copy[1]))
    item.time = item.first_time = min([time, *(reader for reader in readers if reader > newest)])
