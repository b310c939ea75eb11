"""Scopes, folds and kinds of calls, made on demand: only what is opened, or may be, is ever wired."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from neural_flow.stages._elements import Element, FoldItem, items_of
from neural_flow.stages._net import Net
from neural_flow.stages._scope import Item, Scope
from neural_flow.stages.fold import fold_scope, twin_groups

Kind = Literal["leaf", "container", "block", "part"]

MIN_ALIKE = 3
MIN_LEAF_TWINS = 4


class Tree:
    """The opened form of every call.

    Args:
        net: the calls.
        is_item: which child calls are children; the visible ones by default.
        has_ops: whether own weighted ops are children.
        has_folds: whether repeats fold.
        preferred: calls that a fold must show, where it holds one.
    """

    def __init__(
        self,
        net: Net,
        *,
        is_item: Callable[[int], bool] | None = None,
        has_ops: bool = True,
        has_folds: bool = True,
        preferred: frozenset[int] = frozenset(),
    ) -> None:
        self.net = net
        self._is_item = is_item
        self._has_ops = has_ops
        self._has_folds = has_folds
        self._preferred = preferred
        self._scopes: dict[int, Scope] = {}
        self._elements: dict[int, list[Element]] = {}
        self._is_container: dict[int, bool] = {}

    def scope(self, call_id: int) -> Scope:
        """Return the children of a call, wired."""
        if call_id not in self._scopes:
            self._scopes[call_id] = Scope(self.net, call_id, self._is_item, self._has_ops)
        return self._scopes[call_id]

    def elements(self, call_id: int) -> list[Element]:
        """Return the children of a call with repeats folded."""
        if call_id not in self._elements:
            scope = self.scope(call_id)
            self._elements[call_id] = fold_scope(scope) if self._has_folds else [*scope.items]
            for element in self._elements[call_id]:
                self._show_preferred(element)
        return self._elements[call_id]

    def _show_preferred(self, element: Element) -> None:
        if isinstance(element, Item) or not self._preferred:
            return
        for number, member in enumerate(element.members):
            if any(item.call_id in self._preferred for inner in member for item in items_of(inner)):
                element.representative = number
                break
        for member in element.members:
            for inner in member:
                self._show_preferred(inner)

    def shown_items(self, call_id: int) -> Iterator[Item]:
        """Iterate over the children of a call that stand for all: of a fold those of its representative."""
        for element in self.elements(call_id):
            yield from _shown(element)

    def kind(self, call_id: int) -> Kind:
        """Return what people would see in a call.

        A container is a list of repeats, levels or branches; a block is a repeated module that is known as one
        thing; a part is an ad-hoc module used once. A leaf-like call is none of them.
        """
        net = self.net
        if net.is_leaf_like[call_id]:
            return "leaf"
        if self.is_container(call_id):
            return "container"
        if net.is_repeated_key.get(net.key[call_id], False):
            is_thin = net.is_sequential(call_id) and len(net.visible_children(call_id)) == 1
            return "part" if is_thin else "block"
        return "part"

    def is_container(self, call_id: int) -> bool:
        """Return whether a call holds a serial fold of larger things, levels, parallel branches, or a container."""
        if call_id not in self._is_container:
            self._is_container[call_id] = self._find_container(call_id)
        return self._is_container[call_id]

    def _find_container(self, call_id: int) -> bool:
        net = self.net
        if net.is_leaf_like[call_id]:
            return False
        if net.is_recursive_key.get(net.key[call_id], False):
            return True
        elements = self.elements(call_id)
        for element in elements:
            if isinstance(element, FoldItem) and element.kind == "serial":
                if any(not item.is_leaf_like for item in _shown(element)):
                    return True
            elif isinstance(element, Item) and element.bank_size >= MIN_LEAF_TWINS:
                return True
        if self._has_levels(call_id) or self._has_twins(call_id):
            return True
        return any(item.is_call and self.is_container(item.call_id) for item in self.shown_items(call_id))

    def _has_levels(self, call_id: int) -> bool:
        """Return whether three or more larger children are of one key, plain sequentials and wrappers seen through."""
        paths_by_key: dict[int, set[str]] = {}
        pending = list(reversed(self.net.visible_children(call_id)))
        while pending:
            child = pending.pop()
            inner = self.net.visible_children(child)
            if self.net.is_sequential(child) or (len(inner) == 1 and self._is_glue_free(child)):
                pending.extend(reversed(inner))
            elif not self.net.is_leaf_like[child]:
                paths_by_key.setdefault(self.net.key[child], set()).add(self.net.calls[child].path)
        return any(len(paths) >= MIN_ALIKE for paths in paths_by_key.values())

    def _is_glue_free(self, call_id: int) -> bool:
        call = self.net.calls[call_id]
        num_inner = sum(
            self.net.calls[child].end_op_id - self.net.calls[child].first_op_id
            for child in self.net.child_calls[call_id]
        )
        return call.end_op_id - call.first_op_id == num_inner

    def _has_twins(self, call_id: int) -> bool:
        scope = self.scope(call_id)
        for twins in twin_groups(scope, [*scope.items]):
            paths = {twin.path or twin.op_id for twin in twins}
            if len(paths) >= (MIN_LEAF_TWINS if twins[0].is_leaf_like else 2):
                return True
        return False


def _shown(element: Element) -> Iterator[Item]:
    if isinstance(element, Item):
        yield element
    else:
        for inner in element.shown:
            yield from _shown(inner)
