"""Order within layers: few crossings, the trunk in the middle of its siblings, frames in one piece."""

from __future__ import annotations

from bisect import bisect_right, insort

import numpy as np

from neural_flow.layout.grid import Grid

MAX_SWEEPS = 24
MAX_STALE_SWEEPS = 6
MAX_SIFT_ROUNDS = 6
MIN_SIFT_GAIN = 0.002


def order_layers(grid: Grid, *, lanes_after: bool) -> None:
    """Order every layer of ``grid`` in place.

    Args:
        grid: elements and their links.
        lanes_after: on which side of the trunk a single sibling goes: after it, or before it.
    """
    _start_order(grid, lanes_after=lanes_after)
    _keep_frames_whole(grid)
    crossings = count_crossings(grid)
    if not crossings:
        return
    best = [list(row) for row in grid.rows]
    least, stale = crossings, 0
    for sweep in range(MAX_SWEEPS):
        _sweep(grid, is_down=sweep % 2 == 0, has_reversed_ties=sweep % 4 >= 2)
        crossings = count_crossings(grid)
        if crossings < least:
            least, stale = crossings, 0
            best = [list(row) for row in grid.rows]
        else:
            stale += 1
        if not least or stale >= MAX_STALE_SWEEPS:
            break
    grid.rows[:] = best
    if least:
        _sift(grid, least)


def count_crossings(grid: Grid) -> int:
    """Return how many pairs of links cross."""
    place = _places(grid)
    return sum(_count_between(grid, layer, place) for layer in range(grid.num_layers - 1))


def _places(grid: Grid) -> list[int]:
    place = [0] * len(grid.layer)
    for row in grid.rows:
        for index, element in enumerate(row):
            place[element] = index
    return place


def _count_between(grid: Grid, layer: int, place: list[int]) -> int:
    row = grid.rows[layer]
    if len(row) < 2 or len(grid.rows[layer + 1]) < 2:
        return 0
    seen: list[int] = []
    crossings = 0
    for element in row:
        lower = sorted(place[other] for other in grid.downs[element])
        for index in lower:
            crossings += len(seen) - bisect_right(seen, index)
        for index in lower:
            insort(seen, index)
    return crossings


def _start_order(grid: Grid, *, lanes_after: bool) -> None:
    """Fill layers depth first, the trunk child visited in the middle of its siblings.

    A line that is passed by others deeper in the net ends up outside them, so nested skips nest.
    """
    num_elements = len(grid.layer)
    filled: list[list[int]] = [[] for _ in grid.rows]
    seen = [False] * num_elements
    roots = [element for element in range(num_elements) if not grid.ups[element]]
    for root in _arrange_roots(grid, roots):
        stack = [root]
        while stack:
            element = stack.pop()
            if seen[element]:
                continue
            seen[element] = True
            filled[grid.layer[element]].append(element)
            children = [child for child in grid.downs[element] if not seen[child]]
            stack.extend(reversed(_trunk_in_the_middle(grid, children, lanes_after=lanes_after)))
    grid.rows[:] = filled


def _arrange_roots(grid: Grid, roots: list[int]) -> list[int]:
    """Return inputs in execution order, but with the trunk's moved towards the middle where there are several.

    So the first of two stacks stands first, and the main one of three towers between the others.
    """
    trunk = next((index for index, root in enumerate(roots) if grid.is_trunk[root]), None)
    if trunk is None:
        return roots
    before, after = roots[:trunk], roots[trunk + 1 :]
    while len(after) > len(before) + 1:
        before.append(after.pop(0))
    while len(before) > len(after) + 1:
        after.insert(0, before.pop())
    return [*before, roots[trunk], *after]


def _trunk_in_the_middle(grid: Grid, elements: list[int], *, lanes_after: bool) -> list[int]:
    trunk = [element for element in elements if grid.is_trunk[element]]
    rest = [element for element in elements if not grid.is_trunk[element]]
    # Without a trunk child, the node child goes on straight and the lane passes it by.
    if not trunk and rest:
        trunk = [min(rest, key=lambda element: (not grid.is_node(element), element))]
        rest.remove(trunk[0])
    # A single sibling takes the side of the lanes; of several, the odd one takes the other, to balance them.
    half = (len(rest) + 1) // 2 if lanes_after == (len(rest) > 1) else len(rest) // 2
    return rest[:half] + trunk + rest[half:]


def _sweep(grid: Grid, *, is_down: bool, has_reversed_ties: bool) -> None:
    place = _places(grid)
    links = grid.ups if is_down else grid.downs
    layers = range(1, grid.num_layers) if is_down else range(grid.num_layers - 2, -1, -1)
    for layer in layers:
        row = grid.rows[layer]
        if len(row) < 2:
            continue
        keys: dict[int, tuple[float, int]] = {}
        for index, element in enumerate(row):
            others = links[element]
            tie = -index if has_reversed_ties else index
            if len(others) == 1:
                keys[element] = (place[others[0]], tie)
            elif others:
                keys[element] = (sum([place[other] for other in others]) / len(others), tie)
            else:
                keys[element] = (index, tie)
        row.sort(key=keys.__getitem__)
        if any(grid.frames[element] for element in row):
            values = {element: key[0] for element, key in keys.items()}
            row[:] = _gather(row, 0, grid.frames, values)
        for index, element in enumerate(row):
            place[element] = index


def _keep_frames_whole(grid: Grid) -> None:
    for row in grid.rows:
        if len(row) > 1 and any(grid.frames[element] for element in row):
            values = {element: float(index) for index, element in enumerate(row)}
            row[:] = _gather(row, 0, grid.frames, values)


def _gather(elements: list[int], depth: int, frames: list[tuple[int, ...]], values: dict[int, float]) -> list[int]:
    """Return ``elements`` with the members of each frame side by side, by the mean value of each group."""
    groups: dict[tuple[int, int], list[int]] = {}
    for element in elements:
        path = frames[element]
        key = (1, path[depth]) if len(path) > depth else (0, element)
        groups.setdefault(key, []).append(element)
    means = {key: sum(values[element] for element in group) / len(group) for key, group in groups.items()}
    result: list[int] = []
    for key in sorted(groups, key=means.__getitem__):
        group = groups[key]
        result.extend(_gather(group, depth + 1, frames, values) if key[0] and len(group) > 1 else group)
    return result


def _sift(grid: Grid, crossings: int) -> None:
    """Move single elements to the best place of their layer, by matrices of pairwise crossing counts."""
    for round_ in range(MAX_SIFT_ROUNDS):
        place = _places(grid)
        layers = range(grid.num_layers) if round_ % 2 == 0 else range(grid.num_layers - 1, -1, -1)
        for layer in layers:
            row = grid.rows[layer]
            if len(row) < 2 or any(grid.frames[element] for element in row):
                continue
            _sift_row(grid, layer, place)
            for index, element in enumerate(grid.rows[layer]):
                place[element] = index
        improved = count_crossings(grid)
        if improved > crossings * (1 - MIN_SIFT_GAIN):
            break
        crossings = improved


def _sift_row(grid: Grid, layer: int, place: list[int]) -> None:
    row = grid.rows[layer]
    counts = np.zeros((len(row), len(row)))
    for links, other in ((grid.ups, layer - 1), (grid.downs, layer + 1)):
        if 0 <= other < grid.num_layers:
            adjacency = np.zeros((len(row), len(grid.rows[other])))
            for index, element in enumerate(row):
                for neighbour in links[element]:
                    adjacency[index, place[neighbour]] += 1
            earlier = np.cumsum(adjacency, axis=1) - adjacency
            # Without BLAS threads: small products stay faster and the result does not depend on their number.
            counts += np.einsum("ik,jk->ij", adjacency, earlier) if len(row) < 64 else adjacency @ earlier.T
    # gain[a, b] > 0: a should stand after b.
    gain = counts - counts.T
    order = list(range(len(row)))
    for element in range(len(row)):
        at = order.index(element)
        order.pop(at)
        steps = np.concatenate(([0.0], np.cumsum(-gain[element, order])))
        best = int(np.argmin(steps))
        if steps[best] < steps[at] - 0.5:
            at = best
        order.insert(at, element)
    grid.rows[layer] = [row[index] for index in order]
