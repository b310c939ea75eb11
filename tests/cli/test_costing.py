from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
SHARED = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.gates = nn.ParameterList([nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2))])
        self.middle = nn.Linear(4, 4).half()
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens) * self.gates[0].sum() * self.gates[1].sum()
        return self.head(self.middle(x.half()).float())


example_inputs = torch.tensor([[1, 2, 3]])
"""


def test_the_tree_with_its_totals(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    result = run("summary", "net.py")
    assert result.code == 0, result.stderr
    assert "the model speaks" not in result.stdout
    head, net, *others = result.stdout.splitlines()
    assert head.split() == ["module", "in", "out", "parameters", "FLOPs", "output", "saved", "time"]
    assert net.split()[:2] == ["Net", "[1,"]
    stem = next(line for line in others if "stem (Conv2d)" in line)
    assert "[1, 8, 16, 16]" in stem
    assert " 224 " in stem, "3·8·9 weights and 8 biases"
    assert "111 k" in stem, "2·3·9·8·16·16 operations"
    assert others[-1].startswith("844 parameters, 844 trainable")


def test_shared_loose_and_half_parameters_count_once(run: Run, folder: Path) -> None:
    (folder / "shared.py").write_text(SHARED)
    data = json.loads(run("summary", "shared.py", "--json").stdout)
    rows = {row["path"]: row for row in data["rows"]}
    assert data["model"]["num_params"] == 40 + 5 + 20
    assert data["model"]["param_nbytes"] == 4 * 45 + 2 * 20
    assert rows["head"]["num_params"] == rows["head"]["num_shared_params"] == 40
    assert data["num_loose_params"] == 5
    text = run("summary", "shared.py").stdout
    assert re.search(r"head \(Linear\).* 40 shared", text)


def test_rows_can_be_chosen(run: Run, folder: Path) -> None:
    def paths(*options: str) -> list[str]:
        return [
            row["path"] for row in json.loads(run("summary", "net.py", "--json", "--fake", *options).stdout)["rows"]
        ]

    assert paths() == ["", "stem", "body", "body.0", "body.1", "head"]
    assert paths("--depth", "1") == ["", "stem", "body", "head"]
    assert paths("--type", "Conv2d") == ["", "stem", "body.1"]
    assert paths("--select", "body.*") == ["", "body.0", "body.1"]
    assert paths("--exclude", "body**") == ["", "stem", "head"]
    assert run("summary", "net.py", "--select", "nothing").code == 5


def test_fake_tensors_measure_nothing(run: Run, folder: Path) -> None:
    rows = json.loads(run("summary", "net.py", "--json", "--fake").stdout)["rows"]
    assert all(row["flops"] is None and row["seconds"] is None for row in rows)
    assert rows[1]["outputs"] == [{"shape": [1, 8, 16, 16], "dtype": "float32"}]


@pytest.mark.parametrize("command", ["summary", "memory"])
def test_a_narrow_terminal_without_colours(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    result = run(command, "net.py")
    assert result.code == 0, result.stderr
    assert all(len(line) <= 40 for line in result.stdout.splitlines())
    assert "\x1b" not in result.stdout


def test_what_backward_needs(run: Run, folder: Path) -> None:
    result = run("memory", "net.py")
    assert result.code == 0, result.stderr
    assert "saved for backward in training mode; loss: " in result.stdout
    assert "offload" in result.stdout
    data = json.loads(run("memory", "net.py", "--json").stdout)
    assert data["is_training"] is True
    assert sum(row["saved_nbytes"] for row in data["rows"]) == data["total_nbytes"]
    assert data["param_nbytes"] == 4 * 844
    assert json.loads(run("memory", "net.py", "--json", "--eval").stdout)["is_training"] is False


def test_nothing_to_differentiate(run: Run, folder: Path) -> None:
    (folder / "frozen.py").write_text(
        "import torch\nfrom torch import nn\nmodel = nn.Linear(2, 2).requires_grad_(False)\n"
        "example_inputs = torch.ones(1, 2)\n"
    )
    result = run("memory", "frozen.py")
    assert result.code == 5
    assert "hint" in result.lines


@pytest.mark.parametrize("command", ["summary", "memory"])
@pytest.mark.parametrize(("target", "code"), [("broken.py", 4), ("absent.py", 3)])
def test_mistakes(run: Run, folder: Path, command: str, target: str, code: int) -> None:
    result = run(command, target)
    assert result.code == code, result.stderr
    assert list(result.lines) == ["error", "cause", "hint"]
