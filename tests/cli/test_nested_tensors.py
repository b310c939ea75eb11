"""Nested tensors, whose rows have no one length, go through every command."""

import pytest

from neural_flow.cli.main import main

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))

ROWS = [torch.randn(3, 4), torch.randn(5, 4)]

def strided():
    return torch.nested.nested_tensor(ROWS)

def jagged():
    return torch.nested.nested_tensor(ROWS, layout=torch.jagged)
"""


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", ["strided", "jagged"])
@pytest.mark.parametrize("command", ["render", "summary", "memory"])
def test_every_command(layout, command, tmp_path, capsys):
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    more = ["-o", str(tmp_path / "out.svg")] if command == "render" else []
    assert main([command, str(file), "--inputs", f"{file}:{layout}", *more]) == 0
    said = capsys.readouterr()
    assert "no picture" not in said.err
    if command == "memory":
        assert "peak above these" in said.out
        assert "predicted" not in said.out
