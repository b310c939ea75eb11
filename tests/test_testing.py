from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import neural_flow as nf
from neural_flow.errors import ModelLoadError, UsageError


def net(width: int = 8, act: type[nn.Module] = nn.ReLU) -> nn.Module:
    return nn.Sequential(nn.Linear(4, width), act(), nn.Linear(width, 2))


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    file = tmp_path / "graph.json"
    file.write_text(json.dumps(nf.trace(net(), torch.ones(1, 4), select="*").to_json()))
    return file


def test_weights_and_mode_do_not_count(graph: Path):
    model = net().train()
    with torch.no_grad():
        model[0].weight.zero_()
    nf.assert_architecture(model, torch.ones(1, 4), graph)
    assert model.training
    assert not model._forward_hooks


def test_the_message_lists_what_changed(graph: Path):
    with pytest.raises(AssertionError, match=r"differs from graph\.json") as caught:
        nf.assert_architecture(net(9, nn.GELU), (torch.ones(1, 4),), str(graph))
    lines = str(caught.value).splitlines()
    assert any(line.startswith("~ 0: parameters 40 → 45") for line in lines)
    assert any("ReLU → GELU" in line for line in lines)


def test_another_batch_is_another_architecture(graph: Path):
    with pytest.raises(AssertionError, match=r"\[1, 4\] → float32 \[2, 4\]"):
        nf.assert_architecture(net(), torch.ones(2, 4), graph)


def test_a_renamed_module_counts(graph: Path):
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.act, self.last = net()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.act(self.first(x)))

    with pytest.raises(AssertionError, match="0 is now first"):
        nf.assert_architecture(Named(), torch.ones(1, 4), graph)


def test_long_lists_are_cut(tmp_path: Path):
    deep = nn.Sequential(*(nn.Linear(4, 4) for _ in range(30)))
    file = tmp_path / "deep.json"
    file.write_text(json.dumps(nf.trace(deep, torch.ones(1, 4), select="*").to_json()))
    with pytest.raises(AssertionError, match=r"and \d+ more"):
        nf.assert_architecture(net(), torch.ones(1, 4), file)


def test_a_file_that_is_no_graph(tmp_path: Path):
    with pytest.raises(ModelLoadError):
        nf.assert_architecture(net(), torch.ones(1, 4), tmp_path / "absent.json")


def test_arguments_in_another_order(graph: Path):
    for arguments in ((str(graph), torch.ones(1, 4)), (graph,)):
        with pytest.raises(UsageError) as caught:
            nf.assert_architecture(net(), *arguments)
        assert "assert_architecture(model, inputs" in caught.value.hint


def test_a_layer_in_the_card_of_another_counts(tmp_path: Path):
    file = tmp_path / "graph.json"
    data = nf.trace(net(), torch.ones(1, 4)).to_json()
    file.write_text(json.dumps(data))
    nf.assert_architecture(net(), torch.ones(1, 4), file)
    with pytest.raises(AssertionError, match="~ 0: with ReLU → GELU"):
        nf.assert_architecture(net(act=nn.GELU), torch.ones(1, 4), file)
    with pytest.raises(AssertionError, match="~ 2: with nothing → ReLU"):
        nf.assert_architecture(nn.Sequential(*net(), nn.ReLU()), torch.ones(1, 4), file)
    for node in data["nodes"]:
        del node["joined_classes"]
    file.write_text(json.dumps(data))
    nf.assert_architecture(net(act=nn.GELU), torch.ones(1, 4), file)
