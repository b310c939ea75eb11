"""The dispatch tracer sees below autograd what a function mode does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from capture_flow import SIZE, Between, check_consistent, reaches, rows
from torch import nn

from neural_flow.capture.dispatch import DispatchTracer
from neural_flow.capture.metadata import run_metadata_pass
from neural_flow.records import Trace

pytestmark = pytest.mark.usefixtures("nothing_left")


def trace_of(model: nn.Module, *args: Any) -> Trace:
    trace = run_metadata_pass(model, args, tracer="dispatch")
    assert trace.failure is None
    assert trace.has_dataflow
    check_consistent(trace)
    return trace


class Scripted(nn.Module):
    """Two ways through, of which the second does not depend on the first input."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(SIZE, SIZE)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.linear(x).relu(), y * 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_it_sees_into_scripted_modules() -> None:
    def code(x: torch.Tensor, scripted: nn.Module) -> torch.Tensor:
        return scripted(torch.ones(4, SIZE), x)[0]

    model = Between(code, scripted=torch.jit.script(Scripted()))
    assert reaches(run_metadata_pass(model, (rows(),)), "first", "last")
    assert not reaches(trace_of(model, rows()), "first", "last")


@pytest.mark.parametrize(
    "code",
    [
        lambda x: torch.nested.nested_tensor([x, x]).unbind()[0],
        lambda x: torch.nested.to_padded_tensor(torch.nested.as_nested_tensor([x, x]), 0.0)[0],
        lambda x: torch.func.vmap(torch.func.grad(lambda r: r.sum() ** 2))(x),
        lambda x: x.unfold(0, 2, 1)[..., 0].cumsum(0),
        lambda x: torch.zeros(4, SIZE).scatter_reduce_(0, torch.zeros(4, SIZE, dtype=torch.long), x, "sum"),
        lambda x: torch.add(x, 1, out=torch.zeros(4, SIZE)),
    ],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_values_flow_through(code: Callable[[torch.Tensor], torch.Tensor]) -> None:
    trace = trace_of(Between(code), rows())
    assert reaches(trace, "first", "last")
    assert not [op for op in trace.ops if op.role in ("unknown", "opaque")]


@pytest.mark.parametrize(
    "code",
    [
        torch.zeros_like,
        lambda x: torch.ones(1, SIZE).expand_as(x) * torch.tensor([2.0]),
        lambda x: x.clone().copy_(torch.ones(4, SIZE)),
    ],
)
def test_lending_a_shape_is_no_dependency(code: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert not reaches(trace_of(Between(code), rows()), "first", "last")


def test_ops_and_parameters_have_their_decomposed_names() -> None:
    trace = trace_of(
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True)), torch.rand(1, 1, 8, 8)
    )
    named = [(op.target, op.params) for op in trace.ops if op.role == "op"]
    assert named[0] == ("torch.ops.aten.convolution", (0, 1))
    assert named[-1] == ("torch.ops.aten.relu_", ())
    assert reaches(trace, "0", "2")


def test_training_a_norm_connects_no_calls_by_its_statistics() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last, self.norm = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE), nn.BatchNorm1d(SIZE)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.norm(self.first(x))
            return self.last(self.norm(x))

    trace = run_metadata_pass(Twice(), (rows(),), train=True, tracer="dispatch")
    assert not reaches(trace, "first", "last")


def test_results_and_gradients_are_those_of_an_untraced_run() -> None:
    model = nn.Sequential(nn.Linear(SIZE, SIZE), nn.Identity(), nn.ReLU(inplace=True), nn.Linear(SIZE, 1))
    x = rows()
    plain = model(x)
    plain.sum().backward()
    grads = [param.grad for param in model.parameters()]
    model.zero_grad()
    with DispatchTracer(model) as tracer:
        traced = model(x)
    traced.sum().backward()
    assert torch.equal(plain, traced)
    assert all(
        a is not None and b.grad is not None and torch.equal(a, b.grad)
        for a, b in zip(grads, model.parameters(), strict=True)
    )
    assert tracer.trace.tracer == "dispatch"
    assert reaches(tracer.trace, "1", "2")


def test_a_failing_model_is_told() -> None:
    trace = run_metadata_pass(nn.Sequential(nn.Linear(4, 8), nn.Linear(9, 2)), (torch.rand(3, 4),), tracer="dispatch")
    assert trace.failure is not None
    assert trace.failure.module == "1"
    assert [call.path for call in trace.calls] == ["", "0", "1"]
