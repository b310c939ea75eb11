"""Processor time and size of drawing 50, 500 and 5000 cards; run as a script: python tests/benchmarks/bench_render.py.

Every card has one map of 24 x 24 values, a frame, an arrow and two lines of label. Encoding alone is timed too: the
share of a PNG that no drawing code can save.
"""

from __future__ import annotations

import io
import math
import resource
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
    Scene,
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
    picture = PIL.Image.open(io.BytesIO(data))
    picture.load()
    start = time.process_time()
    picture.save(io.BytesIO(), "PNG", compress_level=3)
    return time.process_time() - start


def best(work, repeats: int) -> tuple[float, bytes]:
    times = []
    data = b""
    for _ in range(repeats):
        start = time.process_time()
        data = work()
        times.append(time.process_time() - start)
    return min(times), data


def main() -> None:
    counts = [int(word) for word in sys.argv[1:]] or [50, 500, 5000]
    render_bytes(cards(2)[0], ".png")  # imports and font tables
    render_bytes(cards(2)[0], ".pdf")
    print("cards  measure  build |   png  encode   svg  kB/card   pdf | RSS MB")
    for count in counts:
        picture, times = cards(count)
        scene: Scene = picture.scenes[0]
        repeats = 5 if count < 1000 else 1
        png, data = best(lambda: render_bytes(picture, ".png", ExportOptions(dpi=100)), repeats)  # noqa: B023 # called at once
        svg, text = best(lambda: render_bytes(picture, ".svg"), repeats)  # noqa: B023 # called at once
        pdf, _ = best(lambda: render_bytes(picture, ".pdf"), 1)  # noqa: B023 # called at once
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{count:5} {times['measure']:8.3f} {times['build']:6.3f} | {png:5.2f} {encode_time(data):7.2f} {svg:5.2f}"
            f" {len(text) / count / 1000:8.2f} {pdf:5.1f} | {memory:5.0f}   {scene.width:.0f} x {scene.height:.0f} pt"
        )


if __name__ == "__main__":
    main()
