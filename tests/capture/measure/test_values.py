"""Measured numbers against their definition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neural_flow.capture.measure._base import MEASUREMENTS, MeasureOptions
from neural_flow.capture.measure.gradient import loss_of, loss_words
from neural_flow.capture.metadata import run_metadata_pass
from neural_flow.records import ModelInfo, Stage, Topology


def by_path(name: str, model: nn.Module, args: tuple[Any, ...], *paths: str, **options: Any) -> dict[str, float]:
    trace = run_metadata_pass(model, args)
    stages = tuple(
        Stage(stage_id=index, kind="module", name=call.path, label="", path=call.path, call_id=call.call_id)
        for index, call in enumerate(call for call in trace.calls if call.path in paths)
    )
    topology = Topology(model=ModelInfo(name="", class_name=""), stages=stages, edges=())
    found = MEASUREMENTS.get(name)(model, args, {}, topology, MeasureOptions(trace=trace, **options))
    return {stages[stage_id].path: value for stage_id, value in found.by_stage.items()}


class Attends(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x)


@pytest.mark.parametrize(
    ("module", "x", "flops"),
    [
        (nn.Linear(5, 7), torch.randn(3, 5), 2 * 3 * 5 * 7),
        (nn.Conv2d(2, 4, 3, padding=1), torch.randn(1, 2, 8, 8), 2 * 8 * 8 * 4 * 2 * 9),
        (nn.ReLU(), torch.randn(3, 5), 0),
        (Attends(), torch.randn(2, 3, 16, 8), 2 * 2 * 2 * 3 * 16 * 16 * 8),
        (nn.LSTM(6, 5, batch_first=True), torch.randn(2, 4, 6), 2 * 2 * 4 * 20 * (6 + 5)),
    ],
)
def test_flops_are_twice_the_multiplications(module: nn.Module, x: torch.Tensor, flops: int) -> None:
    assert by_path("flops", nn.Sequential(module), (x,), "0") == {"0": flops}


def test_saved_bytes_are_those_of_activations_only_and_counted_once() -> None:
    class Twice(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * x * x

    model = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), Twice(), nn.Linear(20, 5))
    x = torch.randn(4, 10)
    found = by_path("saved", model, (x,), "0", "1", "2", "3")
    assert found["0"] == x.numel() * 4  # the input; the weight is a parameter
    assert found["1"] == 4 * 20 * 4  # the result
    assert found["2"] == 4 * 20 * 4  # x is known already, x * x is new
    assert found["3"] == 4 * 20 * 4
    frozen = nn.Sequential(nn.Linear(10, 20).requires_grad_(False), nn.ReLU())
    assert by_path("saved", frozen, (x,), "0", "1") == {"0": 0, "1": 0}


def test_memory_is_the_peak_above_what_lived_before() -> None:
    class Chain(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x + 1  # x is alive, one more
            z = y + 1  # two more
            del y
            return z + 1  # two more again

    class Views(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(-1)[1:].t()

    x = torch.randn(1000)
    found = by_path("memory", nn.Sequential(Chain(), Views()), (x,), "0", "1")
    assert found == {"0": 2 * 4000, "1": 0}


def test_time_is_spent_where_the_work_is() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 400), nn.Linear(400, 4000))
    found = by_path("time", model, (torch.randn(200, 4),), "0", "2")
    assert 0 < found["0"] < found["2"] < 30


def test_gradient_norms_are_those_at_the_output_of_each_stage() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.same, self.act = nn.Linear(6, 6), nn.Identity(), nn.ReLU(inplace=True)
            self.last, self.unused = nn.Linear(6, 2), nn.Linear(6, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.first(x)
            self.unused(x)
            return self.last(self.act(hidden + 0) + self.same(hidden) * 2)

    torch.manual_seed(0)
    model, x = Net(), torch.randn(3, 6)
    found = by_path("gradient", model, (x,), "first", "same", "act", "last", "unused")
    hidden = model.first(x).detach().requires_grad_()
    output = model.last(hidden.relu() + hidden * 2)
    output.retain_grad()
    output.square().mean().backward()
    assert output.grad is not None
    assert hidden.grad is not None
    at_sum = output.grad @ model.last.weight.detach()
    assert set(found) == {"first", "same", "act", "last"}
    assert found["last"] == pytest.approx(float(output.grad.norm()), rel=1e-5)
    assert found["first"] == pytest.approx(float(hidden.grad.norm()), rel=1e-5)
    assert found["act"] == pytest.approx(float(at_sum.norm()), rel=1e-5)
    assert found["same"] == pytest.approx(float(2 * at_sum.norm()), rel=1e-5)  # its own part, not the total


def test_the_loss_can_be_given_or_is_taken_from_the_output() -> None:
    model, x = nn.Sequential(nn.Linear(3, 3)), torch.randn(2, 3)

    def loss(output: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        assert given.shape == (2, 3)
        return output.sum() * 5

    assert by_path("gradient", model, (x,), "0", loss=loss)["0"] == pytest.approx(5 * 6**0.5)

    class Output:
        def __init__(self, loss: torch.Tensor) -> None:
            self.loss = loss

    assert loss_of(Output(torch.tensor([4.0])), (), None).tolist() == 4.0
    assert loss_of({"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([2]), "c": "x"}, (), None).tolist() == 2.5
    with pytest.raises(ValueError, match="no floating-point"):
        loss_of({"b": torch.tensor([2])}, (), None)


def test_gradients_of_nothing_are_refused() -> None:
    model = nn.Sequential(nn.Linear(3, 3)).requires_grad_(False)
    with pytest.raises(ValueError, match="depends on nothing"):
        by_path("gradient", model, (torch.randn(2, 3),), "0")


def test_the_loss_behind_gradients_is_named() -> None:
    class Scored(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> Any:
            return SimpleNamespace(loss=self.fc(x).sum())

    def my_loss(output: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        return output.sum()

    x = torch.randn(2, 4)
    assert loss_words(nn.Linear(4, 2)(x), None) == "the mean square of all outputs"
    assert loss_words(Scored()(x), None) == "the model's own loss"
    assert loss_words(x, my_loss) == "my_loss"
