"""Targets, inputs and partial figures as a shell sees them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from neural_flow.cli import rendering

Run = Callable[..., Any]
TWO = """\
import torch
from torch import nn


class Two(nn.Module):
    def __init__(self, wide=False):
        super().__init__()
        self.words = nn.Embedding(10, 4)
        self.mix = nn.Linear(4, 8 if wide else 4)

    def forward(self, tokens, mask=None, *, extra=None):
        x = self.words(tokens)
        if mask is not None:
            x = x * mask[..., None]
        if extra is not None:
            x = x + extra["bias"]
        return self.mix(x)


class Parts:
    net = Two(wide=True)


def one_tensor():
    return torch.ones(2, 3, dtype=torch.int64)


def arguments():
    return torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 3, dtype=torch.bool)


def keywords():
    return {"tokens": one_tensor(), "mask": torch.ones(2, 3)}


def both():
    return (one_tensor(), None), {"extra": {"bias": torch.ones(4), "name": "a text"}}


def one_list():
    return [one_tensor()]
"""


def graph_of(run: Run, folder: Path, *arguments: str) -> dict[str, Any]:
    result = run("render", *arguments, "--no-capture", "-o", "g.json")
    assert result.code == 0, result.stderr
    return json.loads((folder / "g.json").read_text())


def inputs_of(graph: dict[str, Any]) -> dict[str, Any]:
    return {node["name"]: node["outputs"][0] for node in graph["nodes"] if node["kind"] == "input"}


@pytest.fixture
def two(folder: Path) -> Path:
    (folder / "two.py").write_text(TWO)
    return folder


@pytest.mark.parametrize(
    ("function", "names"),
    [
        ("one_tensor", ["tokens"]),
        ("arguments", ["tokens", "mask"]),
        ("keywords", ["tokens", "mask"]),
        ("both", ["tokens", "extra.bias"]),
    ],
)
def test_what_a_function_of_inputs_may_return(run: Run, two: Path, function: str, names: list[str]) -> None:
    graph = graph_of(run, two, "two.py:Two", "--inputs", f"two.py:{function}")
    assert list(inputs_of(graph)) == names
    assert graph["request"]["inputs_function"] == f"two.py:{function}"


def test_a_list_is_never_guessed_at(run: Run, two: Path) -> None:
    result = run("render", "two.py:Two", "--inputs", "two.py:one_list")
    assert result.code == 3
    assert "((value,), {})" in result.lines["hint"]


@pytest.mark.parametrize("text", ["tensor([1])", "1,2;3", "tokens"])
def test_a_value_in_place_of_a_shape_is_one_short_error(run: Run, two: Path, text: str) -> None:
    result = run("render", "two.py:Two", "-i", text)
    assert result.code in (2, 3)
    assert len(result.stderr.splitlines()) == 3


def test_an_input_that_meets_an_embedding_first_is_integer_and_said(run: Run, two: Path) -> None:
    result = run("render", "two.py:Two", "-i", "2,3", "-i", "mask=2,3:bool", "--no-capture", "-o", "g.json")
    assert result.code == 0, result.stderr
    assert "2,3:int64[0,10)" in result.lines["note"]
    shown = inputs_of(json.loads((two / "g.json").read_text()))
    assert (shown["tokens"]["dtype"], shown["mask"]["dtype"]) == ("int64", "bool")


@pytest.mark.parametrize("target", ["two.py:Parts.net", "two.py::Parts.net", "two:Parts.net"])
def test_names_of_a_model(run: Run, two: Path, target: str) -> None:
    graph = graph_of(run, two, target, "-i", "tokens=2x3:int64[0,10)")
    assert graph["model"]["num_params"] == 40 + 40


@pytest.mark.parametrize("flag", ["-i", "--input", "--input-size"])
@pytest.mark.parametrize("file", ["x.npy", "x.npz", "x.pt", "x.safetensors"])
def test_inputs_from_files(run: Run, folder: Path, flag: str, file: str) -> None:
    value = torch.ones(2, 3, 8, 8)
    if file.endswith("npy"):
        np.save(file, value.numpy())
    elif file.endswith("npz"):
        np.savez(file, x=value.numpy(), other=np.ones(3))
    elif file.endswith("pt"):
        torch.save({"x": value, "other": torch.ones(3)}, file)
    else:
        save_file({"x": value}, file)
    assert inputs_of(graph_of(run, folder, "net.py", flag, f"x=@{file}"))["x"]["shape"] == [2, 3, 8, 8]


def test_a_normalisation_is_undone_in_the_picture(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    write = rendering.write_outputs
    monkeypatch.setattr(
        rendering, "write_outputs", lambda drawing, *rest: drawn.append(drawing) or write(drawing, *rest)
    )
    colours = np.random.default_rng(0).integers(0, 255, (16, 16, 3)).astype(np.uint8)
    Image.fromarray(colours).save("c.png")
    for text in ("x=@c.png", "x=@c.png~imagenet"):
        assert run("render", "net.py", "-i", text, "-o", "a.json").code == 0
    plain, undone = (next(iter(drawing.capture.record.summaries.values())) for drawing in drawn)
    assert plain.kind == undone.kind == "image"
    for name, array in plain.arrays.items():
        np.testing.assert_allclose(undone.arrays[name].astype(float), array.astype(float), atol=1e-3 * 255)
    means = [drawing.capture.record.stats[0].mean for drawing in drawn]
    assert abs(means[0] - means[1]) > 0.1, "the model itself got the normalised values"


FAILING = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, fails=False):
        super().__init__()
        self.layer, self.fails = nn.Linear(4, width), fails

    def forward(self, x):
        if self.fails:
            raise ValueError("on purpose")
        return self.layer(x)


class Reused(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.after = Block(5), nn.Linear(5, 2)

    def forward(self, x):
        return self.after(self.block(self.block(x)))


class Folded(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(4, number == 4) for number in range(6)))

    def forward(self, x):
        return self.blocks(x)


class Early(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block(4)

    def forward(self, x):
        return self.block(x.reshape(7, 7))


class Late(nn.Module):
    num_runs = 0

    def __init__(self):
        super().__init__()
        self.block, self.after = Block(4), Block(4)

    def forward(self, x):
        Late.num_runs += 1
        self.after.fails = Late.num_runs > 1
        return self.after(self.block(x))


example_inputs = torch.ones(1, 4)
"""


@pytest.mark.parametrize(
    ("name", "module", "call", "cause"),
    [
        ("Reused", "block.layer", 1, "RuntimeError: mat1 and mat2"),
        ("Folded", "blocks.4", 0, "ValueError: on purpose (failing.py:12)"),
        ("Early", "", 0, "RuntimeError: shape '[7, 7]'"),
        ("Late", "after", 0, "ValueError: on purpose (failing.py:12)"),
    ],
)
def test_partial_figures(run: Run, folder: Path, name: str, module: str, call: int, cause: str) -> None:
    (folder / "failing.py").write_text(FAILING)
    result = run("render", f"failing.py:{name}", "-o", "p.svg", "-o", "p.json")
    assert result.code == 4
    assert result.stdout == "p.svg\np.json\n"
    assert result.lines["cause"].startswith(cause)
    graph = json.loads((folder / "p.json").read_text())
    assert graph["status"] == "partial"
    assert (graph["error"]["module"], graph["error"]["call"]) == (module, call)
    assert "stopped in" in re.sub(r"<[^>]*>", "", (folder / "p.svg").read_text())


def test_debug_shows_the_users_own_traceback(run: Run, folder: Path) -> None:
    (folder / "failing.py").write_text(FAILING)
    shown = run("render", "failing.py:Folded", "--debug").stderr
    assert 'failing.py", line 12, in forward' in shown
    assert 'raise ValueError("on purpose")' in shown
