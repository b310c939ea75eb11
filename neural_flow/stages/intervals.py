"""Too many children for the budget: cut the call order where few values are live."""

from __future__ import annotations

from itertools import accumulate, pairwise

from neural_flow.stages._elements import Element, first_index, items_of
from neural_flow.stages._tree import Tree

LEAST_SHARE = 0.5
MOST_SHARE = 1.5


def cut_intervals(tree: Tree, call_id: int, budget: int) -> list[list[Element]]:
    """Return the children of a call as at most ``budget`` runs of elements in call order.

    An interval of a topological order never closes a cycle, so this works for every graph. Cuts fall where the
    fewest values are live; on a tie at a change of spatial size, then nearest to equal mass.
    """
    elements = _contiguous(tree.elements(call_id))
    if len(elements) <= budget:
        return [[element] for element in elements]
    mass = [max(1, sum(item.mass for item in items_of(element))) for element in elements]
    cuts = cut_positions(mass, _live_values(elements), _size_changes(elements), budget)
    return [elements[start:end] for start, end in pairwise([0, *cuts, len(elements)])]


def cut_positions(mass: list[int], live: list[int], changes: list[bool], budget: int) -> list[int]:
    """Return the positions before which to cut a sequence into at most ``budget`` runs.

    Args:
        mass: of each element.
        live: for each position, how many values are live across a cut before it.
        changes: for each position, whether the spatial size changes there.
        budget: the most runs.
    """
    before = list(accumulate(mass, initial=0))
    for wanted in range(budget, 0, -1):
        cuts = _cut(before, live, changes, before[-1] / wanted)
        if len(cuts) < budget:
            return cuts
    return []


def _cut(before: list[int], live: list[int], changes: list[bool], target: float) -> list[int]:
    cuts: list[int] = []
    start, size = 0, len(before) - 1
    while before[size] - before[start] > MOST_SHARE * target:
        best: tuple[int, bool, float, int] | None = None
        for end in range(start + 1, size):
            total = before[end] - before[start]
            # an element that is too heavy for any share stands alone
            is_heavy = end == start + 1 and before[end + 1] - before[start] > MOST_SHARE * target
            if total > MOST_SHARE * target and not is_heavy:
                break
            if total >= LEAST_SHARE * target or is_heavy:
                rank = (live[end], not changes[end], abs(total - target), end)
                best = rank if best is None or rank < best else best
        if best is None:
            return cuts
        start = best[3]
        cuts.append(start)
    return cuts


def _contiguous(elements: list[Element]) -> list[Element]:
    """Return elements in call order, with folds taken apart where other items lie between their members.

    As one element such a fold would be read by what it reads.
    """
    found: list[Element] = []
    for element in elements:
        items = list(items_of(element))
        numbers = [item.index for item in items]
        is_whole = max(numbers) - min(numbers) == len(numbers) - 1
        found.extend([element] if is_whole else items)
    return sorted(found, key=first_index)


def _live_values(elements: list[Element]) -> list[int]:
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
