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


def place_joins(sketch: Sketch, fold: Fold, members: Numbering) -> None:
    """Add the joins that repeat with the members to ``members``."""
    joins = [key for key in sketch.keys_by_time("join") if sketch.into[key]]
    homes = {key: home for key in joins if (home := _home(sketch.items[key].path, members.homes)) is not None}
    tail, head = _tails(sketch, joins, members, homes), _heads(sketch, joins, members, homes)
    chosen = _choose(sketch, fold, joins, homes, tail, head, members)
    drawn = fold.representative
    by_place: dict[tuple[Signature, int], Key] = {}
    seen: Counter[tuple[int, Signature]] = Counter()
    places: dict[Key, tuple[Signature, int]] = {}
    for key, side in chosen.items():
        number, signature = side.number[key], side.signatures[key]
        members.number_of[key] = number
        places[key] = (signature, seen[number, signature])
        seen[number, signature] += 1
        if number == drawn:
            by_place[places[key]] = key
    for key, place in places.items():
        if place in by_place:
            members.shown_by[key] = by_place[place]


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
    taken: dict[Signature, str] = {}
    for key in joins:
        if key not in homes and key in after and key in head.number and key in tail.number:
            surplus = tail.commonness(key) - head.commonness(key)
            side = tail if surplus > 0 or (not surplus and _is_residual(sketch, key, tail, members)) else head
            chosen[key] = side
            taken[tail.signatures[key]] = taken[head.signatures[key]] = side.name
    needed = max(2, (len(fold.members) + 1) // 2)
    for key in joins:
        side = tail if key in after else head
        if key in chosen or key not in side.number or (side is tail and fold.kind == "parallel"):
            continue
        is_common = side.commonness(key) >= needed or (fold.kind == "interval" and side is tail)
        if is_common and taken.get(side.signatures[key], side.name) == side.name:
            chosen[key] = side
    return {key: chosen[key] for key in joins if key in chosen}


def _is_residual(sketch: Sketch, key: Key, tail: _Side, members: Numbering) -> bool:
    """Return whether a join adds to a member's result something that this member reads as well."""

    def number_of(end: Key) -> int | None:
        return tail.number.get(end) if end[0] == "join" else members.number_of.get(end)

    number = tail.number[key]
    return any(
        number_of(target) == number
        for source in sketch.into[key]
        if number_of(source) != number
        for target in sketch.out[source]
        if target != key
    )
