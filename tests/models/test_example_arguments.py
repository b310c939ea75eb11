from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from neural_flow.errors import ModelLoadError
from neural_flow.models.target import load_target

Write = Callable[[str, str], Path]

HEAD = """
from __future__ import annotations
import argparse, enum
from dataclasses import dataclass
from typing import Callable, List, Literal, Optional
from torch import nn

class Act(enum.Enum):
    RELU = 1

@dataclass
class NetConfig:
    width: int
    depth: int = 2
"""
# what the class asks for, and what the hint must build with
CASES = {
    "a dataclass": ("cfg: NetConfig", "assert cfg.width", "Net(cfg=NetConfig(width=8))"),
    "a configuration without annotation": ("config", "config.width", "Net(config=NetConfig(width=8))"),
    "values beside it": (
        "cfg: NetConfig, sizes: List[int], mode: Literal['a', 'b'], act: Act, in_channels: int, p: Optional[float]",
        "assert sizes[0] and act.value and in_channels == 3",
        "Net(cfg=NetConfig(width=8), sizes=[8, 8], mode='a', act=Act.RELU, in_channels=3, p=0.1)",
    ),
    "an object of the file": ("args, layers", "args.dim, list(layers)", "Net(args=args, layers=[8, 8])"),
}


def _file(signature: str, body: str) -> str:
    return (
        f"{HEAD}\nargs = argparse.Namespace(dim=4)\n\nclass Net(nn.Module):\n    def __init__(self, {signature}):\n"
        f"        super().__init__()\n        {body}\n    def forward(self, x): return x\n"
    )


def _hint(target: str, arguments: dict[str, object] | None = None) -> str:
    with pytest.raises(ModelLoadError) as raised:
        load_target(target, arguments or {})
    return raised.value.hint


@pytest.mark.parametrize("case", CASES)
def test_the_line_in_the_hint_makes_the_file_load(write: Write, case: str) -> None:
    signature, body, call = CASES[case]
    text = _file(signature, body)
    write("net.py", text)
    first, line = _hint("net.py").split("\n")
    assert first == "add this line to net.py, then: neural-flow render net.py"
    assert line == f"def neural_flow_model(): return {call}"
    write("better.py", f"{text}\n{line}\n")
    assert type(load_target("better.py").model).__name__ == "Net"


def test_what_was_given_stays_in_the_line(write: Write) -> None:
    write("net.py", _file("cfg: NetConfig, depth", "self.depth = depth + cfg.depth"))
    assert _hint("net.py:Net", {"depth": 3}).endswith("return Net(depth=3, cfg=NetConfig(width=8))")


@pytest.mark.parametrize(
    "signature", ["backbone: nn.Module", "backbone", "make: Callable[[], nn.Module]", "graph: Missing"]
)
def test_what_nobody_can_guess_is_left_open_and_said(write: Write, signature: str) -> None:
    write("net.py", _file(signature, "pass"))
    first, line = _hint("net.py").split("\n")
    assert "with values of yours" in first
    assert line.endswith("=...)")


def test_what_can_be_typed_is_a_command_that_works(write: Write) -> None:
    write(
        "net.py",
        _file("width: int, rate: float, name: str, sizes: 'list[int]', deep: bool, in_ch", "assert in_ch == 3"),
    )
    hint = _hint("net.py")
    assert hint.startswith("for example neural-flow render net.py:Net -a width=8 -a rate=0.1")
    found = dict(re.findall(r"-a '?(\w+)=([^' ]+)", hint))
    assert found == {"width": "8", "rate": "0.1", "name": "TEXT", "sizes": "[8,8]", "deep": "true", "in_ch": "3"}


@pytest.mark.parametrize(("target", "owner"), [("net.py:Net.forward", "class"), ("net.py:model.forward", "model")])
def test_a_method_is_told_from_what_makes_a_model(write: Write, target: str, owner: str) -> None:
    write("net.py", "from torch import nn\nclass Net(nn.Module):\n    def forward(self, x): return x\nmodel = Net()\n")
    assert _hint(target) == f"name the {owner}: {target.removesuffix('.forward')}"


def test_a_class_method_that_makes_the_model_is_called(write: Write) -> None:
    write("net.py", "from torch import nn\nclass Net(nn.ReLU):\n    @classmethod\n    def small(cls): return cls()\n")
    assert type(load_target("net.py:Net.small").model).__name__ == "Net"
