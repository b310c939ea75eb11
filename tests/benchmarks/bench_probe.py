"""What an emit costs, with no collect open and collected: python tests/benchmarks/bench_probe.py."""

from __future__ import annotations

import timeit
from collections.abc import Callable

import torch

from neural_flow import Probe


def microseconds(function: Callable[[], object], number: int) -> float:
    """Return the least of seven means, in microseconds a call."""
    return min(timeit.repeat(function, number=number, repeat=7)) / number * 1e6


def main() -> None:
    """Print one row a case."""
    probe, value = Probe.make(), torch.ones(64)
    print(f"{'an empty call':32s} {microseconds(lambda: None, 200_000):8.2f} µs")
    print(f"{'emit, no collect open':32s} {microseconds(lambda: probe.emit(value), 200_000):8.2f} µs")
    rows: list[float] = []
    probe.collect(lambda: rows.append(microseconds(lambda: probe.emit(value), 2_000)))
    print(f"{'emit, collected':32s} {rows[0]:8.2f} µs")


if __name__ == "__main__":
    main()
