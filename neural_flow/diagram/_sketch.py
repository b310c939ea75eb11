"""The diagram while it is being made: items (cards and rings to be) and links, cheap to rewire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from neural_flow.records import Flow, Fold, FoldKind, Stage

Key = tuple[Literal["stage", "join"], int]
Time = tuple[int, int]
"""Place in call order: of the newest stage, then of the join after it."""


@dataclass(slots=True, eq=False)
class Item:
    """A card or ring to be. ``first_time`` is the earliest time among all that it stands for.

    ``scope`` is the innermost fold that it repeats with; ``was_many`` says that folding, and nothing else, left a join
    with a single source. ``is_handed_on`` says that the next member of a fold reads it.
    """

    key: Key
    time: Time
    first_time: Time
    path: str = ""
    symbol: str = ""
    stage: Stage | None = None
    stage_ids: list[int] = field(default_factory=list[int])
    join_ids: list[int] = field(default_factory=list[int])
    scope: int | None = None
    label: str = ""
    count: int = 1
    fold_kind: FoldKind | None = None
    is_dense: bool = False
    has_residual: bool = False
    was_many: bool = False
    is_handed_on: bool = False


@dataclass(slots=True, eq=False)
class Sketch:
    """Items and links between them. Links are at most one a pair; none leads from an item to itself."""

    items: dict[Key, Item] = field(default_factory=dict[Key, Item])
    out: dict[Key, dict[Key, Flow]] = field(default_factory=dict[Key, dict[Key, Flow]])
    into: dict[Key, dict[Key, Flow]] = field(default_factory=dict[Key, dict[Key, Flow]])
    returns: dict[tuple[Key, Key], None] = field(default_factory=dict[tuple[Key, Key], None])
    """Return arrows of loops, by (exit, entry)."""
    opened: list[tuple[Fold, list[Key]]] = field(default_factory=list[tuple[Fold, list[Key]]])
    """Folds whose representative is drawn in full, with its items."""

    num_under: Counter[str] = field(default_factory=Counter[str])
    """How many cards lie under each module path."""

    def add_item(self, item: Item) -> None:
        """Add an item without links."""
        self.items[item.key] = item
        self._count(item, 1)
        self.out[item.key] = {}
        self.into[item.key] = {}

    def link(self, source: Key, target: Key, flow: Flow) -> None:
        """Add a link, or merge it into the one that is there."""
        if source == target:
            return
        known = self.out[source].get(target)
        if known is not None:
            flow = _merged(known, flow)
        self.out[source][target] = self.into[target][source] = flow

    def unlink(self, source: Key, target: Key) -> None:
        """Remove a link."""
        del self.out[source][target], self.into[target][source]

    def remove(self, key: Key) -> None:
        """Remove an item with its links."""
        for target in self.out.pop(key):
            del self.into[target][key]
        for source in self.into.pop(key):
            del self.out[source][key]
        self._count(self.items.pop(key), -1)

    def _count(self, item: Item, change: int) -> None:
        path = item.path if item.key[0] == "stage" else ""
        while path:
            self.num_under[path] += change
            path = path.rpartition(".")[0]

    def contract(self, keys: Iterable[Key], into: Key) -> None:
        """Let ``into`` stand for all of ``keys``: their outside links become its own."""
        for key in keys:
            if key == into:
                continue
            for source, flow in list(self.into[key].items()):
                self.link(source, into, flow)
            for target, flow in list(self.out[key].items()):
                self.link(into, target, flow)
            kept, gone = self.items[into], self.items[key]
            kept.stage_ids += gone.stage_ids
            kept.join_ids += gone.join_ids
            kept.first_time = min(kept.first_time, gone.first_time)
            self.remove(key)
            self.returns = {
                (into if source == key else source, into if target == key else target): None
                for source, target in self.returns
            }
            for _, members in self.opened:
                if key in members:
                    members.remove(key)
                    if into not in members:
                        members.append(into)

    def splice(self, key: Key) -> None:
        """Remove an item and lead what flows into it on to its readers, in this turn or the next."""
        for source, target in list(self.returns):
            if key in (source, target):
                del self.returns[source, target]
                ends = self.into[key] if key == source else (source,)
                self.returns |= {
                    (start, end): None for start in ends for end in (self.out[key] if key == target else (target,))
                }
        for source, first in list(self.into[key].items()):
            for target, second in list(self.out[key].items()):
                self.link(source, target, chained(first, second))
        self.remove(key)

    def keys_by_time(self, kind: Literal["stage", "join"]) -> list[Key]:
        """Return the keys of one kind in call order."""
        return sorted((key for key in self.items if key[0] == kind), key=lambda key: self.items[key].time)


def chained(first: Flow, second: Flow) -> Flow:
    """Return two lines that follow each other as one."""
    return replace(
        first,
        target=second.target,
        inferred=first.inferred or second.inferred,
        opaque=first.opaque or second.opaque,
        plumbing=first.plumbing or second.plumbing,
        is_removed=first.is_removed or second.is_removed,
        arrived=second.arrived,
        through=(*first.through, *second.through),
        marks=(*first.marks, *(mark for mark in second.marks if mark not in first.marks)),
    )


def _merged(known: Flow, other: Flow) -> Flow:
    if known == other:
        return known
    best, rest = (other, known) if known.plumbing and not other.plumbing else (known, other)
    if best.opaque == (best.opaque or rest.opaque) and best.inferred == (best.inferred and rest.inferred):
        return best
    return replace(best, opaque=best.opaque or rest.opaque, inferred=best.inferred and rest.inferred)
