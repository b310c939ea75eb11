"""A U-Net by hand: topology, diagram, layout and made-up activations, so that drawing is tested without a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pytest

from neural_flow.drawing import (
    Arrow,
    Box,
    Diagram,
    DiagramNode,
    Frame,
    FramePlacement,
    Layout,
    Placement,
    Route,
    Scene,
)
from neural_flow.records import (
    Capture,
    Edge,
    ModelInfo,
    Stage,
    StageGroup,
    Summary,
    TensorMeta,
    TensorStats,
    Topology,
)
from neural_flow.scene.build import build_scene
from neural_flow.scene.measure import measure_diagram
from neural_flow.scene.options import SceneOptions
from neural_flow.theme import get_theme

NAMES = ("image", "down0", "down1", "down2", "mid", "up2", "up1", "up0", "mask", "output")
SHAPES = ((1, 128), (16, 128), (32, 64), (64, 32), (128, 16), (64, 32), (32, 64), (16, 128), (2, 128), (2, 128))
PARAMS = (0, 2464, 13952, 55552, 221696, 147712, 37056, 13952, 34, 0)
# Front planes of the reference picture: x, y of the upper left corner; then the ring of each level.
FRONTS = {
    "image": (8, 62.4), "down0": (78, 57.6), "down1": (138, 139.6), "down2": (193.4, 212.6), "mid": (246.8, 278.3),
    "up2": (286.4, 212.6), "up1": (330, 139.6), "up0": (378.4, 57.6), "mask": (461.8, 57.6),
}  # fmt: skip
RINGS = {"up2": (260.3, 230.1), "up1": (303.9, 162.1), "up0": (352.4, 85.6)}


def meta(index: int) -> tuple[TensorMeta, ...]:
    channels, side = SHAPES[index]
    return (TensorMeta(shape=(1, channels, side, side), dtype="float32"),)


def unet_topology() -> Topology:
    stages = []
    for index, name in enumerate(NAMES):
        kind = "input" if index == 0 else "output" if name == "output" else "module"
        path = "" if kind != "module" else name if name in ("mid", "mask") else f"{_half(name)}.{name}"
        stages.append(
            Stage(
                stage_id=index,
                kind=kind,
                name=path or name,
                label=name,
                class_name="" if kind != "module" else "Conv2d" if name == "mask" else "DoubleConv",
                path=path,
                call_id=index if kind == "module" else None,
                inputs=meta(max(index - 1, 0)),
                outputs=meta(index),
                num_params=PARAMS[index],
            )
        )
    edges = [Edge(source=index, target=index + 1, tensors=meta(index)) for index in range(9)]
    edges += [Edge(source=3 - i, target=5 + i, kind="skip", via=("cat",), tensors=meta(3 - i)) for i in range(3)]
    groups = tuple(
        StageGroup(module=half, label=half, stage_ids=ids)
        for half, ids in (("encoder", (1, 2, 3)), ("decoder", (5, 6, 7)))
    )
    return Topology(
        model=ModelInfo(name="U-Net", class_name="UNet", num_params=sum(PARAMS)),
        stages=tuple(stages),
        edges=tuple(edges),
        groups=groups,
        num_candidates=31,
    )


def _half(name: str) -> str:
    return "encoder" if name.startswith("down") else "decoder"


def unet_diagram() -> Diagram:
    """Return nodes 0-8 as cards (the output joins the mask), 10-12 as rings."""
    cards = [
        DiagramNode(node_id=index, role="card", stage_id=index, stage_ids=(index,), label=name, order=2 * index)
        for index, name in enumerate(NAMES[:9])
    ]
    rings = [
        DiagramNode(node_id=10 + index, role="ring", symbol="concat", order=2 * NAMES.index(name) - 1)
        for index, name in enumerate(("up2", "up1", "up0"))
    ]
    pairs = [(0, 1, ""), (1, 2, "pool ÷2"), (2, 3, "pool ÷2"), (3, 4, "pool ÷2"), (4, 10, "up ×2"), (10, 5, "")]
    pairs += [(5, 11, "up ×2"), (11, 6, ""), (6, 12, "up ×2"), (12, 7, ""), (7, 8, "")]
    arrows = [Arrow(arrow_id=index, source=a, target=b, text=text) for index, (a, b, text) in enumerate(pairs)]
    arrows += [Arrow(arrow_id=20 + i, source=3 - i, target=10 + i, kind="skip") for i in range(3)]
    frames = (
        Frame(frame_id=0, kind="group", title="encoder", node_ids=(1, 2, 3)),
        Frame(frame_id=1, kind="group", title="decoder", node_ids=(5, 6, 7, 10, 11, 12)),
    )
    return Diagram(nodes=tuple(cards + rings), arrows=tuple(arrows), frames=frames)


def unet_layout(sizes) -> Layout:
    places = {}
    for index, name in enumerate(NAMES[:9]):
        x, y = FRONTS[name]
        size = sizes.nodes[index]
        body = Box(x=x, y=y - (size.height - size.front_height), width=size.width, height=size.height)
        is_above = name.startswith("down")
        top = body.y - 1.6 - size.label_height if is_above else body.y + body.height + 2.4
        label = Box(x=x, y=top, width=size.label_width, height=size.label_height)
        places[index] = Placement(node_id=index, body=body, label=label, label_side="above" if is_above else "below")
    for index, name in enumerate(("up2", "up1", "up0")):
        x, y = RINGS[name]
        places[10 + index] = Placement(node_id=10 + index, body=Box(x=x - 5.2, y=y - 5.2, width=10.4, height=10.4))
    routes = [_route(arrow, places, sizes) for arrow in unet_diagram().arrows]
    frames = (
        FramePlacement(frame_id=0, box=Box(x=69.2, y=20, width=176.8, height=244.4)),
        FramePlacement(frame_id=1, box=Box(x=250.2, y=20, width=198, height=244.4)),
    )
    return Layout(
        style="u", direction="lr", width=508, height=320, placements=tuple(places.values()), routes=tuple(routes),
        frames=frames,
    )  # fmt: skip


def _route(arrow, places, sizes) -> Route:
    arrow_id = arrow.arrow_id
    source, target = places[arrow.source].body, places[arrow.target].body
    front = sizes.nodes[arrow.source]
    middle_y = source.y + source.height - front.front_height / 2
    center_x = source.x + front.front_width / 2
    end_size = sizes.nodes[arrow.target]
    end_y = target.y + target.height - end_size.front_height / 2
    label = None
    if arrow.text.startswith("pool"):
        points = ((center_x, source.y + source.height), (center_x, end_y), (target.x, end_y))
        width, height = sizes.arrow_labels[arrow_id]
        label = Box(x=center_x - width - 4, y=source.y + source.height + 20, width=width, height=height)
    elif arrow.text.startswith("up"):
        points = ((center_x, source.y), (center_x, target.y + target.height))
        width, height = sizes.arrow_labels[arrow_id]
        label = Box(x=center_x + 4, y=(source.y + target.y + target.height) / 2 - 3, width=width, height=height)
    else:
        points = ((source.x + source.width, middle_y), (target.x, end_y))
        if arrow.kind == "skip" and target.x - source.x - source.width > 40:
            width, height = sizes.arrow_labels[arrow_id]
            label = Box(x=source.x + source.width + 5, y=middle_y - 3 - height, width=width, height=height)
    return Route(arrow_id=arrow_id, style="orthogonal", points=points, radius=7, label=label)


def cells(side: int, seed: int = 0) -> np.ndarray:
    """Return round blobs on noise, 0-1."""
    random = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:side, 0:side] / side
    image = random.uniform(0, 0.12, (side, side))
    for x, y, r in random.uniform((0, 0, 0.03), (1, 1, 0.09), (26, 3)):
        image = np.maximum(image, np.clip(1.4 - ((rows - y) ** 2 + (columns - x) ** 2) / r**2, 0, 1) * 0.8)
    return image


def unet_capture() -> Capture:
    summaries, stats = {}, {}
    for index, (channels, side) in enumerate(SHAPES[:9]):
        name = NAMES[index]
        base = {"map_hw": (side, side), "num_nan": 0, "num_inf": 0, "input_side": 128.0, "num_channels": channels}
        if name == "image":
            arrays = {"pixels": (cells(128) * 255).astype(np.uint8)}
            kind, facts = "image", base
        else:
            planes = min(max(round(np.log2(channels)) - 1, 2), 6) if channels > 2 else 2
            maps = np.stack([cells(side, seed) for seed in range(planes)])
            if name.startswith("down"):
                maps = np.abs(np.gradient(maps, axis=2))
            maps = np.clip(maps / np.percentile(maps, 99, axis=(1, 2), keepdims=True), 0, 1)
            arrays = {"planes": (maps * 252).astype(np.uint8)}
            kind = "feature_maps"
            facts = {**base, "is_signed": False, "num_planes": planes, "dead": (False,) * planes, "num_dead": 0}
        summaries[index] = Summary(
            stage_id=index, kind=kind, tensor=meta(index)[0], arrays=MappingProxyType(arrays), facts=facts
        )
        stats[index] = TensorStats(mean=0.1, std=0.2, min=0.0, max=1.5, zero_fraction=0.25)
    return Capture(summaries=MappingProxyType(summaries), stats=MappingProxyType(stats))


@dataclass(frozen=True)
class Case:
    """Everything from which a scene is made; ``scene`` makes it."""

    topology: Topology
    diagram: Diagram
    capture: Capture

    def sizes(self, theme="light", **options):
        return measure_diagram(self.diagram, self.topology, self.capture, get_theme(theme), SceneOptions(**options))

    def scene(self, theme="light", measurements=(), **options) -> Scene:
        layout = self.layout(self.sizes(theme, **options))
        return build_scene(
            self.topology, self.diagram, layout, self.capture, measurements, get_theme(theme), SceneOptions(**options)
        )

    def layout(self, sizes) -> Layout:
        return unet_layout(sizes)

    def without_capture(self) -> Case:
        return replace(self, capture=Capture())


@pytest.fixture(scope="session")
def unet() -> Case:
    return Case(unet_topology(), unet_diagram(), unet_capture())
