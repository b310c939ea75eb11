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
    pending = [(0, 0)]
    while pending:
        call_id, guide = pending.pop()
        plan.opened.add(call_id)
        if guide in figure.intervals:
            plan.intervals[call_id] = figure.intervals[guide]
            continue
        for item, shown in _guided(figure, call_id, guide):
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


def _guided(figure: Figure, call_id: int, guide: int) -> list[tuple[Item, int]]:
    """Return the call items of a call, each with the call that stands for it in the figure."""
    tree = figure.tree
    shown = twins(tree.elements(guide))
    items = [item for item in tree.scope(call_id).items if item.is_call]
    if call_id == guide:
        return [(item, shown[item.index].call_id) for item in items]
    prefix, guide_prefix = tree.net.calls[call_id].path, tree.net.calls[guide].path
    by_path: dict[str, int] = {}
    by_key: dict[int, int] = {}
    for item in tree.scope(guide).items:
        if item.is_call:
            target = shown[item.index].call_id
            by_path.setdefault(_relative(item.path, guide_prefix), target)
            if item.key not in by_key or target in figure.opened:
                by_key[item.key] = target
    pairs: list[tuple[Item, int]] = []
    for item in items:
        target = by_path.get(_relative(item.path, prefix), -1)
        if target < 0 or tree.net.key[target] != item.key:
            target = by_key.get(item.key, target)
        pairs.append((item, target))
    return pairs


def _relative(path: str, prefix: str) -> str:
    return path[len(prefix) + 1 :] if prefix and path.startswith(prefix + ".") else path
