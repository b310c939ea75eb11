"""Serial repeats among siblings: runs of equal periods, each reading the one before."""

from __future__ import annotations

from dataclasses import dataclass

from neural_flow.stages._elements import Element, FoldItem, commonest, items_of
from neural_flow.stages._scope import Item, Scope

MAX_PERIOD = 12
MAX_TRIES = 32


@dataclass(slots=True, frozen=True)
class _Candidate:
    start: int
    period: int
    count: int
    starts_light: bool

    @property
    def end(self) -> int:
        return self.start + self.period * self.count

    @property
    def saving(self) -> int:
        return self.period * (self.count - 1)


class SerialFolder:
    """Fold serial repeats of one scope.

    A repeat is near on purpose: the first block of a stage has a projection or another input width, and papers still
    write x3. Values that stay live across the run (encoder memory, skip sums) do not prevent it, as long as every
    later member reads the same ones.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._ids: dict[object, int] = {}

    def fold(self, elements: list[Element]) -> list[Element]:
        """Return the elements with all serial repeats folded, largest saving first, until none is left."""
        while len(elements) > 1:
            signatures = [self._signature(element) for element in elements]
            if len(set(signatures)) == len(signatures):
                break
            run = _Run(self._scope, elements, signatures)
            candidates = run.candidates()
            chosen = _choose(candidates)
            while unlike := [c for c in chosen if c.period > 1 and not self._is_alike_inside(elements, c)]:
                candidates = [c for c in candidates if c not in unlike]
                chosen = _choose(candidates)
            if not chosen:
                break
            elements = self._apply(run, elements, chosen)
        return elements

    def _apply(self, run: _Run, elements: list[Element], chosen: list[_Candidate]) -> list[Element]:
        folded: list[Element] = []
        position = 0
        for candidate in chosen:
            folded.extend(elements[position : candidate.start])
            members = _members(elements, candidate)
            is_dense = run.is_dense(candidate)
            if candidate.period > 1:
                members = [self.fold(member) for member in members]
            folded.append(FoldItem("serial", members, commonest(self._scope.net, members), is_dense))
            position = candidate.end
        folded.extend(elements[position:])
        return folded

    def _is_alike_inside(self, elements: list[Element], candidate: _Candidate) -> bool:
        """Return whether the members of a repeat fold alike: what leaves them elsewhere cuts an inner repeat."""
        folded = [self.fold(member) for member in _members(elements, candidate)]
        return len({tuple(self._signature(element) for element in member) for member in folded}) == 1

    def _signature(self, element: Element) -> int:
        return self._ids.setdefault(self._describe(element), len(self._ids))

    def _describe(self, element: Element) -> object:
        if isinstance(element, Item):
            return element.key, element.family, element.shapes, element.num_params if element.is_leaf_like else -1
        return element.kind, element.count, tuple(self._describe(inner) for inner in element.shown)


def _members(elements: list[Element], candidate: _Candidate) -> list[list[Element]]:
    starts = range(candidate.start, candidate.end, candidate.period)
    return [elements[start : start + candidate.period] for start in starts]


def _choose(candidates: list[_Candidate]) -> list[_Candidate]:
    """Return candidates that do not overlap, largest saving first, in order of place."""
    chosen: list[_Candidate] = []
    taken: set[int] = set()
    for candidate in sorted(candidates, key=lambda c: (-c.saving, c.starts_light, c.start, c.period)):
        if candidate.start in taken or candidate.end - 1 in taken:
            continue
        if any(candidate.start < other.start < candidate.end for other in chosen):
            continue
        chosen.append(candidate)
        taken.update(range(candidate.start, candidate.end))
    return sorted(chosen, key=lambda c: c.start)


class _Run:
    """One sequence of elements, wired by position."""

    def __init__(self, scope: Scope, elements: list[Element], signatures: list[int]) -> None:
        self._elements = elements
        self._signatures = signatures
        self._has_dataflow = scope.net.trace.has_dataflow
        position_of: dict[int, int] = {}
        for position, element in enumerate(elements):
            for item in items_of(element):
                position_of[item.index] = position
        self._position_of = position_of
        size = len(elements)
        # what lies outside the sequence gets a place below zero: it can be compared, and is never inside a run
        self._sources: list[set[int]] = [set() for _ in range(size)]
        self._reads: list[set[int]] = [set() for _ in range(size)]
        self._sinks: list[set[int]] = [set() for _ in range(size)]
        self._mass = [0] * size
        self._is_light = [False] * size
        self._is_leaf_like = [False] * size
        for position, element in enumerate(elements):
            items = list(items_of(element))
            self._mass[position] = sum(item.mass for item in items)
            self._is_light[position] = all(item.is_light for item in items)
            self._is_leaf_like[position] = isinstance(element, Item) and element.is_leaf_like
            for item in items:
                self._sources[position] |= {self._place(s) for s in item.sources}
                self._reads[position] |= {self._place(s) for s in (*item.sources, *item.rings)}
                self._sinks[position] |= {position_of.get(s, -2 - s) for s in item.sinks}
                self._sinks[position] |= {size + 1 + e for e in item.exits}
            self._sinks[position].discard(position)
            self._reads[position].discard(position)

    def candidates(self) -> list[_Candidate]:
        """Return all valid repeats, one or more for each stretch of equal periods."""
        signatures, size = self._signatures, len(self._signatures)
        found: list[_Candidate] = []
        for period in range(1, min(MAX_PERIOD, size // 2) + 1):
            start = 0
            while start + period < size:
                if signatures[start] != signatures[start + period]:
                    start += 1
                    continue
                end = start
                while end + period < size and signatures[end] == signatures[end + period]:
                    end += 1
                end += period
                most = (end - start) // period * period - period
                if most > 0 and not any(c.start <= start and end <= c.end and c.saving >= most for c in found):
                    for offset in range(min(period, end - start - 2 * period + 1)):
                        found.extend(self._grow(start + offset, period, end))
                start = end - period + 1
        return found

    def is_dense(self, candidate: _Candidate) -> bool:
        """Return whether a member reads an earlier one that is neither the first nor its predecessor.

        A join behind the last member may read all of them: then the run hands out every result, and is not dense.
        """
        last = candidate.count - 1
        is_joined = any(self._reads_back(candidate, member, self._reads, 0) for member in range(2, last))
        return any(
            self._reads_back(candidate, member, self._reads if member < last or is_joined else self._sources, 1)
            for member in range(3, candidate.count)
        )

    def _reads_back(self, candidate: _Candidate, member: int, reads: list[set[int]], first: int) -> bool:
        """Return whether a member reads one from number ``first`` on that is not its predecessor."""
        start, period = candidate.start, candidate.period
        return any(
            source >= start and first <= (source - start) // period < member - 1
            for position in self._positions(start, period, member)
            for source in reads[position]
        )

    def _place(self, source: int) -> int:
        # an op outside the call is negative already; a sibling outside this sequence keeps its own number far below
        return self._position_of.get(source, -(10**9) - source) if source >= 0 else source

    def _positions(self, start: int, period: int, member: int) -> range:
        return range(start + member * period, start + (member + 1) * period)

    def _grow(self, start: int, period: int, end: int) -> list[_Candidate]:
        found: list[_Candidate] = []
        pending = [(start, (end - start) // period)]
        tries = 0
        while pending and tries < MAX_TRIES:
            tries += 1
            first, limit = pending.pop()
            if limit < 2:
                continue
            count = self._num_chained(first, period, limit)
            if count < limit:
                pending.append((first + count * period, limit - count))
            if count < 2:
                continue
            broken = self._first_odd_sink(first, period, count)
            if broken is not None:
                pending.append((first + broken * period, count - broken))
                pending.append((first, broken))
            elif self._is_worth(first, period, count):
                found.append(_Candidate(first, period, count, self._is_light[first]))
        return found

    def _num_chained(self, start: int, period: int, limit: int) -> int:
        """Return how many members, from the first, are wired alike: among themselves, to the last and to outside."""
        first_outside = self._outside_reads(start, period, 0, start)
        common: set[int] | None = None
        near: list[set[int]] = []
        for member in range(1, limit):
            is_alike, near = self._is_wired_alike(start, period, member, near)
            if not is_alike:
                return member
            positions = self._positions(start, period, member)
            before = self._positions(start, period, member - 1)
            if not any(source in before for position in positions for source in self._sources[position]):
                return member
            if any(abs(self._mass[p] - self._mass[p - member * period]) > 1 for p in positions):
                return member
            outside = self._outside_reads(start, period, member, start)
            if common is None:
                if not outside <= first_outside:
                    return member
                common = outside
            elif outside != common:
                return member
        return limit

    def _is_wired_alike(
        self, start: int, period: int, member: int, before: list[set[int]]
    ) -> tuple[bool, list[set[int]]]:
        """Compare what a member reads of itself and of its predecessor with what the member before read.

        The second member may read more of the first, which the others read from afar (a bias made once).
        """
        near: list[set[int]] = []
        for position in self._positions(start, period, member):
            reads = {position - s for s in self._reads[position] if s >= start + (member - 1) * period}
            near.append(reads)
            own = position - member * period
            inside = {read for read in reads if read <= own - start}
            if inside != {own - s for s in self._reads[own] if s >= start}:
                return False, near
        if member == 1:
            return True, near
        pairs = zip(near, before, strict=True)
        return all(now <= then if member == 2 else now == then for now, then in pairs), near

    def _outside_reads(self, start: int, period: int, member: int, run_start: int) -> set[int]:
        return {s for p in self._positions(start, period, member) for s in self._reads[p] if s < run_start}

    def _first_odd_sink(self, start: int, period: int, count: int) -> int | None:
        """Return the member at which to cut where values leave the run in unequal ways; None where they do not."""
        end = start + count * period

        def outside(member: int) -> set[tuple[int, int]]:
            positions = self._positions(start, period, member)
            return {(p - positions.start, s) for p in positions for s in self._sinks[p] if s >= end or s < start}

        first, last = outside(0), outside(count - 1)
        if not first <= last:
            return 1
        for member in range(1, count - 1):
            if outside(member) != first:
                return member
        return None

    def _is_worth(self, start: int, period: int, count: int) -> bool:
        positions = range(start, start + count * period)
        if not self._has_dataflow:
            # a module called again may be a second tower as well as a second step: only wiring tells
            paths = [item.path for p in positions for item in items_of(self._elements[p])]
            if len(set(paths)) < len(paths):
                return False
        num_cards = sum(not self._is_light[p] for p in self._positions(start, period, 0))
        if num_cards == 0:
            return False
        return count >= (2 if num_cards > 1 or not all(self._is_leaf_like[p] for p in positions) else 3)
