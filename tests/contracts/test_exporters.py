"""What holds for every exporter, also for one that is added tomorrow."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from neural_flow.drawing import ExportOptions, Image, Path, Picture, Rect, Scene, Text
from neural_flow.export._base import EXPORTERS, render_bytes, write_picture
from neural_flow.records import Capture, Edge, ModelInfo, Stage, TensorMeta, Topology

SUFFIXES = EXPORTERS.names()


def hostile_picture() -> Picture:
    meta = (TensorMeta(shape=(2, 3), dtype="float32"),)
    names = ("x", 'a"]<b>&|`$\\alpha$', "中\x00文", "output")
    stages = tuple(
        Stage(stage_id=index, kind=kind, name=name, label=name, outputs=meta)
        for index, (name, kind) in enumerate(zip(names, ("input", "module", "module", "output"), strict=True))
    )
    edges = tuple(Edge(source=index, target=index + 1) for index in range(3))
    topology = Topology(model=ModelInfo(name="</svg>", class_name="M"), stages=stages, edges=edges)
    palette = np.stack([np.arange(256)] * 3, axis=1).astype(np.uint8)
    pixels = np.arange(16, dtype=np.uint8).reshape(4, 4) * 16
    marks = (
        Rect(x=1, y=1, width=5, height=5, fill="#123456", group="stage-1"),
        Image(x=10, y=1, width=9, height=9, pixels=pixels, palette=palette, group="stage-1"),
        Path(commands=(("M", 1, 20), ("C", 9, 20, 9, 30, 20, 30)), stroke="#12345680", stroke_width=1, dash=(2, 1)),
        Text(x=1, y=35, text='$\\alpha$ <a> "é"', size=5, color="#000000", weight="bold", group="stage-2"),
    )
    scene = Scene(width=50, height=40, marks=marks, title="</svg>\x00", description="]]>\x07", background="#FFFFFF")
    return Picture(topology=topology, capture=Capture(), scenes=(scene,))


def test_the_promised_suffixes_are_there():
    assert {".svg", ".png", ".pdf", ".html", ".json", ".md", ".txt"} <= set(SUFFIXES)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_suffixes_are_lower_case_with_a_dot(suffix):
    assert suffix == f".{suffix.strip('.').lower()}"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_twice_gives_the_same_bytes_and_writing_writes_them(suffix, tmp_path):
    picture = hostile_picture()
    data = render_bytes(picture, suffix)
    assert data
    file = tmp_path / f"figure{suffix}"
    write_picture(picture, file, ExportOptions())
    assert file.read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_path_host_or_date_is_in_the_file(suffix):
    data = render_bytes(hostile_picture(), suffix)
    for word in (os.getcwd(), os.uname().nodename, str(pathlib.Path.home()), "CreationDate"):
        assert len(word) < 3 or word.encode() not in data


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_exporting_writes_no_file_and_changes_no_environment(suffix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    render_bytes(hostile_picture(), suffix)
    assert list(tmp_path.iterdir()) == []
    assert dict(os.environ) == before


SCRIPT = """
import hashlib, importlib.util, json, sys
spec = importlib.util.spec_from_file_location("contract", sys.argv[1])
contract = importlib.util.module_from_spec(spec)
spec.loader.exec_module(contract)
print(json.dumps(contract.digests()))
"""


def digests() -> dict[str, str]:
    picture = hostile_picture()
    return {suffix: hashlib.sha256(render_bytes(picture, suffix)).hexdigest() for suffix in SUFFIXES}


def test_hash_seeds_make_no_difference():
    found = []
    for seed in ("0", "1"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()}
        ran = subprocess.run(
            [sys.executable, "-c", SCRIPT, __file__], env=env, capture_output=True, text=True, check=True
        )
        found.append(json.loads(ran.stdout))
    assert found[0] == found[1] == digests()
