"""One half of a drawing: least distances from the trunk outwards, solved by the longest path, then drawn in."""

from __future__ import annotations

from dataclasses import dataclass, field

Key = tuple[str, int]
"""``element``, ``near`` or ``far`` (the borders of a frame), and its number."""


@dataclass(slots=True)
class Half:
    """The constraints of one side of the trunk: each variable with what it must keep from nearer ones."""

    start: dict[Key, float] = field(default_factory=dict[Key, float])
    after: dict[Key, list[tuple[Key, float]]] = field(default_factory=dict[Key, list[tuple[Key, float]]])
    missing: dict[Key, int] = field(default_factory=dict[Key, int])
    wishes: dict[Key, list[float]] = field(default_factory=dict[Key, list[float]])
    links: dict[Key, list[tuple[Key | None, float, float]]] = field(
        default_factory=dict[Key, list[tuple[Key | None, float, float]]]
    )
    order: list[Key] = field(default_factory=list[Key])
    """The variables from the trunk outwards, once solved."""

    def add(self, key: Key, start: float) -> None:
        """Add a variable that lies no nearer than ``start``."""
        if key not in self.start:
            self.start[key], self.after[key], self.missing[key] = start, [], 0
        self.start[key] = max(self.start[key], start)

    def wish(self, key: Key, place: float) -> None:
        """Note where one member of a variable stood; it starts at the median of its members."""
        self.add(key, float("-inf"))
        self.wishes.setdefault(key, []).append(place)

    def keep(self, near: Key, far: Key, distance: float) -> None:
        """Keep ``far`` at least ``distance`` outside ``near``."""
        if near != far:
            self.after[near].append((far, distance))
            self.missing[far] += 1

    def solve(self) -> dict[Key, float] | None:
        """Return the nearest places that keep all distances, or None where they contradict each other."""
        values, missing = dict(self.start), dict(self.missing)
        for key, places in self.wishes.items():
            values[key] = max(values[key], sorted(places)[len(places) // 2])
        ready = [key for key in values if not missing[key]]
        for key in ready:
            for other, distance in self.after[key]:
                values[other] = max(values[other], values[key] + distance)
                missing[other] -= 1
                if not missing[other]:
                    ready.append(other)
        self.order = ready
        return values if len(ready) == len(values) else None

    def link(self, key: Key, other: Key | None, offset: float, weight: float) -> None:
        """Note that ``key`` wants to be at ``offset`` from ``other``, or at ``offset`` itself."""
        self.links.setdefault(key, []).append((other, offset, weight))

    def draw_in(self, values: dict[Key, float]) -> None:
        """Take the slack out of a solution: towards the trunk as links wish, then out again to what lies outside.

        Both ways every distance is kept.
        """
        before: dict[Key, list[tuple[Key, float]]] = {key: [] for key in self.order}
        for key in self.order:
            for other, distance in self.after[key]:
                before[other].append((key, distance))
        placed: set[Key] = set()
        for key in self.order:
            low = max([self.start[key], *(values[near] + distance for near, distance in before[key])])
            wish = self._wish(key, values, placed)
            if key not in self.wishes:
                values[key] = low
            elif low > float("-inf"):
                values[key] = max(low, min(values[key], wish))
            placed.add(key)
        for key in reversed(self.order):
            high = min((values[far] - distance for far, distance in self.after[key]), default=float("inf"))
            if key not in self.wishes:
                values[key] = high if high < float("inf") and self.start[key] < 0 else values[key]
                continue
            wish = self._wish(key, values, placed)
            if wish > values[key]:
                values[key] = min(high, wish)

    def _wish(self, key: Key, values: dict[Key, float], placed: set[Key]) -> float:
        """Return the weighted median of the places that links to placed variables ask for."""
        wishes = sorted(
            (offset if other is None else values[other] + offset, weight)
            for other, offset, weight in self.links.get(key, ())
            if other is None or other in placed
        )
        half = sum(weight for _, weight in wishes) / 2
        passed = 0.0
        for place, weight in wishes:
            passed += weight
            if passed >= half:
                return place
        return float("-inf")
