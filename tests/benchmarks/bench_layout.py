"""Processor time of the layout; run as a script: python tests/benchmarks/bench_layout.py.

Rows: the stored stage graphs, as a ratio to what dot took for each, scaled by a calibration loop to the speed of the
machine on which dot was timed; chains of blocks of 50, 500 and 5000 stages; and the growth of time with size.
"""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

from neural_flow.drawing import Arrow, Diagram, DiagramNode, LayoutOptions, NodeSize, Sizes
from neural_flow.layout.choose import lay_out

GRAPHS = Path(__file__).parent.parent / "layout" / "layout_graphs.json.gz"
CALIBRATION_SECONDS = 0.080
"""What ``calibrate`` took on a quiet core of the machine that timed dot."""
TARGETS = {"densenet121": 0.2, "nas200": 1.5, "chain3000": 0.5, "rand10k": 0.06}
SPARSE_TARGET = 1.2
SIZE_TARGETS = {50: 0.010, 500: 0.080, 5000: 1.5}


def calibrate() -> float:
    """Return the processor seconds of a fixed loop of plain Python."""
    times: list[float] = []
    for _ in range(3):
        start = time.process_time()
        total = 0
        for value in range(2_000_000):
            total += value * value % 7
        times.append(time.process_time() - start)
    return min(times)


def seconds(diagram: Diagram, sizes: Sizes, options: LayoutOptions, style: str, repeats: int) -> float:
    """Return the least processor seconds of several runs."""
    times: list[float] = []
    for _ in range(repeats):
        start = time.process_time()
        lay_out(diagram, sizes, options, style)
        times.append(time.process_time() - start)
    return min(times)


def make_diagram(box_sizes: list[tuple[float, float]], ends: list[tuple[int, int]]) -> tuple[Diagram, Sizes]:
    """Return plain cards and arrows."""
    nodes = tuple(DiagramNode(node_id=index, role="card", order=index) for index in range(len(box_sizes)))
    arrows = tuple(Arrow(arrow_id=index, source=a, target=b) for index, (a, b) in enumerate(ends))
    sizes = {
        index: NodeSize(width=width, height=height, front_width=width, front_height=height)
        for index, (width, height) in enumerate(box_sizes)
    }
    return Diagram(nodes=nodes, arrows=arrows), Sizes(nodes=sizes)


def make_blocks(num_stages: int) -> tuple[Diagram, Sizes]:
    """Return a residual net: blocks of three stages and an addition."""
    ends: list[tuple[int, int]] = []
    for first in range(0, num_stages - 4, 4):
        ends += [(first, first + 1), (first + 1, first + 2), (first + 2, first + 3)]
        ends += [(first + 3, first + 4), (first, first + 4)]
    used = max((b for _, b in ends), default=0) + 1
    return make_diagram([(60.0, 40.0)] * used, ends)


def main() -> None:
    """Print one row per graph and per size."""
    speed = calibrate() / CALIBRATION_SECONDS
    print(f"calibration: this machine takes {speed:.2f} times as long")
    print(f"{'graph':<14}{'seconds':>9}{'dot':>9}{'ratio':>8}{'target':>8}")
    graphs = json.loads(gzip.decompress(GRAPHS.read_bytes()))["graphs"]
    for name, graph in graphs.items():
        diagram, sizes = make_diagram(graph["sizes"], graph["edges"])
        took = seconds(diagram, sizes, LayoutOptions(direction="tb"), "layered", 1 if name == "rand10k" else 5)
        dot = graph["dot"]["seconds"]
        target = TARGETS.get(name, SPARSE_TARGET)
        ratio = took / speed / dot
        print(f"{name:<14}{took:>9.4f}{dot:>9.3f}{ratio:>8.2f}{target:>8.2f}{'' if ratio <= target else '  OVER'}")
    print(f"\n{'stages':<14}{'seconds':>9}{'target':>9}")
    for num_stages, target in SIZE_TARGETS.items():
        diagram, sizes = make_blocks(num_stages)
        for style in ("layered", "auto"):
            took = seconds(diagram, sizes, LayoutOptions(), style, 3 if num_stages < 5000 else 1)
            row = f"{num_stages} {style}"
            print(f"{row:<14}{took:>9.4f}{target:>9.3f}{'' if took / speed <= target else '  OVER'}")


if __name__ == "__main__":
    main()
