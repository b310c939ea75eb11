"""What a scope holds after folding: items, and folds of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from neural_flow.records import FoldKind
from neural_flow.stages._net import Net
from neural_flow.stages._scope import Item


@dataclass(slots=True, eq=False)
class FoldItem:
    """Repeats of one thing: members in order, each a list of elements, of which one is shown."""

    kind: FoldKind
    members: list[list[Element]]
    representative: int
    is_dense: bool = False

    @property
    def count(self) -> int:
        """Number of repeats."""
        return len(self.members)

    @property
    def shown(self) -> list[Element]:
        """The elements of the representative."""
        return self.members[self.representative]


Element = Item | FoldItem


def items_of(element: Element) -> Iterator[Item]:
    """Iterate over all items of an element, those of every member of a fold."""
    if isinstance(element, Item):
        yield element
        return
    for member in element.members:
        for inner in member:
            yield from items_of(inner)


def first_index(element: Element) -> int:
    """Return the smallest item index of an element."""
    return min(item.index for item in items_of(element))


def commonest(net: Net, members: list[list[Element]]) -> int:
    """Return the index of the member to show: of the commonest size (tie: fewest children), then wiring, the first.

    A first member may start from zeros: it lacks what the others read.
    """
    sizes = [_measure(net, member) for member in members]
    counts = Counter((params, calls) for params, calls, _ in sizes)
    params, calls, _ = min(sizes, key=lambda size: (-counts[size[:2]], size[2]))
    alike = [k for k, size in enumerate(sizes) if size[:2] == (params, calls)]
    num_reads = {k: sum(net.num_reads(i.first_op, i.end_op) for e in members[k] for i in items_of(e)) for k in alike}
    wirings = Counter(num_reads.values())
    return min(alike, key=lambda k: (-wirings[num_reads[k]], -num_reads[k], k))


def _measure(net: Net, member: list[Element]) -> tuple[int, int, int]:
    params = calls = children = 0
    for element in member:
        for item in items_of(element):
            params += item.num_params
            if item.is_call:
                calls += net.num_calls[item.call_id]
                children += len(net.visible_children(item.call_id)) + len(net.own_ops[item.call_id])
    return params, calls, children
