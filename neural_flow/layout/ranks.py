"""Layers: which place along the flow each node takes.

Runs of nodes with one way in and one way out are contracted first, so the cost follows the branches of a net and not
its depth. Small graphs get the network simplex (its start, longest path made tight, is already optimal for most
nets); large ones alternating sweeps. Every state in between is a valid layering, so a cap is safe.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from neural_flow.layout.graph import FlowGraph

PRIMARY_WEIGHT = 4
MAX_PIVOTS = 300
MAX_SIMPLEX_NODES = 1000
MAX_SWEEPS = 24


@dataclass(slots=True)
class _Span:
    """A contracted run: ``nodes`` lie between tail and head; slack goes before the node at ``soft``."""

    tail: int
    head: int
    min_length: int
    weight: int
    nodes: list[int]
    soft: int


def assign_ranks(graph: FlowGraph, groups: Sequence[Collection[int]] = ()) -> list[int]:
    """Return the layer of each node, from 0.

    Groups that the trunk runs through have their layers to themselves, as far as the trunk goes: a box round them
    would hold what else of it stood there.
    """
    spans, corners = _contract(graph, _bounds(graph, groups))
    if not corners:
        return []
    place = {node: index for index, node in enumerate(corners)}
    ranks = [0] * len(corners)
    for members in _connected(len(corners), [(place[span.tail], place[span.head]) for span in spans]):
        inside = set(members)
        at = {corner: index for index, corner in enumerate(members)}
        part = [span for span in spans if place[span.tail] in inside]
        for corner, rank in zip(members, _rank_part(part, place, at), strict=True):
            ranks[corner] = rank
    return _expand(graph, spans, corners, ranks)


def _rank_part(spans: list[_Span], place: dict[int, int], at: dict[int, int]) -> list[int]:
    tails = [at[place[span.tail]] for span in spans]
    heads = [at[place[span.head]] for span in spans]
    lengths = [span.min_length for span in spans]
    weights = [span.weight for span in spans]
    ranks = _longest_path(len(at), tails, heads, lengths)
    if len(at) <= MAX_SIMPLEX_NODES:
        ranks = _Simplex(tails, heads, lengths, weights, ranks).run()
    else:
        ranks = _sweep(tails, heads, lengths, weights, ranks)
    lowest = min(ranks)
    return [rank - lowest for rank in ranks]


def _connected(num_nodes: int, links: list[tuple[int, int]]) -> list[list[int]]:
    """Return the connected parts. What only return arrows connect falls apart here; each part starts at layer 0."""
    neighbours: list[list[int]] = [[] for _ in range(num_nodes)]
    for tail, head in links:
        neighbours[tail].append(head)
        neighbours[head].append(tail)
    seen = [False] * num_nodes
    parts: list[list[int]] = []
    for start in range(num_nodes):
        if seen[start]:
            continue
        seen[start] = True
        part = [start]
        for node in part:
            for other in neighbours[node]:
                if not seen[other]:
                    seen[other] = True
                    part.append(other)
        parts.append(sorted(part))
    return parts


def _bounds(graph: FlowGraph, groups: Sequence[Collection[int]]) -> list[tuple[int, int]]:
    """Return pairs of nodes of which the first stands before the second, whether or not a line goes from it."""
    trunk = graph.trunk
    on_trunk = frozenset(trunk)
    pairs: set[tuple[int, int]] = set()
    for members in groups:
        at = [index for index, node in enumerate(trunk) if node in members]
        if not at or len(at) == len(members) or len(at) <= at[-1] - at[0]:
            continue
        before = trunk[at[0] - 1] if at[0] else -1
        after = trunk[at[-1] + 1] if at[-1] + 1 < len(trunk) else -1
        for node in members:
            if node in on_trunk:
                continue
            if 0 <= before < node and not any(graph.source[edge] in members for edge in graph.incoming[node]):
                pairs.add((before, node))
            if node < after and not any(graph.target[edge] in members for edge in graph.outgoing[node]):
                pairs.add((node, after))
    return sorted(pairs)


def _contract(graph: FlowGraph, bounds: Sequence[tuple[int, int]]) -> tuple[list[_Span], list[int]]:
    """Return spans between corner nodes, and the corner nodes in execution order."""
    inner = [len(graph.incoming[node]) == 1 and len(graph.outgoing[node]) == 1 for node in range(graph.num_nodes)]
    following_bound: dict[int, list[int]] = {}
    for first, second in bounds:
        following_bound.setdefault(first, []).append(second)
        inner[first] = inner[second] = False
    corners = [node for node in range(graph.num_nodes) if not inner[node]]
    spans: list[_Span] = []
    for corner in corners:
        for edge in graph.outgoing[corner]:
            nodes: list[int] = []
            weights = [_edge_weight(graph, edge)]
            node = graph.target[edge]
            while inner[node]:
                nodes.append(node)
                following = graph.outgoing[node][0]
                weights.append(_edge_weight(graph, following))
                node = graph.target[following]
            weight = min(weights)
            soft = len(weights) - 1 - weights[::-1].index(weight)
            spans.append(_Span(corner, node, len(nodes) + 1, weight, nodes, soft))
        spans += [_Span(corner, node, 1, 0, [], 0) for node in following_bound.get(corner, ())]
    return spans, corners


def _edge_weight(graph: FlowGraph, edge: int) -> int:
    return PRIMARY_WEIGHT if graph.primary[graph.target[edge]] == edge else 1


def _longest_path(num_nodes: int, tails: list[int], heads: list[int], lengths: list[int]) -> list[int]:
    """Return the lowest valid ranks. Nodes are in execution order, so one pass over spans by tail suffices."""
    ranks = [0] * num_nodes
    for tail, head, length in zip(tails, heads, lengths, strict=True):
        ranks[head] = max(ranks[head], ranks[tail] + length)
    return ranks


def _expand(graph: FlowGraph, spans: list[_Span], corners: list[int], ranks: list[int]) -> list[int]:
    layers = [0] * graph.num_nodes
    for corner, rank in zip(corners, ranks, strict=True):
        layers[corner] = rank
    for span in spans:
        slack = layers[span.head] - layers[span.tail] - span.min_length
        for index, node in enumerate(span.nodes):
            layers[node] = layers[span.tail] + index + 1 + (slack if index >= span.soft else 0)
    return layers


def _sweep(tails: list[int], heads: list[int], lengths: list[int], weights: list[int], ranks: list[int]) -> list[int]:
    """Move nodes towards their heavier side, forwards and backwards in turn, until nothing moves."""
    num_nodes = len(ranks)
    ins: list[list[int]] = [[] for _ in range(num_nodes)]
    outs: list[list[int]] = [[] for _ in range(num_nodes)]
    for span, (tail, head) in enumerate(zip(tails, heads, strict=True)):
        outs[tail].append(span)
        ins[head].append(span)
    pull = [
        sum(weights[span] for span in outs[node]) - sum(weights[span] for span in ins[node])
        for node in range(num_nodes)
    ]
    for sweep in range(MAX_SWEEPS):
        has_moved = False
        nodes = range(num_nodes - 1, -1, -1) if sweep % 2 == 0 else range(num_nodes)
        for node in nodes:
            if pull[node] > 0:
                limit = min(ranks[heads[span]] - lengths[span] for span in outs[node])
            elif pull[node] < 0:
                limit = max(ranks[tails[span]] + lengths[span] for span in ins[node])
            else:
                continue
            if limit != ranks[node]:
                ranks[node] = limit
                has_moved = True
        if not has_moved:
            break
    return ranks


class _Simplex:
    """Network simplex after Gansner et al. (1993): pivots between tight spanning trees, least weighted length."""

    def __init__(
        self, tails: list[int], heads: list[int], lengths: list[int], weights: list[int], ranks: list[int]
    ) -> None:
        self.tails, self.heads, self.lengths, self.weights = tails, heads, lengths, weights
        self.ranks = ranks
        self.at: list[list[int]] = [[] for _ in ranks]
        for span, (tail, head) in enumerate(zip(tails, heads, strict=True)):
            self.at[tail].append(span)
            self.at[head].append(span)
        self.in_tree = [False] * len(tails)

    def run(self) -> list[int]:
        """Return the best ranks found within the pivot cap."""
        if len(self.ranks) < 2:
            return self.ranks
        self._grow_tight_tree()
        for _ in range(MAX_PIVOTS):
            if not self._pivot():
                break
        return self.ranks

    def _slack(self, span: int) -> int:
        return self.ranks[self.heads[span]] - self.ranks[self.tails[span]] - self.lengths[span]

    def _grow_tight_tree(self) -> None:
        inside = [False] * len(self.ranks)
        inside[0] = True
        members = [0]
        frontier = [0]
        while True:
            while frontier:
                node = frontier.pop()
                for span in self.at[node]:
                    other = self.heads[span] if self.tails[span] == node else self.tails[span]
                    if not inside[other] and self._slack(span) == 0:
                        self.in_tree[span] = True
                        inside[other] = True
                        members.append(other)
                        frontier.append(other)
            if len(members) == len(self.ranks):
                return
            border = [s for s in range(len(self.tails)) if inside[self.tails[s]] != inside[self.heads[s]]]
            nearest = min(border, key=lambda span: (self._slack(span), span))
            shift = self._slack(nearest) if inside[self.tails[nearest]] else -self._slack(nearest)
            for node in members:
                self.ranks[node] += shift
            frontier = [self.tails[nearest] if inside[self.tails[nearest]] else self.heads[nearest]]

    def _walk_tree(self) -> tuple[list[int], list[int], list[int], list[int]]:
        """Return a preorder, the tree edge to each parent, and the preorder interval of each subtree."""
        num_nodes = len(self.ranks)
        parent_edge = [-1] * num_nodes
        first, last = [0] * num_nodes, [0] * num_nodes
        preorder: list[int] = []
        seen = [False] * num_nodes
        seen[0] = True
        stack = [0]
        while stack:
            node = stack.pop()
            first[node] = len(preorder)
            preorder.append(node)
            for span in self.at[node]:
                if self.in_tree[span]:
                    other = self.heads[span] if self.tails[span] == node else self.tails[span]
                    if not seen[other]:
                        seen[other] = True
                        parent_edge[other] = span
                        stack.append(other)
        sizes = [1] * num_nodes
        for node in reversed(preorder):
            if parent_edge[node] >= 0:
                span = parent_edge[node]
                sizes[self.tails[span] if self.heads[span] == node else self.heads[span]] += sizes[node]
        for node in range(num_nodes):
            last[node] = first[node] + sizes[node]
        return preorder, parent_edge, first, last

    def _pivot(self) -> bool:
        """Swap one tree edge of negative cut value for the tightest span that crosses its cut the other way."""
        preorder, parent_edge, first, last = self._walk_tree()
        # The cut value of a tree edge is the weight that leaves its lower subtree minus the weight that enters it,
        # signed by the direction of the edge; summed bottom-up from each node's own balance.
        balance = [0] * len(self.ranks)
        for tail, head, weight in zip(self.tails, self.heads, self.weights, strict=True):
            balance[tail] += weight
            balance[head] -= weight
        worst, leaving = 0, -1
        for node in reversed(preorder):
            span = parent_edge[node]
            if span < 0:
                continue
            is_tail = self.tails[span] == node
            cut = balance[node] if is_tail else -balance[node]
            balance[self.heads[span] if is_tail else self.tails[span]] += balance[node]
            if cut < worst or (cut == worst and cut < 0 and span < leaving):
                worst, leaving = cut, span
        if leaving < 0:
            return False
        below = self.tails[leaving] if parent_edge[self.tails[leaving]] == leaving else self.heads[leaving]
        low, high = first[below], last[below]
        tail_is_below = below == self.tails[leaving]
        entering, least = -1, 0
        for span, (tail, head) in enumerate(zip(self.tails, self.heads, strict=True)):
            tail_in, head_in = low <= first[tail] < high, low <= first[head] < high
            if tail_in != head_in and tail_in != tail_is_below:
                slack = self._slack(span)
                if entering < 0 or slack < least:
                    entering, least = span, slack
        if entering < 0:
            return False
        shift = least if tail_is_below else -least
        # Moving the component that holds the head of the leaving edge away lengthens it by the entering slack.
        for node in preorder[low:high]:
            self.ranks[node] -= shift
        self.in_tree[leaving] = False
        self.in_tree[entering] = True
        return True
