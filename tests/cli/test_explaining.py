from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def line_of(file: Path, text: str) -> int:
    return next(number for number, line in enumerate(file.read_text().splitlines(), 1) if text in line)


def test_the_operations_behind_an_edge_and_where_they_stand(run: Run, folder: Path) -> None:
    result = run("why", "net.py", "stem", "head", "--detail", "block")
    assert result.code == 0, result.stderr
    head, *steps = result.stdout.splitlines()
    assert head.startswith("stem → head: skip")
    place = f"net.py:{line_of(folder / 'net.py', 'self.body(y)')}"
    assert [step.split()[0] for step in steps] == ["Tensor.add", "Tensor.mean", "read"]
    assert all(place in step for step in steps)
    assert "the model speaks" not in result.stdout


def test_an_edge_as_json(run: Run, folder: Path) -> None:
    data = json.loads(run("why", "net.py", "body.1", "head", "--json").stdout)
    assert (data["source"], data["target"], data["kind"]) == ("body.1", "head", "primary")
    assert [step["target"] for step in data["steps"]] == ["Tensor.add", "Tensor.mean", "nn.functional.linear"]
    assert [step["inside_target"] for step in data["steps"]] == [False, False, True]
    assert str(folder) not in json.dumps(data)


def test_inputs_and_outputs_are_ends_too(run: Run, folder: Path) -> None:
    assert run("why", "net.py", "x", "stem").code == 0
    result = run("why", "net.py", "head", "output")
    assert result.code == 0
    assert "handed over as it is" in result.stdout


def test_without_an_edge_the_way_is_told(run: Run, folder: Path) -> None:
    result = run("why", "net.py", "x", "head")
    assert result.code == 5
    assert "values go x → stem → " in result.lines["cause"]
    result = run("why", "net.py", "output", "x")
    assert result.code == 5
    assert "x → stem" in result.lines["cause"]


SHARED = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        y = self.b(self.a(x))
        return self.c(self.a(y) + y)


example_inputs = torch.ones(2, 4)
"""


def test_an_edge_of_another_call_of_the_same_module_is_named(run: Run, folder: Path) -> None:
    (folder / "shared.py").write_text(SHARED)
    result = run("why", "shared.py", "a", "c")
    assert result.code == 5
    assert result.lines["hint"] == "ask for a#1 c"
    assert run("why", "shared.py", "a#1", "c").code == 0


def test_one_stage_is_no_edge(run: Run, folder: Path) -> None:
    result = run("why", "net.py", "stem", "stem")
    assert result.code == 5
    assert result.lines["error"] == "stem and stem are one stage, stem"


def test_a_graph_file_has_no_operations(run: Run, folder: Path) -> None:
    assert run("render", "net.py", "-o", "net.json").code == 0
    for command in (("why", "net.json", "stem", "head"), ("summary", "net.json")):
        result = run(*command)
        assert result.code == 3
        assert "render and diff" in result.lines["hint"]


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["net.py", "stem"], 2, "Missing argument"),
        (["net.py", "stm", "head"], 2, "did you mean 'stem'?"),
        (["broken.py", "0", "2"], 4, "running 2"),
        (["absent.py", "0", "2"], 3, "absent.py"),
    ],
)
def test_mistakes(run: Run, arguments: list[str], code: int, word: str) -> None:
    result = run("why", *arguments)
    assert result.code == code, result.stderr
    assert word in result.stderr
