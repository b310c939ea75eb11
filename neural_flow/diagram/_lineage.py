"""Kinds of arrows: the trunk, what skips along it, what merges into it, what branches off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Link = tuple[int, int, bool, int]
"""(source, target, plumbing, elements that it carries); nodes are numbered in topological order."""

ArrowKind = Literal["primary", "skip", "merge", "branch", "return"]


def arrow_kinds(is_card: Sequence[bool], links: Sequence[Link]) -> list[ArrowKind]:
    """Return the kind of each link.

    Primary is the link from the predecessor with most cards among its ancestors; of several as deep, from the one that
    fewest read (what many read is a condition), then the one that carries most, then the earliest. A link from an
    ancestor of that predecessor is a skip, any other one a merge. A primary link that never leads to the trunk is a
    branch where its source feeds several nodes whose ways never meet again.
    """
    num = len(is_card)
    into: list[list[int]] = [[] for _ in range(num)]
    out: list[list[int]] = [[] for _ in range(num)]
    for index, (source, target, *_) in enumerate(links):
        into[target].append(index)
        out[source].append(index)
    preferences = [(-len(out[source]), num_elements, -source) for source, _, _, num_elements in links]
    cards = sum(1 << node for node in range(num) if is_card[node])
    above = [0] * num
    kinds: list[ArrowKind] = ["primary"] * len(links)
    primary_source = [-1] * num
    for node in range(num):
        above[node] = 1 << node
        for index in into[node]:
            above[node] |= above[links[index][0]]
        if into[node]:
            _classify(into[node], links, preferences, above, cards, kinds)
            primary_source[node] = next(links[index][0] for index in into[node] if kinds[index] == "primary")
    on_trunk = _trunk(above, cards, primary_source)
    below = [1 << node for node in range(num)]
    for node in range(num - 1, -1, -1):
        for index in out[node]:
            below[node] |= below[links[index][1]]
    trunk = sum(1 << node for node in on_trunk)
    for index, (source, target, *_) in enumerate(links):
        if kinds[index] == "primary" and not below[target] & trunk and len(out[source]) > 1:
            others = 0
            for other in out[source]:
                if other != index:
                    others |= below[links[other][1]]
            if not others & below[target]:
                kinds[index] = "branch"
    return kinds


def _classify(
    indices: Sequence[int],
    links: Sequence[Link],
    preferences: Sequence[tuple[int, int, int]],
    above: Sequence[int],
    cards: int,
    kinds: list[ArrowKind],
) -> None:
    def importance(index: int) -> tuple[bool, int, tuple[int, int, int]]:
        source, _, is_plumbing, _ = links[index]
        return not is_plumbing, (above[source] & cards).bit_count(), preferences[index]

    primary = max(indices, key=importance)
    trunk = above[links[primary][0]]
    for index in indices:
        if index != primary:
            kinds[index] = "skip" if trunk >> links[index][0] & 1 else "merge"


def _trunk(above: Sequence[int], cards: int, primary_source: Sequence[int]) -> set[int]:
    """Return the primary way back from the node with most ancestors."""
    if not above:
        return set()
    node = max(range(len(above)), key=lambda place: ((above[place] & cards).bit_count(), -place))
    trunk: set[int] = set()
    while node >= 0:
        trunk.add(node)
        node = primary_source[node]
    return trunk
