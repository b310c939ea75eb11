"""A working folder with small model files, and a runner that calls ``main`` in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from neural_flow.cli.main import main

NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width: int = 8):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.Sequential(nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        print("the model speaks")
        y = self.stem(x)
        return self.head((y + self.body(y)).mean((2, 3)))


def neural_flow_inputs():
    return torch.linspace(0, 1, 3 * 16 * 16).reshape(1, 3, 16, 16)
"""

BROKEN = """\
import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(9, 2))
example_inputs = torch.ones(1, 4)
"""


@dataclass(frozen=True)
class Result:
    """What a run left in the terminal."""

    code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> dict[str, str]:
        """The lines of stderr by what stands before their colon."""
        pairs = [line.partition(":") for line in self.stderr.splitlines()]
        return {kind: text.strip() for kind, _, text in pairs if kind in ("error", "cause", "hint", "warning", "note")}


Run = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run_main(*arguments: str) -> Result:
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run_main
