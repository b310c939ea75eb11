"""Which modules are drawn as boxes round their cards: the outermost that hold some, but not nearly all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate

from neural_flow.stages._assemble import CardNode, FoldNode, Node, cards_of, drawn_cards
from neural_flow.stages._net import Net
from neural_flow.stages._spoken import PLAIN, is_plain
from neural_flow.stages.labels import has_speaking_part

WRAPPER_SHARE = 0.75


@dataclass(slots=True, frozen=True, eq=False)
class Group:
    """A module path and all cards under it; ``is_named`` tells whether people would write its name on a box."""

    path: str
    cards: tuple[CardNode, ...]
    is_named: bool = True

    @property
    def num_parts(self) -> int:
        """Number of components of the path."""
        return self.path.count(".") + 1


def find_groups(net: Net, nodes: list[Node], outer: Sequence[int]) -> list[Group]:
    """Return the groups of a figure, by their first card, outer before inner.

    Args:
        net: the calls.
        nodes: the figure.
        outer: calls that are groups whatever their size.
    """
    drawn = [_holder(net, card) for card in drawn_cards(nodes)]
    num_under = Counter(prefix for parts in drawn for prefix in prefixes(parts))
    nameless = _nameless(net, num_under)
    wanted = {prefix for parts in drawn for prefix in _outermost(parts, num_under, len(drawn), nameless)}
    wanted |= {net.calls[call_id].path for call_id in outer}
    wanted.discard("")
    inside: dict[str, list[CardNode]] = {}
    for card in sorted(cards_of(nodes), key=lambda c: c.order):
        for prefix in prefixes(card_path(net, card).split(".")):
            if prefix in wanted:
                inside.setdefault(prefix, []).append(card)
    boxes = _fold_boxes(nodes)
    order = {prefix: k for k, prefix in enumerate(inside)}
    return [
        Group(prefix, tuple(inside[prefix]), prefix not in nameless)
        for prefix in sorted(inside, key=lambda p: (inside[p][0].order, p.count("."), order[p]))
        # a fold that holds the same cards has a box already, and so has a member of it
        if frozenset(map(id, inside[prefix])) not in boxes
    ]


def card_path(net: Net, card: CardNode) -> str:
    """Return the path of a card's module, or of the module that owns its op."""
    if card.call_id >= 0:
        return net.calls[card.call_id].path
    owner = net.trace.ops[card.op_id].call_id
    return net.calls[owner].path if owner is not None else ""


def prefixes(parts: list[str]) -> list[str]:
    """Return the paths of all holders of a path, outermost first, itself last."""
    return list(accumulate(parts, lambda prefix, part: f"{prefix}.{part}"))


def _holder(net: Net, card: CardNode) -> list[str]:
    path = card_path(net, card).split(".")
    return path[:-1] if card.call_id >= 0 else path


def _outermost(parts: list[str], num_under: Counter[str], num_drawn: int, nameless: Set[str]) -> list[str]:
    """Return the outermost path prefix that holds two or more cards, but not nearly all.

    Where nobody would name it, the outermost one inside it that has a name follows.
    """
    found: list[str] = []
    for prefix in prefixes(parts):
        if not prefix or num_under[prefix] < 2:
            break
        if num_under[prefix] > WRAPPER_SHARE * num_drawn:
            continue
        if prefix not in nameless:
            return [*found, prefix]
        found = found or [prefix]
    return found


def _nameless(net: Net, paths: Iterable[str]) -> set[str]:
    """Return the paths that nobody would name: levels of a recursion, plain containers that the path only numbers."""
    classes = {module.path for module in net.trace.modules if not module.qualified_name.startswith(PLAIN)}
    numbered = {path for path in paths if not has_speaking_part(path) and path not in classes}
    return numbered | _recursion_levels(net)


def _recursion_levels(net: Net) -> set[str]:
    """Return the paths of modules that hold one smaller copy of themselves, of these copies, and of all between.

    A module that holds several of its own class is no level: a stack of stacks is named as any other module is.
    """
    inner: dict[int, dict[str, int]] = {}  # by call, the outermost calls inside it of its own class, by path
    around: list[dict[str, int]] = []  # by call, the innermost call of each class that it lies in or is
    for call in net.calls:
        above = around[call.parent_id] if call.parent_id is not None else {}
        kind = net.class_of(call.call_id)
        if is_plain(net, call.call_id):
            around.append(above)
            continue
        if kind in above:
            inner.setdefault(above[kind], {}).setdefault(call.path, call.call_id)
        around.append({**above, kind: call.call_id})
    levels: set[str] = set()
    for outer, copies in inner.items():
        if len(copies) > 1:
            continue
        current: int | None = next(iter(copies.values()))
        while current is not None and current >= outer:
            levels.add(net.calls[current].path)
            current = net.calls[current].parent_id
    return levels


def _fold_boxes(nodes: list[Node]) -> set[frozenset[int]]:
    found: set[frozenset[int]] = set()
    for node in nodes:
        if isinstance(node, FoldNode):
            found.add(frozenset(id(card) for card in cards_of([node])))
            for member in node.members:
                found.add(frozenset(id(card) for card in cards_of(member)))
                found |= _fold_boxes(member)
    return found
