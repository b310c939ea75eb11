"""What the metadata pass knows of where outputs come from."""

from __future__ import annotations

import torch
from torch import nn

from neural_flow.capture._origins import op_word, output_origins
from neural_flow.capture.metadata import run_metadata_pass


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 6)
        self.heads = nn.ModuleDict({"score": nn.Sequential(nn.Linear(6, 3), nn.Sigmoid())})

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        h = self.body(x).relu()
        return {"score": self.heads["score"](h).unsqueeze(1), "states": h + 1, "same": x}


def test_names_and_ops_from_the_output_backwards() -> None:
    origins = output_origins(run_metadata_pass(Net().eval(), (torch.randn(2, 4),)))
    assert [origin.ops for origin in origins] == [("sigmoid", "linear"), ("add", "relu", "linear"), ()]
    assert [origin.makers for origin in origins] == [("score", "heads", "Net"), ("body", "Net"), ("Net",)]


def test_nothing_is_known_without_a_trace() -> None:
    assert output_origins(None) == ()
    assert [op_word(name) for name in ("torch.Tensor.add_", "aten.relu.default", "torch.nn.functional.linear")] == [
        "add", "relu", "linear",
    ]  # fmt: skip
