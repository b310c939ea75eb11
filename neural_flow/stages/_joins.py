"""What joins a card: light calls, resampling marks, and the parameter-free calls whose output a card shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from neural_flow.records import ModuleCall
from neural_flow.stages._elements import Element, FoldItem, items_of
from neural_flow.stages._net import Net
from neural_flow.stages._scope import Item, Scope
from neural_flow.stages._tree import Tree

FoldPlace = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Joins:
    """What is no card of its own in a scope: ``card_of`` maps an item to the one it joins, ``marks`` to its reader."""

    card_of: dict[int, int] = field(default_factory=lambda: dict[int, int]())
    marks: dict[int, int] = field(default_factory=lambda: dict[int, int]())

    def is_card(self, item: Item) -> bool:
        """Return whether an item has a card of its own."""
        return item.index not in self.card_of and item.index not in self.marks

    def card(self, index: int) -> int:
        """Return the item whose card an item is drawn in."""
        while index in self.card_of:
            index = self.card_of[index]
        return index


def fold_places(elements: list[Element]) -> dict[int, FoldPlace]:
    """Return for each item the folds it is in, outermost first, as (id of the fold's first item, member)."""
    places: dict[int, FoldPlace] = {}

    def visit(element: Element, place: FoldPlace) -> None:
        if isinstance(element, Item):
            places[element.index] = place
            return
        fold_id = next(items_of(element)).index
        for number, member in enumerate(element.members):
            for inner in member:
                visit(inner, (*place, (fold_id, number)))

    for element in elements:
        visit(element, ())
    return places


def single_cards(elements: list[Element]) -> set[int]:
    """Return the items that are the only element of their fold's members."""
    found: set[int] = set()
    for element in elements:
        if isinstance(element, FoldItem):
            for member in element.members:
                if len(member) == 1 and isinstance(member[0], Item):
                    found.add(member[0].index)
    return found


def join_lights(scope: Scope, elements: list[Element], is_closed: Callable[[Item], bool]) -> Joins:
    """Return which light calls join the leaf-like card before them (``conv1 + bn1``)."""
    joins = Joins()
    places = fold_places(elements)
    for light in scope.items:
        if not light.is_light or not is_closed(light) or light.only_source is None or light.only_source < 0:
            continue
        source = scope.items[light.only_source]
        is_pair = source.is_leaf_like and is_closed(source) and source.only_sink == light.index
        if is_pair and places[light.index] == places[source.index]:
            joins.card_of[light.index] = joins.card(source.index)
    return joins


def join_crowded(scope: Scope, elements: list[Element], joins: Joins, is_closed: Callable[[Item], bool]) -> None:
    """Add to ``joins`` the light calls outside boxes that join a closed block before, or the leaf-like card after."""
    places, single = fold_places(elements), single_cards(elements)

    def sibling(index: int | None) -> Item | None:
        found = scope.items[index] if index is not None and index >= 0 else None
        return found if found is not None and is_closed(found) else None

    for light in scope.items:
        if not light.is_light or places[light.index] or not is_closed(light) or light.index in joins.card_of:
            continue
        before, after = sibling(light.only_source), sibling(light.only_sink)
        if before is not None and before.only_sink == light.index:
            is_larger = not before.is_leaf_like and not places[before.index]
            if is_larger or before.index in single:
                joins.card_of[light.index] = joins.card(before.index)
                continue
        if after is not None and after.is_call and after.is_leaf_like and not after.is_light:
            is_its_reader = not places[after.index] and after.only_source == light.index
            if is_its_reader and not is_head(scope, after):
                joins.card_of[after.index] = light.index


def is_head(scope: Scope, item: Item) -> bool:
    """Return whether an item makes an output of the model: a value of it leaves the root."""
    signals = scope.net.signals
    num_ops = len(scope.net.trace.ops)
    pending, seen = list(range(item.first_op, item.end_op)), set[int]()
    while pending:
        op_id = pending.pop()
        if signals.last_reader[op_id] >= num_ops:
            return True
        for reader in signals.readers[op_id]:
            if reader >= item.end_op and reader not in seen and not signals.is_heavy[reader]:
                seen.add(reader)
                pending.append(reader)
    return False


def resampling(net: Net, item: Item) -> str:
    """Return what a one-layer call does to the spatial size (``×2 up-conv``); empty where it does not change it."""
    if not item.is_call or not item.is_leaf_like or item.is_light or len(net.visible_children(item.call_id)) > 1:
        return ""
    call = net.calls[item.call_id]
    if len(call.inputs) != 1 or len(call.outputs) != 1:
        return ""
    before, after = call.inputs[0].shape, call.outputs[0].shape
    names = [net.signals.name(op) for op in range(item.first_op, item.end_op) if net.signals.is_heavy[op]]
    if len(before) != len(after) or len(before) < 3 or len(names) != 1:
        return ""
    is_conv = "conv" in names[0]
    old, new = (before[2:], after[2:]) if is_conv else (before[1:-1], after[1:-1])
    if old == new or not all(old) or not all(new):
        return ""
    ratio = new[0] / old[0]
    factor = f"×{ratio:g}" if ratio >= 1 else f"÷{1 / ratio:g}"
    if round(max(ratio, 1 / ratio)) != max(ratio, 1 / ratio):
        factor = f"{old[0]}→{new[0]}"
    kind = "up-conv" if "transpose" in names[0] else "conv" if is_conv else names[0]
    return f"{factor} {kind}"


class JoinFinder:
    """Find what joins the cards of each opened call.

    Args:
        tree: the calls.
        is_opened: whether a call is shown by its children; the same for a repeat and its representative.
    """

    def __init__(self, tree: Tree, is_opened: Callable[[int], bool]) -> None:
        self._tree = tree
        self._net = tree.net
        self._is_opened = is_opened

    def find(self, call_id: int) -> Joins:
        """Return the light calls that join the card before them, and the resampling leaves that become marks."""
        scope = self._tree.scope(call_id)
        joins = join_lights(scope, self._tree.elements(call_id), self._is_closed)
        for item in scope.items:
            if item.only_sink is None or item.only_sink < 0 or item.only_source is None or not self._is_closed(item):
                continue
            reader = scope.items[item.only_sink]
            if not reader.is_call or reader.is_leaf_like or not self._is_closed(reader):
                continue
            if resampling(self._net, item) and self._source_key(scope, item.only_source) == reader.key:
                joins.marks[item.index] = reader.index
        return joins

    def crowd(self, call_id: int, joins: Joins) -> None:
        """Add the light calls that join in a crowded figure."""
        join_crowded(self._tree.scope(call_id), self._tree.elements(call_id), joins, self._is_closed)

    def _is_closed(self, item: Item) -> bool:
        return not item.is_call or not self._is_opened(item.call_id)

    def _source_key(self, scope: Scope, source: int) -> int:
        """Return the key of the larger closed card that made a source; -1 where there is none."""
        if source < 0:
            return self._key_of_maker(source + len(self._net.trace.ops))
        before = scope.items[source]
        if self._is_closed(before):
            return before.key if before.is_call and not before.is_leaf_like else -1
        values = {op for refs in self._net.calls[before.call_id].output_refs for op, _ in refs}
        return self._key_of_maker(next(iter(values))) if len(values) == 1 else -1

    def _key_of_maker(self, op_id: int | None) -> int:
        """Return the key of the larger closed card that an op lies in, seen through ops between cards."""
        net = self._net
        while op_id is not None:
            chain: list[int] = []
            call_id = net.trace.ops[op_id].call_id
            while call_id is not None:
                chain.append(call_id)
                call_id = net.calls[call_id].parent_id
            closed = next((c for c in reversed(chain) if not self._is_opened(c)), None)
            if closed is not None and net.is_visible[closed]:
                return -1 if net.is_leaf_like[closed] else net.key[closed]
            inside = net.calls[closed].parent_id if closed is not None else (chain[0] if chain else None)
            if inside is None:
                return -1
            op_id = self._tree.scope(inside).origin(op_id)
        return -1


class Followers:
    """The parameter-free leaf calls whose output a card shows, found by the values they read."""

    def __init__(self, net: Net) -> None:
        self._net = net
        self._by_value: dict[int, dict[int, list[ModuleCall]]] = {}

    def of(self, scope_id: int, output_ops: set[int], shapes: tuple[tuple[int, ...], ...]) -> list[int]:
        """Return the calls that follow one value one-in one-out at the same size, in call order."""
        net = self._net
        found: list[int] = []
        if len(shapes) != 1:
            return found
        by_value = self._index(scope_id)
        while len(output_ops) == 1:
            value = next(iter(output_ops))
            calls = [call for call in by_value.get(value, []) if call.call_id not in found]
            if len(calls) != 1 or net.float_shapes(calls[0]) != shapes:
                break
            call = calls[0]
            is_alone = all(call.first_op_id <= reader < call.end_op_id for reader in net.signals.readers[value])
            if call.end_op_id > call.first_op_id and not is_alone:
                break
            found.append(call.call_id)
            output_ops = {op for refs in call.output_refs for op, _ in refs}
        return found

    def _index(self, scope_id: int) -> dict[int, list[ModuleCall]]:
        if scope_id not in self._by_value:
            net = self._net
            index: dict[int, list[ModuleCall]] = {}
            for call in (net.calls[child] for child in net.child_calls[scope_id]):
                is_plain = not net.child_calls[call.call_id] and net.num_params(call.call_id) == 0
                if net.is_visible[call.call_id] or not is_plain or len(call.inputs) != 1 or len(call.outputs) != 1:
                    continue
                values = {op for refs in call.input_refs for op, _ in refs}
                if len(values) == 1:
                    index.setdefault(next(iter(values)), []).append(call)
            self._by_value[scope_id] = index
        return self._by_value[scope_id]
