"""Auto detail: open what people do not know as one thing, until the budget is used."""

from __future__ import annotations

from dataclasses import dataclass

from neural_flow.stages._elements import FoldItem
from neural_flow.stages._figure import Card, Figure
from neural_flow.stages._tree import Tree

LEVEL_GAIN = 1.5
LEVEL_COUNT = 8
FAIR_COUNT = 12
FEW_CARDS = 5
ENOUGH_CARDS = 12
MOST_OPEN_BOXES = 2
MANY_BOXES_BUDGET = 20
LEAST_FOLD_SHARE = 0.1
DEFAULT_BUDGET = 24


@dataclass(slots=True, frozen=True)
class _Group:
    name: str
    cards: tuple[Card, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(card.item.call_id for card in self.cards)

    @property
    def mass(self) -> int:
        return sum(card.mass for card in self.cards)


class AutoDetail:
    """Choose which calls to open.

    Args:
        tree: the calls.
        budget: the most cards.
        closed: calls that are never opened.
        opened: calls that are opened whatever it costs; the root is among them.
        may_cut: whether more children than the budget may be cut into intervals.
    """

    def __init__(
        self, tree: Tree, budget: int, *, closed: frozenset[int], opened: frozenset[int], may_cut: bool = True
    ) -> None:
        self._tree = tree
        self._net = tree.net
        self._budget = budget
        self._closed = closed
        self._may_cut = may_cut
        self._refused: set[tuple[int, ...]] = set()
        self._kept: set[int] = set()
        self._heaviest_level = 0
        self.log: list[str] = []
        self.figure = Figure(tree, opened)

    def run(self) -> Figure:
        """Return the chosen figure."""
        if self.figure.count > self._budget and len(self.figure.opened) == 1 and self._may_cut:
            self.log.append(f"cut {self.figure.count} children of the root into intervals: over the budget")
            self.figure = Figure(self._tree, self.figure.opened, {0: self._budget})
            return self.figure
        self._open_groups(containers_only=False)
        self._open_folds()
        self._open_groups(containers_only=True)
        self._open_poor()
        return self.figure

    # -- containers and parts --

    def _open_groups(self, *, containers_only: bool) -> None:
        while True:
            groups = [group for group in self._groups(containers_only) if group.ids not in self._refused]
            if not groups:
                return
            group = min(groups, key=lambda g: (-g.mass, g.ids))
            after = self.figure.with_opened(self._opening(group))
            reason = self._reason_to_keep(group, after)
            if not reason:
                self.log.append(f"open {group.name}: {self.figure.count} cards become {after.count}")
                self.figure = after
                continue
            self._refused.add(group.ids)
            self.log.append(f"keep {group.name}: {reason}")
            if reason.startswith("over the budget"):
                self._open_as_intervals(group)

    def _groups(self, containers_only: bool) -> list[_Group]:
        cards = [card for card in self.figure.cards if self._may_open(card, containers_only)]
        by_trait: dict[tuple[object, ...], list[Card]] = {}
        for card in cards:
            for trait in self._traits(card):
                by_trait.setdefault(trait, []).append(card)
        unique: dict[tuple[int, ...], _Group] = {}
        for members in by_trait.values():
            first = self._net.calls[members[0].item.call_id]
            name = f"{len(members)}× {first.path}" if len(members) > 1 else first.path
            group = _Group(name, tuple(members))
            unique.setdefault(group.ids, group)
        return list(unique.values())

    def _may_open(self, card: Card, containers_only: bool) -> bool:
        call_id = card.item.call_id
        if not card.item.is_call or call_id in self._closed or call_id in self._kept:
            return False
        if card.scope_id in self.figure.intervals:
            return False
        kind = self._tree.kind(call_id)
        return kind == "container" or (kind == "part" and not containers_only)

    def _traits(self, card: Card) -> list[tuple[object, ...]]:
        """Return what makes a card one of a kind: its key, its list, its place among plain sequentials."""
        item = card.item
        traits: list[tuple[object, ...]] = [("key", item.key)]
        prefix = item.path
        while prefix.rpartition(".")[2].isdigit():
            prefix = prefix.rpartition(".")[0]
        # the prefix of a list was never called: else its children would stand under that call
        if prefix != item.path and prefix != self._net.calls[card.scope_id].path:
            traits.append(("list", card.scope_id, prefix))
        if self._net.is_sequential(item.call_id):
            keys = frozenset(self._net.key[c] for c in self._net.visible_children(item.call_id))
            traits.append(("sequential", card.scope_id, keys))
        return traits

    def _opening(self, group: _Group, *, with_blocks: bool = False) -> frozenset[int]:
        """Return the calls to open: the group's, and wrappers that show up inside."""
        return frozenset(inner for call_id in group.ids for inner in self._unwrapped(call_id, with_blocks))

    def _unwrapped(self, call_id: int, with_blocks: bool) -> list[int]:
        """Return a call and, as long as only one larger call is inside, that one too."""
        kinds = ("container", "part", "block") if with_blocks else ("container", "part")
        found = [call_id]
        while True:
            elements = self._tree.elements(found[-1])
            only = elements[0] if len(elements) == 1 else None
            if only is None or isinstance(only, FoldItem) or not only.is_call or only.call_id in self._closed:
                return found
            if self._tree.kind(only.call_id) not in kinds:
                return found
            found.append(only.call_id)

    def _reason_to_keep(self, group: _Group, after: Figure) -> str:
        """Return why a group stays closed, the first reason that holds; empty to open it."""
        before, size = self.figure.count, len(group.cards)
        if after.count > self._budget:
            return f"over the budget, {after.count} cards"
        if size >= 3 and before >= LEVEL_COUNT and (after.count - before + size) / size > LEVEL_GAIN:
            self._kept.update(group.ids)
            self._heaviest_level = max(self._heaviest_level, *(card.mass for card in group.cards))
            return "a row of levels"
        if self._heaviest_level and group.mass / size <= self._heaviest_level:
            return "lighter than the levels kept closed"
        has_container = any(self._tree.kind(call_id) == "container" for call_id in group.ids)
        fair = size / self._budget
        if before >= FAIR_COUNT and not has_container and group.mass <= fair * self._net.total_mass:
            return "below the fair share of a card"
        has_half = group.mass * 2 >= self._net.total_mass
        has_calls = any(item.is_call for call_id in group.ids for item in self._tree.shown_items(call_id))
        if not has_calls and not (has_half and before < FAIR_COUNT):
            return "nothing but ops inside"
        return "one layer inside, and work around it" if self._is_thin(group, with_blocks=False) else ""

    def _is_thin(self, group: _Group, *, with_blocks: bool) -> bool:
        """Return whether opening would show one layer for each card, and hide the rest of what it does."""
        for call_id in group.ids:
            items = list(self._tree.shown_items(self._unwrapped(call_id, with_blocks)[-1]))
            if len(items) != 1 or not items[0].is_leaf_like or items[0].mass == self._net.mass[call_id]:
                return False
        return True

    def _open_as_intervals(self, group: _Group) -> None:
        if (
            not self._may_cut
            or len(group.cards) != 1
            or self.figure.count > FAIR_COUNT
            or group.mass * 2 < self._net.total_mass
        ):
            return
        call_id = group.ids[0]
        room = self._budget - self.figure.count + 1
        self.figure = self.figure.with_opened(frozenset({call_id}), {call_id: room})
        self.log.append(f"cut the children of {group.name} into at most {room} intervals")

    # -- folds --

    def _open_folds(self) -> None:
        asked: set[int] = set()
        opened_inside: set[int] = set()
        while True:
            groups = [g for g in self._fold_groups() if g.cards[0].item.key not in asked]
            if not groups:
                return
            group = min(groups, key=lambda g: (-g.mass, g.ids))
            asked.add(group.cards[0].item.key)
            after = self.figure.with_opened(self._opening(group, with_blocks=True))
            reason = self._reason_to_keep_folded(group, after, opened_inside)
            if reason:
                self.log.append(f"keep {group.name}: {reason}")
                continue
            self.log.append(f"open {group.name}: {self.figure.count} cards become {after.count}")
            opened_inside.update(group.ids)
            self.figure = after

    def _fold_groups(self) -> list[_Group]:
        by_key: dict[int, list[Card]] = {}
        for card in self._open_blocks():
            by_key.setdefault(card.item.key, []).append(card)
        groups: list[_Group] = []
        for cards in by_key.values():
            folded = sum(card.mass for card in cards if _is_representative(card))
            if folded and folded * 2 >= sum(card.mass for card in cards):
                groups.append(_Group(f"×N {self._net.calls[cards[0].item.call_id].path}", tuple(cards)))
        return groups

    def _reason_to_keep_folded(self, group: _Group, after: Figure, opened_inside: set[int]) -> str:
        if not any(self._tree.scope(call_id).has_something_to_see() for call_id in group.ids):
            return "a plain chain inside"
        if any(card.fold is not None and card.fold.is_dense for card in group.cards):
            return "dense"
        if self._is_thin(group, with_blocks=True):
            return "one layer inside, and work around it"
        if any(self._is_under(card.scope_id, opened_inside) for card in group.cards):
            return "inside an opened fold"
        if group.mass < LEAST_FOLD_SHARE * self._net.total_mass:
            return "a small part of the net"
        if group.mass * 2 < self._mass_of_key(group.cards[0].item.key):
            return "most of its kind stay closed elsewhere"
        # one that stands alone beside the folds is drawn as large as a box
        num_open = max(after.num_boxes(), len(group.cards))
        limit = self._budget if num_open <= MOST_OPEN_BOXES else min(self._budget, MANY_BOXES_BUDGET)
        if after.count > limit:
            return f"over the budget, {after.count} cards"
        return ""

    def _mass_of_key(self, key: int) -> int:
        """Return the mass of all calls of a key, seen or inside closed cards; of calls inside each other, the outer."""
        net, mass, end = self._net, 0, 0
        for call in net.calls:
            if net.key[call.call_id] == key and call.call_id >= end:
                mass += net.mass[call.call_id]
                end = call.call_id + net.num_calls[call.call_id]
        return mass

    def _is_under(self, call_id: int | None, above: set[int]) -> bool:
        while call_id is not None:
            if call_id in above:
                return True
            call_id = self._net.calls[call_id].parent_id
        return False

    def _open_blocks(self) -> list[Card]:
        """Return the cards that are blocks and may be opened."""
        return [
            card
            for card in self.figure.cards
            if card.item.is_call
            and card.item.call_id not in self._closed
            and card.scope_id not in self.figure.intervals
            and self._tree.kind(card.item.call_id) == "block"
        ]

    # -- poor figures --

    def _open_poor(self) -> None:
        if self.figure.count >= FEW_CARDS or any(card.fold is not None for card in self.figure.cards):
            return
        refused: set[int] = set()
        while True:
            blocks = [card for card in self._open_blocks() if card.item.call_id not in refused]
            if not blocks:
                return
            card = min(blocks, key=lambda c: (-c.mass, c.item.call_id))
            after = self.figure.with_opened(frozenset(self._unwrapped(card.item.call_id, with_blocks=True)))
            path = self._net.calls[card.item.call_id].path
            if after.count <= min(ENOUGH_CARDS, self._budget):
                self.log.append(f"open {path}: the figure has {self.figure.count} cards only")
                self.figure = after
            else:
                refused.add(card.item.call_id)
                self.log.append(f"keep {path}: {after.count} cards would be more than a few")


def _is_representative(card: Card) -> bool:
    """Return whether a card is all that its fold shows, light calls aside."""
    if card.fold is None:
        return False
    return sum(isinstance(e, FoldItem) or not e.is_light for e in card.fold.shown) == 1
