from __future__ import annotations

import numpy as np
import pytest

from neural_flow.drawing import Image, MarkGroup, Path, Picture, Rect, Scene, Text
from neural_flow.records import Capture, Edge, ModelInfo, Stage, TensorMeta, Topology

PALETTE = np.stack([np.arange(256), 255 - np.arange(256), np.full(256, 60)], axis=1).astype(np.uint8)


def small_topology() -> Topology:
    meta = (TensorMeta(shape=(1, 4, 8, 8), dtype="float32"),)
    stages = (
        Stage(stage_id=0, kind="input", name="x", label="x", outputs=meta),
        Stage(
            stage_id=1, kind="module", name="a|b<c>", label="a|b<c>", class_name="Conv2d", path="a|b<c>",
            inputs=meta, outputs=meta, num_params=148,
        ),
        Stage(stage_id=2, kind="output", name="output", label="output", inputs=meta, outputs=meta),
    )  # fmt: skip
    edges = (Edge(source=0, target=1, tensors=meta), Edge(source=1, target=2, tensors=meta))
    return Topology(model=ModelInfo(name="Tiny", class_name="Tiny", num_params=148), stages=stages, edges=edges)


def small_scene() -> Scene:
    ramp = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20
    marks = (
        Text(x=10, y=14, text="Tiny & <small>", size=8, color="#1F2933", weight="bold"),
        Rect(x=10, y=30, width=40, height=30, stroke="#1F2933", stroke_width=0.5, group="stage-1", layer=3.9),
        Image(x=10, y=30, width=40, height=30, pixels=ramp, palette=PALETTE, group="stage-1"),
        Text(x=30, y=68, text="a|b<c> é", size=5.8, color="#66727F", anchor="middle", group="stage-1"),
        Path(
            commands=(("M", 50.0, 45.0), ("L", 80.0, 45.0), ("C", 83.0, 45.0, 86.0, 48.0, 86.0, 51.0)),
            stroke="#0072B2", stroke_width=1.05, dash=(2.2, 1.6), group="edge-1", layer=2.5,
        ),
        Path(commands=(("M", 86.0, 55.0), ("L", 84.0, 50.0), ("L", 88.0, 50.0), ("Z",)), fill="#0072B2",
             group="edge-1", layer=5.0),
        Rect(x=70, y=60, width=40, height=15, radius=5, fill="#F5F7F980", stroke="#DDE3E9", stroke_width=0.5),
    )  # fmt: skip
    groups = (
        MarkGroup(group_id="stage-1", title="a|b<c>\nConv2d", css_class="nf-stage", data=(("module", 'a"b'),)),
        MarkGroup(group_id="edge-1", title="1 to 2", css_class="nf-edge", data=(("src", "1"), ("dst", "2"))),
    )
    return Scene(
        width=120, height=80, marks=marks, groups=groups, title="Tiny <1>", description="one stage",
        background="#FFFFFF",
    )  # fmt: skip


@pytest.fixture
def scene() -> Scene:
    return small_scene()


@pytest.fixture
def picture(scene) -> Picture:
    return Picture(topology=small_topology(), capture=Capture(), scenes=(scene,))
