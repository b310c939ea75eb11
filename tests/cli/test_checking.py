from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
NOT_FINITE = """\
import torch
from torch import nn


class Log(nn.Module):
    def forward(self, x):
        return torch.log(x - 1)


model = nn.Sequential(nn.Flatten(), Log(), nn.Linear(4, 4), nn.ReLU())
example_inputs = torch.tensor([[0.5, 1.0, 2.0, 3.0]])
"""


@pytest.fixture
def stored(run: Run, folder: Path) -> Path:
    assert run("render", "net.py:Net", "-a", "width=6", "--depth", "2", "-i", "1,3,16,16", "-o", "graph.json").code == 0
    return folder / "graph.json"


def widen(folder: Path) -> None:
    text = (folder / "net.py").read_text()
    (folder / "net.py").write_text(text.replace("nn.Linear(width, 4)", "nn.Linear(width, 5)"))


def test_the_same_is_asked_again(run: Run, stored: Path) -> None:
    before = stored.read_bytes()
    result = run("check", "net.py:Net", "--against", "graph.json")
    assert result.code == 0, result.stderr
    assert result.stdout.startswith("graph.json: the same architecture")
    assert run("check", "net.py:Net", "--against", "graph.json", "--update").code == 0
    assert stored.read_bytes() == before, "an update of what is the same changes nothing"
    assert run("check", "net.py:Net", "--against", "graph.json", "-a", "width=7").code == 1, "what is given wins"


def test_other_weights_are_no_difference(run: Run, stored: Path, folder: Path) -> None:
    assert run("check", "net.py:Net", "--against", "graph.json", "--seed", "5").code == 0
    data = json.loads(stored.read_text())
    for node in data["nodes"]:
        node["stats"], node["label"] = None, "another word"
    stored.write_text(json.dumps(data))
    assert run("check", "net.py:Net", "--against", "graph.json").code == 0, "only the fingerprint's fields count"


def test_a_difference_in_text_json_and_annotation(
    run: Run, stored: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    widen(folder)
    result = run("check", "net.py:Net", "--against", "graph.json")
    assert result.code == 1
    assert "::error" not in result.stderr
    first, *others = result.stdout.splitlines()
    assert first.startswith("graph.json: the architecture has changed")
    assert others[0].startswith("~ head: parameters 28 → 35")
    assert len(others) <= 4
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = run("check", "net.py:Net", "--against", "graph.json", "--json", "-q")
    assert result.code == 1
    data = json.loads(result.stdout)
    assert data["architecture"] == "changed"
    assert data["difference"]["changed"][0]["name"] == "head"
    annotations = [line for line in result.stderr.splitlines() if line.startswith("::")]
    assert len(annotations) == 1
    assert annotations[0].startswith("::error file=net.py,title=architecture changed::graph.json")
    assert "%0A" in annotations[0]


def test_update_writes_the_graph_anew(run: Run, stored: Path, folder: Path) -> None:
    widen(folder)
    result = run("check", "net.py:Net", "--against", "graph.json", "--update")
    assert result.code == 0, result.stderr
    assert "updated" in result.stdout
    data = json.loads(stored.read_text())
    assert data["request"]["depth"] == 2
    assert data["request"]["arguments"] == ["width=6"]
    assert any(node["stats"] for node in data["nodes"]), "it had statistics, so it has"
    assert run("check", "net.py:Net", "--against", "graph.json").code == 0
    assert run("check", "net.py", "--against", "new.json", "--update").code == 0
    assert run("check", "net.py", "--against", "new.json").code == 0


def test_a_model_that_fake_tensors_cannot_run(run: Run, folder: Path) -> None:
    text = (folder / "net.py").read_text().replace("y = self.stem(x)", "y = self.stem(x) * float(x.max().item())")
    (folder / "items.py").write_text(text)
    assert run("render", "items.py", "--no-capture", "-o", "g.json").code == 0
    result = run("check", "items.py", "--against", "g.json")
    assert result.code == 0, result.stderr
    assert "warning" not in result.lines


def test_the_stage_where_nan_first_appears(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bad.py").write_text(NOT_FINITE)
    assert run("check", "net.py", "--finite").code == 0
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = run("check", "bad.py", "--finite")
    assert result.code == 1, result.stderr
    assert "1 NaN and 1 Inf first appear in log in 1, and in 3 more" in result.stdout
    assert sum(line.startswith("::error") for line in result.stderr.splitlines()) == 1
    data = json.loads(run("check", "bad.py", "--finite", "--json").stdout)
    assert data["finite"] is False
    assert data["first"] == {"stage": "log", "module": "1", "num_nan": 1, "num_inf": 1}
    monkeypatch.delenv("GITHUB_ACTIONS")
    rendered = run("render", "bad.py", "-o", "bad.svg")
    assert rendered.code == 0
    assert "first appear in" in rendered.lines["warning"]


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["net.py"], 2, "--against"),
        (["net.py", "--against", "absent.json"], 3, "absent.json"),
        (["net.py", "--against", "pyproject.toml"], 3, "pyproject.toml"),
        (["broken.py", "--finite"], 4, "running 2"),
        ([], 5, "no figure"),
        (["--against", "graph.json"], 2, "--against needs a target"),
    ],
)
def test_mistakes(run: Run, folder: Path, arguments: list[str], code: int, word: str) -> None:
    result = run("check", *arguments)
    assert result.code == code, result.stderr
    assert word in result.stderr
    assert "hint" in result.lines


def test_what_is_no_graph_is_named_with_the_command_that_writes_one(run: Run, folder: Path) -> None:
    (folder / "half.json").write_text('{"schema": "neural-flow.graph/1"}')
    (folder / "cut.json").write_text('{"schema":')
    for name in ("absent.json", "half.json", "cut.json"):
        result = run("check", "net.py", "--against", name)
        assert result.code == 3
        assert name in result.lines["error"]
        assert result.lines["hint"] == f"write it with: neural-flow render net.py -o {name}"
    assert "write" not in run("check", "net.py", "--against", "net.py").lines["hint"]
