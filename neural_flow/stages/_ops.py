"""Every op as a stage, repeats folded where members are wired alike op by op."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from neural_flow.stages._assemble import CardNode, FoldNode, Node
from neural_flow.stages._fold_labels import FoldName
from neural_flow.stages._net import Net

MIN_PERIOD = 2
MIN_COUNT = 3
MAX_PERIODS = 48
MAX_OFFSETS = 6


def op_nodes(net: Net, *, kept: frozenset[int], hidden: frozenset[int], has_folds: bool) -> list[Node]:
    """Return one card for each op.

    Args:
        net: the calls and ops.
        kept: calls that are one card instead of the ops in them (where the model raised).
        hidden: calls whose ops are no cards.
        has_folds: whether repeats fold.
    """
    covered = [False] * (len(net.trace.ops) + 1)
    cards: list[CardNode] = []
    for call_id in kept | hidden:
        call = net.calls[call_id]
        covered[call.first_op_id : call.end_op_id] = [True] * (call.end_op_id - call.first_op_id)
        if call_id in kept:
            cards.append(CardNode(call_id, -1, call.first_op_id, calls=[call_id]))
    for op in net.trace.ops:
        # a module that hands on what it is given is no op; a further piece of what was taken apart is one
        is_op = op.role in ("op", "opaque") or (op.role == "alias" and op.target != "alias")
        if is_op and not covered[op.op_id]:
            cards.append(CardNode(-1, op.op_id, op.op_id, ops=[op.op_id]))
    cards.sort(key=lambda card: card.order)
    if not has_folds:
        return list[Node](cards)
    return _OpFolder(net, cards).fold(0, len(cards))


@dataclass(slots=True, frozen=True)
class _Repeat:
    start: int
    period: int
    count: int
    num_live: int

    @property
    def end(self) -> int:
        return self.start + self.period * self.count

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """Largest saving first, then fewest live values at the seams, then earliest."""
        return -self.period * (self.count - 1), self.num_live, self.start, self.period


class _OpFolder:
    """Find tandem repeats of ops: equal op by op, each reading the same place of its own or the last repeat."""

    def __init__(self, net: Net, cards: list[CardNode]) -> None:
        self._net = net
        self._cards = cards
        place = {card.op_id: k for k, card in enumerate(cards) if card.op_id >= 0}
        ids: dict[object, int] = {}
        self._kind: list[int] = []
        self._parents: list[tuple[int, ...]] = []
        self._last: list[int] = list(range(len(cards)))
        for k, card in enumerate(cards):
            self._kind.append(ids.setdefault(self._describe(card), len(ids)))
            parents: tuple[int, ...] = ()
            if card.op_id >= 0:
                # what is no card (an input) keeps a place of its own below zero
                parents = tuple(place.get(p, -1 - p) for p in self._read_by(card.op_id))
            self._parents.append(parents)
            for parent in parents:
                if parent >= 0:
                    self._last[parent] = k

    def fold(self, start: int, end: int) -> list[Node]:
        """Return the nodes of a stretch of cards."""
        nodes: list[Node] = []
        pending = [(start, end)]
        while pending:
            first, last = pending.pop()
            best = self._best(first, last)
            if best is None:
                nodes.extend(self._cards[first:last])
                continue
            pending.append((best.end, last))
            starts = range(best.start, best.end, best.period)
            members: list[list[Node]] = [self.fold(at, at + best.period) for at in starts]
            nodes.extend(self.fold(first, best.start) if best.start > first else [])
            nodes.append(FoldNode("serial", members, name=self._name(best)))
        return nodes

    def _read_by(self, op_id: int) -> list[int]:
        """Return the ops an op reads, seen through modules that hand their input on unchanged."""
        found: list[int] = []
        for parent, _ in self._net.trace.ops[op_id].parents:
            while self._net.trace.ops[parent].role == "alias" and len(self._net.trace.ops[parent].parents) == 1:
                parent = self._net.trace.ops[parent].parents[0][0]
            found.append(parent)
        return found

    def _describe(self, card: CardNode) -> object:
        if card.op_id < 0:
            return "call", card.call_id
        op, params = self._net.trace.ops[card.op_id], self._net.trace.params
        shapes = tuple(params[p].shape for p in op.params)
        return op.target, shapes, tuple((m.shape, m.dtype) for m in op.outputs), len(op.parents)

    def _best(self, first: int, last: int) -> _Repeat | None:
        best: _Repeat | None = None
        for period in self._periods(first, last):
            if best is not None and last - first - period <= best.period * (best.count - 1):
                continue
            at = first
            while at + period < last:
                if self._kind[at] != self._kind[at + period]:
                    at += 1
                    continue
                stop = at
                while stop + period < last and self._kind[stop] == self._kind[stop + period]:
                    stop += 1
                found = self._align(at, stop + period, period)
                if found is not None and (best is None or found.rank < best.rank):
                    best = found
                at = stop + 1
        return best

    def _periods(self, first: int, last: int) -> list[int]:
        """Return the distances at which ops of one kind most often come again."""
        seen: dict[int, int] = {}
        distances: Counter[int] = Counter()
        for k in range(first, last):
            kind = self._kind[k]
            if kind in seen:
                distances[k - seen[kind]] += 1
            seen[kind] = k
        most = (last - first) // MIN_COUNT
        # twice and three times a distance: an op may come twice in each repeat
        votes: Counter[int] = Counter()
        for distance, count in distances.items():
            for times in (1, 2, 3):
                votes[distance * times] += count
        known = [p for p in votes if MIN_PERIOD <= p <= most]
        return sorted(known, key=lambda p: (-votes[p], p))[:MAX_PERIODS]

    def _align(self, at: int, stop: int, period: int) -> _Repeat | None:
        """Return the longest repeat inside a stretch of equal kinds, cut where the fewest values are live."""
        if stop - at < MIN_COUNT * period:
            return None
        offsets = range(min(period, stop - at - MIN_COUNT * period + 1))
        live = {offset: self._num_live(at + offset + period, at + offset) for offset in offsets}
        best: _Repeat | None = None
        for offset in sorted(offsets, key=lambda o: (live[o], o))[:MAX_OFFSETS]:
            start = at + offset
            count = self._num_alike(start, (stop - start) // period, period)
            if count >= MIN_COUNT:
                found = _Repeat(start, period, count, live[offset])
                best = found if best is None or found.rank < best.rank else best
        return best

    def _num_live(self, seam: int, start: int) -> int:
        """Return how many values made since ``start`` are still read behind ``seam``."""
        return sum(self._last[k] >= seam for k in range(start, seam))

    def _num_alike(self, start: int, limit: int, period: int) -> int:
        """Return how many repeats, from the first, are wired alike."""
        for member in range(1, limit):
            for k in range(start + member * period, start + (member + 1) * period):
                for now, then in zip(self._parents[k], self._parents[k - period], strict=True):
                    is_entry = member == 1 and then < start
                    if now - then != period and now != then and not is_entry:
                        return member
        return limit

    def _name(self, repeat: _Repeat) -> FoldName:
        """Return the list of modules that the repeats are, else the first and last op."""
        paths: list[list[str]] = []
        for at in range(repeat.start, repeat.end, repeat.period):
            heads = [self._path(card).split(".") for card in self._cards[at : at + repeat.period]]
            common = heads[0]
            for head in heads[1:]:
                size = next((k for k, (a, b) in enumerate(zip(common, head, strict=False)) if a != b), None)
                common = common[: min(len(common), len(head)) if size is None else size]
            paths.append(common)
        first, last = self._cards[repeat.start], self._cards[repeat.start + repeat.period - 1]
        ends = (f"{self._net.signals.name(first.op_id)} … {self._net.signals.name(last.op_id)}",)
        is_list = len({tuple(path[:-1]) for path in paths}) == 1 and all(path and path[-1].isdigit() for path in paths)
        if not is_list or len({path[-1] for path in paths}) < len(paths):
            return FoldName(others=ends)
        return FoldName(".".join(paths[0][:-1]), "repeat", ends)

    def _path(self, card: CardNode) -> str:
        call_id = self._net.trace.ops[card.op_id].call_id if card.op_id >= 0 else card.call_id
        return self._net.calls[call_id].path if call_id is not None else ""
