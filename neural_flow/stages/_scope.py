"""The children of one call and the wiring between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from neural_flow.stages._net import Net

EXIT = -1
MANY = -2


@dataclass(slots=True, eq=False)
class Item:
    """One child of an opened call: a visible child call, or a weighted op of its own.

    Sources are indices of siblings; a negative one, ``op_id - num_ops``, is an op outside the call. A join (an op
    between the children where values of several sources meet) counts as an output of its newest source; what else
    meets there is in ``rings``. ``exits`` are the places outside the call where values of this item are read.
    """

    index: int
    call_id: int
    op_id: int
    first_op: int
    end_op: int
    key: int
    path: str
    family: str
    shapes: tuple[tuple[int, ...], ...]
    num_params: int
    mass: int
    is_light: bool
    is_leaf_like: bool
    bank_size: int = 1
    sources: set[int] = field(default_factory=lambda: set[int]())
    rings: set[int] = field(default_factory=lambda: set[int]())
    sinks: set[int] = field(default_factory=lambda: set[int]())
    exits: set[int] = field(default_factory=lambda: set[int]())
    only_source: int | None = None
    """The one source of everything that is read, joins seen through; None where there are more or none."""
    only_sink: int | None = None
    """The one sibling (or ``EXIT``) that reads everything, joins seen through; ``MANY`` where there are more."""

    @property
    def is_call(self) -> bool:
        """Whether this is a call, not an op."""
        return self.call_id >= 0


class Scope:
    """The children of one call, in execution order, wired.

    Args:
        net: the calls.
        call_id: whose children.
        is_item: which child calls count; the visible ones by default.
        has_ops: whether own weighted ops count.
    """

    def __init__(
        self, net: Net, call_id: int, is_item: Callable[[int], bool] | None = None, has_ops: bool = True
    ) -> None:
        self.net = net
        self.call_id = call_id
        self._first = net.calls[call_id].first_op_id
        self._end = net.calls[call_id].end_op_id
        self._num_ops = len(net.trace.ops)
        self.items = self._collect_items(is_item, has_ops)
        self._owner = [-1] * (self._end - self._first)
        for item in self.items:
            for op_id in range(item.first_op, item.end_op):
                self._owner[op_id - self._first] = item.index
        self.has_join = False
        self.has_fan_out = False
        self._wire_sources()
        self._wire_sinks()

    def newest(self, op_id: int) -> int | None:
        """Return the newest source of an op's value as this scope sees it: a sibling, or negative an op outside."""
        if self._is_outside(op_id):
            return op_id - self._num_ops
        owner = self._owner[op_id - self._first]
        return owner if owner >= 0 else self._newest[op_id - self._first]

    def origin(self, op_id: int) -> int | None:
        """Return the op that made the value which an op between the children hands on; None at a join."""
        return self._origin[op_id - self._first]

    def has_something_to_see(self) -> bool:
        """Return whether the inside is more than a chain: a join, or one value read by several children."""
        return self.has_join or self.has_fan_out or any(len(item.sources) > 1 for item in self.items)

    def full_sources(self) -> list[int]:
        """Return per item a bit set of all its sources, joins seen through. Bits above the items are ops outside."""
        signals = self.net.signals
        outside: dict[int, int] = {}
        through: dict[int, int] = {}
        found = [0] * len(self.items)
        for op_id in range(self._first, self._end):
            owner = self._owner[op_id - self._first]
            bits = 0
            for parent in signals.parents[op_id]:
                if self._is_outside(parent):
                    bits |= 1 << (len(self.items) + outside.setdefault(parent, len(outside)))
                    continue
                other = self._owner[parent - self._first]
                if other < 0:
                    bits |= through[parent]
                elif other != owner:
                    bits |= 1 << other
            if owner >= 0:
                found[owner] |= bits
            else:
                through[op_id] = bits
        return found

    def full_sinks(self) -> list[int]:
        """Return per item a bit set of all its readers, joins seen through. Bits above the items are outside."""
        signals, num_items = self.net.signals, len(self.items)
        outside: dict[int, int] = {}
        through: dict[int, int] = {}
        found = [0] * num_items
        for op_id in range(self._end - 1, self._first - 1, -1):
            owner = self._owner[op_id - self._first]
            bits = 0
            for leaf in self._exits_of(op_id):
                bits |= 1 << (num_items + outside.setdefault(leaf, len(outside)))
            for reader in signals.readers[op_id]:
                if reader < self._end:
                    other = self._owner[reader - self._first]
                    if other < 0:
                        bits |= through[reader]
                    elif other != owner:
                        bits |= 1 << other
            if owner >= 0:
                found[owner] |= bits
            else:
                through[op_id] = bits
        return found

    def _collect_items(self, is_item: Callable[[int], bool] | None, has_ops: bool) -> list[Item]:
        net = self.net
        chosen = [c for c in net.child_calls[self.call_id] if (net.is_visible[c] if is_item is None else is_item(c))]
        ops = net.own_ops[self.call_id] if has_ops else []
        order = [(net.calls[c].first_op_id, c, -1) for c in chosen] + [(op, -1, op) for op in ops]
        # a call without ops starts where the next one does: the call id keeps the order of entry
        order.sort(key=lambda entry: (entry[0], entry[2] >= 0, entry[1]))
        return [self._item(index, call, op) for index, (_, call, op) in enumerate(order)]

    def _item(self, index: int, call_id: int, op_id: int) -> Item:
        net = self.net
        if op_id >= 0:
            op = net.trace.ops[op_id]
            params = net.signals.applied_params(op_id)
            return Item(
                index=index, call_id=-1, op_id=op_id, first_op=op_id, end_op=op_id + 1, key=net.op_key(op_id), path="",
                family="",
                shapes=net.float_shapes(op), num_params=sum(net.trace.params[p].numel for p in params), mass=1,
                is_light=False, is_leaf_like=True, bank_size=net.signals.bank_size[op_id],
            )  # fmt: skip
        call = net.calls[call_id]
        return Item(
            index=index, call_id=call_id, op_id=-1, first_op=call.first_op_id, end_op=call.end_op_id,
            key=net.key[call_id], path=call.path, family=net.family(call_id, self.call_id),
            shapes=net.float_shapes(call), num_params=net.num_params(call_id),
            mass=net.mass[call_id], is_light=net.is_light[call_id], is_leaf_like=net.is_leaf_like[call_id],
        )  # fmt: skip

    def _is_outside(self, op_id: int) -> bool:
        """Return whether a value came into the call: made before it, or an input of the model."""
        return op_id < self._first or self.net.trace.ops[op_id].role == "input"

    def _exits_of(self, op_id: int) -> tuple[int, ...]:
        """Return where outside the call the value is read: output leaves of the model, or one common place."""
        signals = self.net.signals
        last = signals.last_reader[op_id]
        if last < self._end:
            return ()
        if self.call_id == 0:
            return signals.output_leaves.get(op_id, (EXIT,))
        return (EXIT,)

    def _wire_sources(self) -> None:
        signals, first = self.net.signals, self._first
        size = self._end - first
        self._newest: list[int | None] = [None] * size
        self._origin: list[int | None] = [None] * size
        is_pure = [True] * size
        seen: list[set[int]] = [set() for _ in self.items]
        is_mixed = [False] * len(self.items)
        readers_of: dict[int, int] = {}
        for op_id in range(first, self._end):
            owner = self._owner[op_id - first]
            met: set[int] = set()
            pure = True
            origin: int | None = None
            for parent in signals.parents[op_id]:
                source = self.newest(parent)
                if source is None or source == owner:
                    continue
                met.add(source)
                is_glue = not self._is_outside(parent) and self._owner[parent - first] < 0
                if is_glue:
                    pure = pure and is_pure[parent - first]
                origin = self._origin[parent - first] if is_glue else parent
                value = parent if origin is None else origin
                if owner >= 0 and readers_of.setdefault(value, owner) != owner:
                    self.has_fan_out = True
            if owner >= 0:
                seen[owner] |= met
                is_mixed[owner] = is_mixed[owner] or not pure
            elif met:
                newest = max(met)
                pure = pure and len(met) == 1
                self._newest[op_id - first] = newest
                self._origin[op_id - first] = origin if pure else None
                is_pure[op_id - first] = pure
                if len(met) > 1:
                    self.has_join = True
                    if newest >= 0:
                        self.items[newest].rings |= met - {newest}
        for item in self.items:
            item.sources = seen[item.index]
            if len(item.sources) == 1 and not is_mixed[item.index]:
                item.only_source = next(iter(item.sources))
            for source in (*item.sources, *item.rings):
                if source >= 0:
                    self.items[source].sinks.add(item.index)

    def _wire_sinks(self) -> None:
        signals, first = self.net.signals, self._first
        sink: list[int | None] = [None] * (self._end - first)
        for op_id in range(self._end - 1, first - 1, -1):
            owner = self._owner[op_id - first]
            found: int | None = None
            exits = self._exits_of(op_id)
            if exits:
                found = EXIT
                newest = self.newest(op_id)
                if newest is not None and newest >= 0:
                    self.items[newest].exits.update(exits)
            for reader in signals.readers[op_id]:
                if reader >= self._end:
                    continue
                other = self._owner[reader - first]
                if other >= 0 and other == owner:
                    continue
                place = other if other >= 0 else sink[reader - first]
                if place is not None:
                    found = place if found is None or found == place else MANY
            if owner < 0:
                sink[op_id - first] = found
            elif found is not None:
                item = self.items[owner]
                item.only_sink = found if item.only_sink is None or item.only_sink == found else MANY
