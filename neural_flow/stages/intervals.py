"""Too many children for the budget: cut the call order where few values are live."""

from __future__ import annotations

from itertools import pairwise

from neural_flow.stages._elements import Element, items_of
from neural_flow.stages._tree import Tree

LEAST_SHARE = 0.5
MOST_SHARE = 1.5


def cut_intervals(tree: Tree, call_id: int, budget: int) -> list[list[Element]]:
    """Return the children of a call as at most ``budget`` runs of elements in call order.

    An interval of a topological order never closes a cycle, so this works for every graph. Cuts fall where the
    fewest values are live; on a tie at a change of spatial size, then nearest to equal mass.
    """
    elements = tree.elements(call_id)
    if len(elements) <= budget:
        return [[element] for element in elements]
    mass = [max(1, sum(item.mass for item in items_of(element))) for element in elements]
    live = _live_values(tree, call_id, elements)
    changes = _size_changes(elements)
    cuts: list[int] = []
    for wanted in range(budget, 0, -1):
        cuts = _cut(mass, live, changes, sum(mass) / wanted)
        if len(cuts) + 1 <= budget:
            break
    bounds = [0, *cuts, len(elements)]
    return [elements[start:end] for start, end in pairwise(bounds)]


def _cut(mass: list[int], live: list[int], changes: list[bool], target: float) -> list[int]:
    """Return the positions before which to cut."""
    cuts: list[int] = []
    start, size = 0, len(mass)
    while True:
        total, best = 0, None
        for end in range(start + 1, size):
            total += mass[end - 1]
            if total > MOST_SHARE * target and best is not None:
                break
            if total >= LEAST_SHARE * target or (end == start + 1 and total + mass[end] > MOST_SHARE * target):
                rank = (live[end], not changes[end], abs(total - target), end)
                best = rank if best is None or rank < best else best
                if total > MOST_SHARE * target:
                    break
        if best is None or sum(mass[start:]) <= MOST_SHARE * target:
            return cuts
        start = best[3]
        cuts.append(start)


def _live_values(tree: Tree, call_id: int, elements: list[Element]) -> list[int]:
    """Return per boundary the number of elements before it whose values are still read behind it."""
    position_of = {item.index: position for position, element in enumerate(elements) for item in items_of(element)}
    change = [0] * (len(elements) + 1)
    for position, element in enumerate(elements):
        last = position
        for item in items_of(element):
            last = max([last, *(position_of[sink] for sink in item.sinks)])
            if item.exits:
                last = max(last, len(elements) - 1)
        if last > position:
            change[position + 1] += 1
            change[last + 1] -= 1
    live: list[int] = []
    now = 0
    for delta in change:
        now += delta
        live.append(now)
    return live


def _size_changes(elements: list[Element]) -> list[bool]:
    """Return per boundary whether the spatial size changes across it."""
    sizes: list[tuple[int, ...]] = []
    for element in elements:
        shapes = [shape for item in items_of(element) for shape in item.shapes]
        sizes.append(shapes[-1][2:] if shapes else ())
    return [False, *(a != b for a, b in pairwise(sizes)), False]
