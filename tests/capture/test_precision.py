"""Models run in the precision that autocast picks, if that is asked for, and nothing of it stays."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neural_flow.capture.precision import autocast_as_asked
from neural_flow.errors import UsageError
from neural_flow.pipeline import Topology, activations, render, trace


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x)))


class Writing(Net):
    """Changes a weight in each run, after autocast has made a copy of it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.first(x)
        with torch.no_grad():
            self.first.weight.mul_(2)
        return self.last(before)


def dtypes(topology: Topology) -> list[str]:
    return [meta.dtype for stage in topology.stages for meta in stage.outputs]


def switches() -> tuple[object, ...]:
    return torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()


@pytest.mark.parametrize("model", [Net(), Writing()], ids=["plain", "writing"])
def test_values_are_those_of_autocast(model: Net) -> None:
    inputs, before, weight = torch.randn(5, 4), switches(), model.first.weight.detach().clone()
    with torch.no_grad(), torch.autocast("cpu"):
        expected = model(inputs)
    with torch.no_grad():
        model.first.weight.copy_(weight)
    found = activations(model, inputs, autocast=True, select=["first", "last"])
    assert found["last", 0].dtype is torch.bfloat16
    assert torch.equal(found["last", 0], expected)
    assert torch.equal(model.first.weight, weight)
    assert switches() == before


def test_figures_and_graphs_say_so() -> None:
    model, inputs = Net(), torch.randn(5, 4)
    plain, low = render(model, inputs), render(model, inputs, autocast=True, color_by="gradient")
    assert dtypes(plain.topology) == ["float32"] * 3
    assert dtypes(low.topology) == ["float32", "bfloat16", "bfloat16"] == dtypes(trace(model, inputs, autocast=True))
    assert low.topology.to_json()["request"]["autocast"] is True
    assert len(low.picture.measurements) == 1
    assert low.picture.capture.stats
    assert not low.picture.capture.skipped
    assert all(param.grad is None for param in model.parameters())


def test_nothing_stays_after_an_exception() -> None:
    before = switches()
    with pytest.raises(Exception, match="while running first"):
        render(Net(), torch.randn(5, 3), autocast=True)
    assert switches() == before


def test_the_device_is_that_of_the_model_or_of_its_inputs() -> None:
    model = nn.Linear(2, 2, device="meta")
    with pytest.raises(UsageError, match="no autocast on meta"):
        autocast_as_asked(model, is_on=True)
    with pytest.raises(UsageError, match="no autocast on meta"):
        autocast_as_asked(nn.ReLU(), [torch.empty(1, device="meta")], is_on=True)
    with autocast_as_asked(model, is_on=False):
        assert not torch.is_autocast_enabled("cpu")
    with autocast_as_asked(nn.ReLU(), is_on=True):
        assert torch.is_autocast_enabled("cpu")
    assert not torch.is_autocast_enabled("cpu")
