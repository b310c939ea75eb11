"""The figure while it is being chosen: which calls are opened, and the cards that this gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from neural_flow.stages._elements import Element, FoldItem
from neural_flow.stages._joins import JoinFinder, Joins
from neural_flow.stages._scope import Item
from neural_flow.stages._tree import Tree
from neural_flow.stages.intervals import cut_intervals

CROWDED = 16


@dataclass(slots=True, frozen=True)
class Card:
    """One card of the figure: an item, where it stands, and how often it is drawn for."""

    item: Item
    scope_id: int
    times: int
    fold: FoldItem | None
    boxes: tuple[int, ...]
    """First item's call or op of each fold around it, as an id of the box, outermost first."""

    @property
    def mass(self) -> int:
        """Heavy signal ops of all the repeats it stands for."""
        return self.item.mass * self.times


class Figure:
    """A set of opened calls over a tree, with what joins applied.

    Args:
        tree: the calls.
        opened: calls whose children are shown; the root is always among them.
        intervals: calls whose children are cut into at most that many intervals.
        has_joins: whether light calls join cards and resampling leaves become marks.
    """

    def __init__(
        self, tree: Tree, opened: frozenset[int], intervals: dict[int, int] | None = None, *, has_joins: bool = True
    ) -> None:
        self.tree = tree
        self.opened = opened
        self.intervals = intervals or {}
        self.has_joins = has_joins
        self._joins: dict[int, Joins] = {}
        self._twin_of: dict[int, int] = {}
        self._finder = JoinFinder(tree, self._is_opened)
        every = [*self._walk(0, 1, ())]
        for call_id in self._scopes_of(every):
            self._joins[call_id] = self._find_joins(call_id)
        self.crowded: list[int] = []
        if self.has_joins and self._count(every) > CROWDED:
            in_boxes = {card.scope_id for card in every if card.boxes and card.fold is None}
            self.crowded = [call for call in self._scopes_of(every) if call not in in_boxes]
            for call_id in self.crowded:
                self._finder.crowd(call_id, self._joins[call_id])
        self.cards = [card for card in every if self._joins[card.scope_id].is_card(card.item)]
        self.count = self._count(every)

    def with_opened(self, calls: frozenset[int], intervals: dict[int, int] | None = None) -> Figure:
        """Return the figure with more calls opened."""
        merged = {**self.intervals, **(intervals or {})}
        return Figure(self.tree, self.opened | calls, merged, has_joins=self.has_joins)

    def joins(self, call_id: int) -> Joins:
        """Return what joins in one opened call."""
        if call_id not in self._joins:
            self._joins[call_id] = self._find_joins(call_id)
        return self._joins[call_id]

    def num_boxes(self) -> int:
        """Return the number of folds that show more than one card."""
        counts: dict[int, int] = {}
        for card in self.cards:
            for box in card.boxes[-1:]:
                counts[box] = counts.get(box, 0) + 1
        return sum(count > 1 for count in counts.values())

    def _count(self, every: list[Card]) -> int:
        num_cut = sum(len(cut_intervals(self.tree, call, budget)) for call, budget in self.intervals.items())
        return num_cut + sum(
            card.scope_id not in self.intervals and self._joins[card.scope_id].is_card(card.item) for card in every
        )

    def _scopes_of(self, cards: list[Card]) -> list[int]:
        return list(dict.fromkeys(card.scope_id for card in cards))

    def _walk(self, call_id: int, times: int, boxes: tuple[int, ...]) -> Iterator[Card]:
        for element in self.tree.elements(call_id):
            self._map_twins(element, element)
        for element in self.tree.elements(call_id):
            yield from self._walk_element(element, call_id, times, None, boxes)

    def _walk_element(
        self, element: Element, scope_id: int, times: int, fold: FoldItem | None, boxes: tuple[int, ...]
    ) -> Iterator[Card]:
        if isinstance(element, FoldItem):
            inside = (*boxes, id(element))
            for inner in element.shown:
                yield from self._walk_element(inner, scope_id, times * element.count, element, inside)
        elif element.is_call and element.call_id in self.opened and scope_id not in self.intervals:
            yield from self._walk(element.call_id, times, boxes)
        else:
            yield Card(element, scope_id, times, fold, boxes)

    def _is_opened(self, call_id: int) -> bool:
        """Return whether a call is opened, or what its fold shows for it."""
        return call_id in self.opened or self._twin_of.get(call_id, call_id) in self.opened

    def _map_twins(self, element: Element, shown: Element) -> None:
        if isinstance(element, Item):
            if isinstance(shown, Item):
                self._twin_of[element.call_id] = self._twin_of.get(shown.call_id, shown.call_id)
            return
        target = shown if isinstance(shown, FoldItem) else element
        for member in element.members:
            for number, inner in enumerate(member):
                self._map_twins(inner, target.shown[min(number, len(target.shown) - 1)])

    def _find_joins(self, call_id: int) -> Joins:
        if not self.has_joins or call_id in self.intervals:
            return Joins()
        return self._finder.find(call_id)
