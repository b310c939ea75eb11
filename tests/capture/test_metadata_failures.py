"""What the metadata pass does when the model raises, and when the tracer cannot follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from capture_flow import SIZE, Between, check_consistent, rows
from torch import nn

from neural_flow.capture.dataflow import DataflowTracer
from neural_flow.capture.metadata import run_metadata_pass
from neural_flow.errors import TopologyFallbackWarning

pytestmark = pytest.mark.usefixtures("nothing_left")


class Raising(nn.Module):
    def __init__(self, code: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.body = nn.ModuleDict({"a": nn.Linear(SIZE, 4), "b": Between(code)})

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor | None = None) -> torch.Tensor:
        self.body["a"](x)
        return self.body["b"](x * 2)


def test_a_failure_says_where_and_on_what() -> None:
    def code(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x[:, :2]])

    model = Raising(code)
    trace = run_metadata_pass(model, (rows(),), {"scale": torch.ones(1)})
    failure = trace.failure
    assert failure is not None
    assert (failure.module, failure.call, failure.type) == ("body.b", 0, "RuntimeError")
    assert "Sizes of tensors must match" in failure.message
    assert [meta.shape for meta in failure.inputs] == [(4, SIZE)]
    assert failure.location is not None
    assert failure.location.startswith(__file__)
    assert [(call.path, call.has_returned) for call in trace.calls] == [
        ("", False), ("body.a", True), ("body.b", False), ("body.b.first", True),
    ]  # fmt: skip
    assert trace.has_dataflow
    assert trace.outputs == ()
    check_consistent(trace)


def test_a_shape_mismatch_names_the_innermost_module() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Sequential(nn.Linear(9, 2)))
    trace = run_metadata_pass(model, (torch.rand(3, 4),))
    assert trace.failure is not None
    assert (trace.failure.module, trace.failure.type) == ("2.0", "RuntimeError")
    assert [meta.shape for meta in trace.failure.inputs] == [(3, 8)]


def test_a_failure_that_is_raised_anew_keeps_its_place() -> None:
    class Wrapping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)
            self.other = nn.Linear(SIZE, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                return self.inner(x)
            except RuntimeError as error:
                self.other(x)
                raise ValueError("told anew") from error

    trace = run_metadata_pass(Wrapping(), (rows(),))
    assert trace.failure is not None
    assert (trace.failure.module, trace.failure.type, trace.failure.message) == ("inner", "ValueError", "told anew")


def test_arguments_that_do_not_fit_are_a_failure_of_the_root() -> None:
    trace = run_metadata_pass(nn.Linear(4, 4), (rows(), 1, 2))
    assert trace.failure is not None
    assert (trace.failure.module, trace.failure.type) == ("", "TypeError")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_no_failure(error: type[BaseException]) -> None:
    def code(x: torch.Tensor) -> torch.Tensor:
        raise error

    model = Between(code).train()
    with pytest.raises(error):
        run_metadata_pass(model, (rows(),))
    assert model.training


class _Fussy(torch.Tensor):
    """A tensor subclass that refuses to be handled while any function mode is on."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.mul and _Fussy.is_watched:
            raise ValueError("not while somebody looks")
        return super().__torch_function__(func, types, args, kwargs or {})

    is_watched = False


def test_a_model_that_cannot_be_traced_is_run_without_the_tracer(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(SIZE, SIZE), Between(lambda x: x.as_subclass(_Fussy) * 2), nn.Dropout(0.5))
    x = rows()
    before = torch.get_rng_state()
    enter = DataflowTracer._enter_mode

    def watched(self: DataflowTracer) -> None:
        _Fussy.is_watched = True
        enter(self)

    monkeypatch.setattr(DataflowTracer, "_enter_mode", watched)
    monkeypatch.setattr(
        DataflowTracer,
        "_exit_mode",
        lambda self: (self._mode.__exit__(None, None, None), setattr(_Fussy, "is_watched", False)),
    )
    with pytest.warns(TopologyFallbackWarning, match="not while somebody looks"):
        trace = run_metadata_pass(model, (x,), train=True)
    assert trace.failure is None
    assert not trace.has_dataflow
    assert trace.ops == ()
    assert [call.path for call in trace.calls] == ["", "0", "1", "1.first", "1.last", "2"]
    assert trace.calls[0].outputs[0].shape == (4, SIZE)
    assert trace.notes
    assert torch.equal(torch.get_rng_state(), before)


def test_a_fault_of_the_tracer_never_reaches_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neural_flow.capture._recorder.raw_meta", lambda _: 1 / 0)
    with pytest.warns(TopologyFallbackWarning, match="ZeroDivisionError"):
        trace = run_metadata_pass(nn.Linear(4, 4), (torch.rand(2, 4),))
    assert trace.failure is None
    assert not trace.has_dataflow
