"""Which member of a fold a join repeats with, and which join of the representative shows it.

A join belongs where its code ran. Glue of the code around the members is placed by comparing members: a *tail* comes
after the member of its newest source (``x = x + layer(x)``), a *head* before the member that reads it
(``layer(cat(x, skip))``). What joins between two members must belong to one of them; what joins before the first or
after the last only if other members have the like.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from neural_flow.diagram._sketch import Key, Sketch
from neural_flow.records import Fold

INSIDE = "(inside)"

Signature = tuple[str, str, str, frozenset[Key]]
"""(tail or head; symbol; path; the stages of its member at this side, as the representative shows them)"""

Place = tuple[Signature, int]
"""Which of the joins of one signature in its member a join is."""


@dataclass(frozen=True, slots=True)
class Numbering:
    """Members by number. ``homes`` are their module paths; joins are added to ``number_of`` and ``shown_by``."""

    stages: Sequence[Sequence[Key]]
    number_of: dict[Key, int]
    shown_by: dict[Key, Key]
    homes: Mapping[str, int]


@dataclass(slots=True)
class _Side:
    """One way to place joins: the member of each, and the stages of that member at this side."""

    name: str
    number: dict[Key, int] = field(default_factory=dict[Key, int])
    stages: dict[Key, frozenset[Key]] = field(default_factory=dict[Key, frozenset[Key]])
    signatures: dict[Key, Signature] = field(default_factory=dict[Key, Signature])
    counts: Counter[Signature] = field(default_factory=Counter[Signature])

    def add(self, key: Key, number: int, stages: frozenset[Key], symbol: str, path: str) -> None:
        self.number[key] = number
        self.stages[key] = stages
        self.signatures[key] = (self.name, symbol, path, stages)

    def count(self) -> None:
        """Count in how many members each signature occurs."""
        self.counts = Counter(signature for _, signature in {(self.number[k], s) for k, s in self.signatures.items()})

    def commonness(self, key: Key) -> int:
        return self.counts[self.signatures[key]] if key in self.signatures else 0


def place_joins(sketch: Sketch, fold: Fold, members: Numbering) -> dict[Key, Place]:
    """Add the joins that repeat with the members to ``members``; return the place of each."""
    joins = [key for key in sketch.keys_by_time("join") if sketch.into[key]]
    homes = {key: home for key in joins if (home := _home(sketch.items[key].path, members.homes)) is not None}
    tail, head = _tails(sketch, joins, members, homes), _heads(sketch, joins, members, homes)
    chosen = _choose(sketch, fold, joins, homes, tail, head, members)
    members.number_of.update((key, side.number[key]) for key, side in chosen.items())
    places = _number_places(sketch, chosen, members)
    by_place = {place: key for key, place in places.items() if members.number_of[key] == fold.representative}
    members.shown_by.update((key, by_place[place]) for key, place in places.items() if place in by_place)
    _match_odd(sketch, members, places, by_place)
    return places


def _match_odd(sketch: Sketch, members: Numbering, places: dict[Key, Place], drawn: Mapping[Place, Key]) -> None:
    """Match the joins of odd cards: with the drawn ones of their kind that their member would lack, in order."""
    seen = {(members.number_of[key], members.shown_by[key]) for key in places if key in members.shown_by}
    for key, (signature, _) in list(places.items()):
        is_odd = any(
            end[0] == "stage" and end in members.number_of and end not in members.shown_by for end in sketch.into[key]
        )
        if key in members.shown_by or not is_odd:
            continue
        for (other, number), shown in drawn.items():
            if other[:3] == signature[:3] and (members.number_of[key], shown) not in seen:
                seen.add((members.number_of[key], shown))
                members.shown_by[key] = shown
                places[key] = (other, number)
                break


def _number_places(sketch: Sketch, chosen: Mapping[Key, _Side], members: Numbering) -> dict[Key, Place]:
    """Tell joins of one signature in one member apart: what reads its like in an earlier member has the same place."""
    places: dict[Key, Place] = {}
    known: dict[Signature, dict[Key, int]] = {}
    alike: dict[tuple[int, Signature], list[Key]] = {}
    for key, side in chosen.items():
        alike.setdefault((side.number[key], side.signatures[key]), []).append(key)
    size = 2 * max(map(len, alike.values()), default=0)
    for (_, signature), keys in sorted(alike.items(), key=lambda pair: pair[0][0]):
        free = list(range(size))
        before = known.setdefault(signature, {})
        for key in sorted(keys, key=lambda key: before.keys().isdisjoint(sketch.into[key])):
            inherited = [before[end] for end in sketch.into[key] if before.get(end) in free]
            unlike: set[int] = set()
            if len(members.stages) == 2:  # of more members, others tell
                unlike = {number for end, number in before.items() if _is_unlike(sketch, key, end, members)}
            places[key] = (signature, next(number for number in (*inherited, *free) if number not in unlike))
            free.remove(places[key][1])
            before[key] = places[key][1]
    return places


def _is_unlike(sketch: Sketch, key: Key, like: Key, members: Numbering) -> bool:
    """Return whether a join of the second of two members reads the first, but not the join that the first hands on."""
    number = members.number_of[key]
    if members.number_of[like] >= number or like in sketch.into[key]:
        return False
    is_handed_on = any(members.number_of.get(end) == number for end in sketch.out[like])
    return is_handed_on and any(members.number_of.get(end, number) < number for end in sketch.into[key])


def _home(path: str, homes: Mapping[str, int]) -> int | None:
    while path:
        if path in homes:
            return homes[path]
        path = path.rpartition(".")[0]
    return None


def _tails(sketch: Sketch, joins: Sequence[Key], members: Numbering, homes: Mapping[Key, int]) -> _Side:
    """Place each join after the member of its newest source."""
    side = _Side("tail")
    newest: dict[Key, int | None] = {}
    for key in joins:
        source = max(sketch.into[key], key=lambda source: sketch.items[source].time)
        # a loop that was folded before may read a join of its later turn
        newest[key] = newest.get(source) if source[0] == "join" else members.number_of.get(source)
        number = homes.get(key, newest[key])
        if number is not None:
            _add(side, sketch, key, number, sketch.into[key], members, homes)
    side.count()
    return side


def _heads(sketch: Sketch, joins: Sequence[Key], members: Numbering, homes: Mapping[Key, int]) -> _Side:
    """Place each join before the member of its earliest reader."""
    side = _Side("head")
    earliest: dict[Key, Key] = {}  # by join, the stage that reads it first, directly or through joins
    for key in reversed(joins):
        readers = [earliest.get(reader) if reader[0] == "join" else reader for reader in sketch.out[key]]
        stages = [reader for reader in readers if reader is not None]
        if not stages:
            continue
        earliest[key] = min(stages, key=lambda stage: sketch.items[stage].time)
        number = members.number_of.get(earliest[key])
        if number is not None and key not in homes:
            _add(side, sketch, key, number, sketch.out[key], members, homes)
    side.count()
    return side


def _add(
    side: _Side,
    sketch: Sketch,
    key: Key,
    number: int,
    ends: Mapping[Key, object],
    members: Numbering,
    homes: Mapping[Key, int],
) -> None:
    own: set[Key] = set()
    for end in ends:
        if end[0] == "join":
            own |= side.stages[end] if side.number.get(end) == number and end in side.stages else frozenset()
        elif members.number_of.get(end) == number and end in members.shown_by:
            own.add(members.shown_by[end])
    item = sketch.items[key]
    # code inside members differs in its path by the member's own; glue around them must be of one place
    side.add(key, number, frozenset(own), item.symbol, INSIDE if key in homes else item.path)


def _after_members(sketch: Sketch, joins: Sequence[Key], members: Numbering) -> set[Key]:
    """Return the joins that some member feeds, directly or through joins."""
    after: set[Key] = set()
    for key in joins:
        if any(source in members.number_of or source in after for source in sketch.into[key]):
            after.add(key)
    return after


def _choose(
    sketch: Sketch,
    fold: Fold,
    joins: Sequence[Key],
    homes: Mapping[Key, int],
    tail: _Side,
    head: _Side,
    members: Numbering,
) -> dict[Key, _Side]:
    """Return the side by which each join that repeats is placed, in call order."""
    after = _after_members(sketch, joins, members)
    chosen = dict.fromkeys(homes, tail)
    taken: dict[Signature, set[str]] = {}
    ends = _turn_ends(sketch, joins, tail, head, members) if fold.kind == "loop" else frozenset[Signature]()
    for key in joins:
        if key not in homes and key in after and key in head.number and key in tail.number:
            surplus = tail.commonness(key) - head.commonness(key)
            is_state = fold.kind == "loop" and _is_state(sketch, key, head, members)
            is_end = tail.signatures[key] in ends if fold.kind == "loop" else _is_residual(sketch, key, tail, members)
            # what reads the head of a member cannot end the one before
            is_begun = any(chosen.get(end) is head and head.number[end] > tail.number[key] for end in sketch.into[key])
            side = tail if not is_begun and (is_state or surplus > 0 or (not surplus and is_end)) else head
            chosen[key] = side
            for signature in (tail.signatures[key], head.signatures[key]):
                taken.setdefault(signature, set()).add(side.name)
    needed = max(2, (len(fold.members) + 1) // 2)
    for key in joins:
        side = tail if key in after else head
        if key in chosen or key not in side.number or (side is tail and fold.kind == "parallel"):
            continue
        is_common = side.commonness(key) >= needed or (fold.kind == "interval" and side is tail)
        if is_common and side.name in taken.get(side.signatures[key], {side.name}):
            chosen[key] = side
    return {key: chosen[key] for key in joins if key in chosen}


def _turn_ends(
    sketch: Sketch, joins: Sequence[Key], tail: _Side, head: _Side, members: Numbering
) -> frozenset[Signature]:
    """Return what ends a turn though it might begin the next: residuals, and what reads earlier turns alone.

    The first turn reads from outside what the others read of the turn before, so it cannot tell.
    """
    return frozenset(
        tail.signatures[key]
        for key in joins
        if tail.number.get(key)
        and (
            _is_residual(sketch, key, tail, members, counts_outside=False)
            or (key in head.number and _is_state(sketch, key, head, members))
        )
    )


def _is_residual(sketch: Sketch, key: Key, tail: _Side, members: Numbering, *, counts_outside: bool = True) -> bool:
    """Return whether a join adds to a member's result something that this member reads as well."""

    def number_of(end: Key) -> int | None:
        return tail.number.get(end) if end[0] == "join" else members.number_of.get(end)

    number = tail.number[key]
    return any(
        number_of(target) == number
        for source in sketch.into[key]
        if number_of(source) != number and (counts_outside or number_of(source) is not None)
        for target in sketch.out[source]
        if target != key
    )


def _is_state(sketch: Sketch, key: Key, head: _Side, members: Numbering) -> bool:
    """Return whether a join before a turn reads earlier turns alone: they end with it, all that it reads is theirs."""
    numbers = [members.number_of.get(end, head.number.get(end)) for end in sketch.into[key]]
    return all(number is not None and number < head.number[key] for number in numbers)
