"""A finished choice of opened calls, spread from what folds show to every repeat."""

from __future__ import annotations

from dataclasses import dataclass, field

from neural_flow.stages._elements import Element, FoldItem, items_of
from neural_flow.stages._figure import Figure
from neural_flow.stages._scope import Item
from neural_flow.stages._tree import Tree


@dataclass(slots=True)
class Plan:
    """Which calls are opened, in every repeat.

    ``intervals`` are opened calls whose children are cut into at most that many intervals; ``crowded`` are those
    where light calls join larger cards.
    """

    tree: Tree
    opened: set[int]
    intervals: dict[int, int] = field(default_factory=lambda: dict[int, int]())
    crowded: tuple[int, ...] = ()
    has_joins: bool = False


def plan_from_figure(figure: Figure) -> Plan:
    """Return a plan in which every repeat is opened as the one that its fold shows."""
    plan = Plan(figure.tree, set(), crowded=tuple(figure.crowded), has_joins=figure.has_joins)
    guides: dict[int, _Guide] = {}
    pending = [(0, 0)]
    while pending:
        call_id, guide = pending.pop()
        plan.opened.add(call_id)
        if guide in figure.intervals:
            plan.intervals[call_id] = figure.intervals[guide]
            continue
        if guide not in guides:
            guides[guide] = _Guide(figure, guide)
        for item, shown in guides[guide].follow(call_id):
            if shown in figure.opened and figure.tree.elements(item.call_id):
                pending.append((item.call_id, shown))
    return plan


def twins(elements: list[Element]) -> dict[int, Item]:
    """Return for each item of a scope the one that is shown for it: itself, or its place in the representative."""
    found: dict[int, Item] = {}

    def visit(element: Element, shown: Element) -> None:
        if isinstance(element, FoldItem):
            model = shown if isinstance(shown, FoldItem) else element
            for member in element.members:
                for number, inner in enumerate(member):
                    visit(inner, model.shown[min(number, len(model.shown) - 1)])
            return
        target = shown if isinstance(shown, Item) else next(items_of(shown))
        found[element.index] = found.get(target.index, target)

    for element in elements:
        visit(element, element)
    return found


class _Guide:
    """Tell, for calls that one call of the figure stands for, what stands for their children."""

    def __init__(self, figure: Figure, call_id: int) -> None:
        self._tree = figure.tree
        self._call_id = call_id
        self._shown = twins(figure.tree.elements(call_id))
        self._by_path: dict[str, int] = {}
        self._by_key: dict[int, int] = {}
        prefix = figure.tree.net.calls[call_id].path
        for item in figure.tree.scope(call_id).items:
            if item.is_call:
                target = self._shown[item.index].call_id
                self._by_path.setdefault(_relative(item.path, prefix), target)
                if item.key not in self._by_key or target in figure.opened:
                    self._by_key[item.key] = target

    def follow(self, call_id: int) -> list[tuple[Item, int]]:
        """Return the call items of a call, each with the call that stands for it in the figure.

        The same place in the module counts first; where repeats differ (a projection in the first block), the key.
        """
        items = [item for item in self._tree.scope(call_id).items if item.is_call]
        if call_id == self._call_id:
            return [(item, self._shown[item.index].call_id) for item in items]
        key, prefix = self._tree.net.key, self._tree.net.calls[call_id].path
        pairs: list[tuple[Item, int]] = []
        for item in items:
            target = self._by_path.get(_relative(item.path, prefix), -1)
            if target < 0 or key[target] != item.key:
                target = self._by_key.get(item.key, target)
            pairs.append((item, target))
        return pairs


def _relative(path: str, prefix: str) -> str:
    return path[len(prefix) + 1 :] if prefix and path.startswith(prefix + ".") else path
