"""Processor time, size and memory of drawing 50, 500 and 5000 cards: python tests/benchmarks/bench_render.py.

Every card has one map of 24 x 24 values, a frame, an arrow and two lines of label. Encoding the finished page with
pillow at level 3 is timed too: the yardstick for everything else about a PNG. Every format is drawn in a process of
its own, whose memory is counted from the import of torch on; times are the best of some runs in that process.
"""

from __future__ import annotations

import importlib
import io
import json
import math
import resource
import subprocess
import sys
import time
from types import MappingProxyType

import numpy as np
import PIL.Image

from neural_flow.drawing import (
    Arrow,
    Box,
    Diagram,
    DiagramNode,
    ExportOptions,
    Layout,
    Picture,
    Placement,
    Route,
)
from neural_flow.export._base import render_bytes
from neural_flow.records import Capture, Edge, ModelInfo, Stage, Summary, TensorMeta, Topology
from neural_flow.scene.build import build_scene
from neural_flow.scene.measure import measure_diagram
from neural_flow.scene.options import SceneOptions
from neural_flow.theme import get_theme

PITCH = (90.0, 74.0)


def cards(count: int) -> tuple[Picture, dict[str, float]]:
    """Return a page of ``count`` cards in a square, and the seconds of measuring and building it."""
    meta = TensorMeta(shape=(1, 1, 24, 24), dtype="float32")
    stages = tuple(
        Stage(
            stage_id=index, kind="module", name=f"layers.{index}", label=f"layers.{index}", class_name="Conv2d",
            path=f"layers.{index}", inputs=(meta,), outputs=(meta,), num_params=260,
        )
        for index in range(count)
    )  # fmt: skip
    edges = tuple(Edge(source=index, target=index + 1) for index in range(count - 1))
    topology = Topology(model=ModelInfo(name="Bench", class_name="Bench"), stages=stages, edges=edges)
    random = np.random.default_rng(0)
    y, x = np.mgrid[0:24, 0:24] / 24
    summaries = {}
    for index in range(count):
        waves = np.sin(x * random.uniform(2, 9) + random.uniform(0, 6)) * np.cos(y * random.uniform(2, 9))
        facts = {"is_signed": False, "num_planes": 1, "dead": (False,), "map_hw": (24, 24), "input_side": 24.0}
        arrays = {"planes": ((waves + 1) * 126).astype(np.uint8)[None]}
        summaries[index] = Summary(
            stage_id=index, kind="feature_maps", tensor=meta, arrays=MappingProxyType(arrays), facts=facts
        )
    capture = Capture(summaries=MappingProxyType(summaries))
    nodes = tuple(
        DiagramNode(
            node_id=index, role="card", stage_id=index, stage_ids=(index,), label=f"layers.{index}", order=index
        )
        for index in range(count)
    )
    arrows = tuple(Arrow(arrow_id=index, source=index, target=index + 1) for index in range(count - 1))
    diagram = Diagram(nodes=nodes, arrows=arrows)
    theme, options = get_theme("light"), SceneOptions()
    times: dict[str, float] = {}
    start = time.process_time()
    sizes = measure_diagram(diagram, topology, capture, theme, options)
    times["measure"] = time.process_time() - start
    layout = grid(diagram, sizes.nodes)
    start = time.process_time()
    scene = build_scene(topology, diagram, layout, capture, (), theme, options)
    times["build"] = time.process_time() - start
    return Picture(topology=topology, capture=capture, scenes=(scene,)), times


def grid(diagram: Diagram, sizes) -> Layout:
    columns = math.ceil(math.sqrt(len(diagram.nodes) * PITCH[1] / PITCH[0]))
    places = []
    for index, node in enumerate(diagram.nodes):
        size = sizes[node.node_id]
        x, y = index % columns * PITCH[0], index // columns * PITCH[1]
        label = Box(x=x, y=y + size.height + 2, width=size.label_width, height=size.label_height)
        places.append(Placement(node_id=index, body=Box(x=x, y=y, width=size.width, height=size.height), label=label))
    routes = []
    for arrow in diagram.arrows:
        source, target = places[arrow.source].body, places[arrow.target].body
        start = (source.x + source.width, source.y + source.height / 2)
        end = (target.x, target.y + target.height / 2)
        middle = (start[0] + 12, start[1]), (start[0] + 12, end[1])
        points = (start, end) if start[1] == end[1] else (start, *middle, end)
        routes.append(Route(arrow_id=arrow.arrow_id, style="orthogonal", points=points))
    width, height = columns * PITCH[0], math.ceil(len(places) / columns) * PITCH[1]
    return Layout(
        style="grid", direction="lr", width=width, height=height, placements=tuple(places), routes=tuple(routes)
    )


def encode_time(data: bytes) -> float:
    """Return the seconds that pillow takes to encode a finished page."""
    picture = PIL.Image.open(io.BytesIO(data))
    picture.load()
    return best(lambda: picture.save(io.BytesIO(), "PNG", compress_level=3), 3)


def best(work, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def peak() -> float:
    """Return the largest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_one(count: int, suffix: str) -> dict[str, float]:
    """Return what drawing ``count`` cards as ``suffix`` costs in this process."""
    importlib.import_module("torch")
    base = peak()
    render_bytes(cards(2)[0], suffix)  # imports and font tables
    picture, times = cards(count)
    again = cards(count)[1]
    options = ExportOptions(dpi=100)
    data = render_bytes(picture, suffix, options)
    found = {name: min(times[name], again[name]) for name in times}
    found["memory"] = peak() - base
    found["draw"] = best(lambda: render_bytes(picture, suffix, options), 5 if count < 1000 else 2)
    found["size"] = len(data)
    if suffix == ".png":
        found["encode"] = encode_time(data)
    return found


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure_one(int(sys.argv[2]), sys.argv[3])))
        return
    counts = [int(word) for word in sys.argv[1:]] or [50, 500, 5000]
    print("cards  format  seconds  kB/card  MB above torch   (seconds: measure, build and draw)")
    for count in counts:
        for suffix in (".png", ".svg", ".pdf", ".html"):
            command = [sys.executable, __file__, "--one", str(count), suffix]
            ran = subprocess.run(command, capture_output=True, text=True, check=True)
            found = json.loads(ran.stdout)
            total = found["measure"] + found["build"] + found["draw"]
            line = f"{count:5}  {suffix:6} {total:8.2f} {found['size'] / count / 1000:8.2f} {found['memory']:15.0f}"
            if suffix == ".png":
                encode = found["encode"]
                line += (
                    f"   measure {found['measure']:.3f}, build {found['build']:.3f}, draw and pack {found['draw']:.3f};"
                )
                line += f" pillow alone packs in {encode:.3f}: all but that is {total / encode - 1:.2f} of it"
            print(line, flush=True)


if __name__ == "__main__":
    main()
