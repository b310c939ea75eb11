"""The tracer as an instrument: what it leaves alone, and what it tells."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from capture_flow import SIZE, Between, check_consistent, reaches, rows, trace_of
from torch import nn

from neural_flow.capture import dataflow
from neural_flow.capture._functions import traits_of
from neural_flow.capture.dataflow import DataflowTracer
from neural_flow.capture.dispatch import DispatchTracer
from neural_flow.capture.metadata import run_metadata_pass
from neural_flow.probe import Probe
from neural_flow.records import Trace

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_it_leaves_no_trace_and_keeps_no_tensor() -> None:
    model = Between(lambda x: (x + 1).relu_())
    x = rows()
    seen: list[weakref.ref[torch.Tensor]] = []
    handle = model.first.register_forward_hook(lambda _m, _a, out: seen.append(weakref.ref(out)))
    with torch.no_grad(), DataflowTracer(model) as tracer:
        result = model(x)
    handle.remove()
    assert vars(x) == vars(result) == {}
    assert x._version == 0
    assert not [name for name in vars(model) if name.startswith("_nf")]
    assert seen[0]() is None
    del result
    gc.collect()
    assert tracer.trace.inputs[0].name == "x"


def test_results_are_bit_for_bit_those_of_an_untraced_run() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 5)
    )
    x = torch.rand(2, 3, 8, 8)
    torch.manual_seed(1)
    plain = model(x)
    plain.sum().backward()
    grads = [param.grad for param in model.parameters()]
    model.zero_grad()
    torch.manual_seed(1)
    with DataflowTracer(model) as tracer:
        traced = model(x)
    traced.sum().backward()
    assert torch.equal(plain, traced)
    assert all(torch.equal(a, b.grad) for a, b in zip(grads, model.parameters(), strict=True) if a is not None)
    check_consistent(tracer.trace)


def test_it_is_used_once_and_read_afterwards() -> None:
    tracer = DataflowTracer(nn.Identity())
    with pytest.raises(RuntimeError, match="ready when"):
        _ = tracer.trace
    with tracer:
        pass
    assert tracer.trace.ops == ()
    with pytest.raises(RuntimeError, match="one run"), tracer:
        pass


def test_an_exception_of_the_model_passes_and_is_told() -> None:
    error = ValueError("no")

    def code(x: torch.Tensor) -> torch.Tensor:
        raise error

    model = Between(code)
    with pytest.raises(ValueError, match="no") as caught, DataflowTracer(model) as tracer:
        model(rows())
    assert caught.value is error
    assert tracer.trace.failure is not None
    assert (tracer.trace.failure.module, tracer.trace.failure.type) == ("", "ValueError")


def test_a_second_trace_on_outputs_of_a_first_is_clean() -> None:
    first, second = Between(lambda x: x * 2), Between(lambda x: x * 3)
    with torch.no_grad():
        with DataflowTracer(first):
            result = first(rows())
        with DataflowTracer(second) as tracer:
            second(result)
    assert [op.role for op in tracer.trace.ops].count("input") == 1
    assert not [op for op in tracer.trace.ops if op.role in ("unknown", "alias")]


def test_tracers_of_two_models_nest() -> None:
    inner_model = nn.Linear(SIZE, SIZE)
    inner_traces: list[Trace] = []

    def code(x: torch.Tensor) -> torch.Tensor:
        with DataflowTracer(inner_model) as inner:
            result = inner_model(x)
        inner_traces.append(inner.trace)
        return result

    model = Between(code)
    with torch.no_grad(), DataflowTracer(model) as outer:
        model(rows())
    assert reaches(outer.trace, "first", "last")
    assert [op.target for op in inner_traces[0].ops] == ["input", "torch.nn.functional.linear"]


def test_emitted_values_are_recorded_with_their_origin() -> None:
    tracers: list[DataflowTracer] = []

    def code(x: torch.Tensor) -> torch.Tensor:
        tracers[0].record_emit("hidden", {"a": x, "b": 3})
        return x

    model = Between(code)
    with torch.no_grad():
        tracers.append(DataflowTracer(model))
        with tracers[0]:
            model(rows())
    emit = tracers[0].trace.emits[0]
    assert (emit.name, emit.call_id, emit.meta.shape) == ("hidden.a", 0, (4, SIZE))
    assert emit.refs == tracers[0].trace.calls[1].output_refs[0]


def test_every_shape_of_tensor_has_a_record() -> None:
    class Root(nn.Module):
        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return [
                    x.to_sparse(),
                    x.to_sparse_csr(),
                    torch.nested.nested_tensor([x, x[:2]], layout=torch.jagged),
                    torch.nested.nested_tensor([x, x[:2]]),
                    torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
                    x.sum(),
                    x[:0],
                    x > 0,
                ]

    with torch.no_grad(), DataflowTracer(model := Root()) as tracer:
        model(torch.ones(4, 3))
    metas = [leaf.meta for leaf in tracer.trace.outputs]
    assert [(meta.shape, meta.dtype, meta.layout, meta.stored_numel) for meta in metas] == [
        ((4, 3), "float32", "sparse_coo", 12),
        ((4, 3), "float32", "sparse_csr", 12),
        ((2, 4, 3), "float32", "nested", 18),
        ((2, 4, 3), "float32", "nested", 18),
        ((4, 3), "qint8", "strided", None),
        ((), "float32", "strided", None),
        ((0, 3), "float32", "strided", None),
        ((4, 3), "bool", "strided", None),
    ]


@pytest.mark.parametrize("kind", [DataflowTracer, DispatchTracer])
def test_both_tracers_see_the_same_flow(kind: Callable[[nn.Module], DataflowTracer]) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.up = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
            self.join, self.norm, self.act = nn.Conv2d(8, 1, 1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            skip = self.act(self.norm(self.down(x)))
            deep = self.act(self.up(F.max_pool2d(skip, 2)) + F.max_pool2d(skip, 2))
            return self.join(torch.cat([F.interpolate(deep, scale_factor=2), skip], 1))

    model = Net().eval()
    with torch.no_grad(), kind(model) as tracer:
        model(torch.rand(1, 1, 8, 8))
    trace = tracer.trace
    check_consistent(trace)
    paths = ["down", "norm", "up", "join"]
    found = {(a, b) for a in paths for b in paths if reaches(trace, a, b)}
    assert found == {
        ("down", "norm"),
        ("down", "up"),
        ("norm", "up"),
        ("norm", "join"),
        ("down", "join"),
        ("up", "join"),
    }


def test_emits_of_probes_are_recorded_where_they_happen() -> None:
    probe = Probe.make(name="attention")

    class Emitting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(SIZE, SIZE)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.inner(x)
            torch.func.vmap(lambda row: (probe.emit(row), row)[1])(y)
            probe.emit({"twice": y * 2})
            return y

    model = Between(lambda x, middle: middle(x), middle=Emitting())
    trace = trace_of(model, rows())
    inner = next(call for call in trace.calls if call.path == "middle.inner")
    assert [(emit.name, trace.calls[emit.call_id or 0].path) for emit in trace.emits] == [
        ("attention", "middle"),
        ("attention.twice", "middle"),
    ]
    assert trace.emits[0].refs == inner.output_refs[0]
    assert trace.ops[trace.emits[1].refs[0][0]].target == "torch.Tensor.mul"


class Updates(nn.Module):
    """Updates in place: of results, views, buffers, parameters, inputs; by methods, operators, keywords."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.scale = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Parameter(torch.ones(4, 1, 1))
        self.act = nn.ReLU(inplace=True)
        self.register_buffer("seen", torch.zeros(4, 6, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(self.norm(self.conv(x)))
        y += self.scale
        half = y[:, :2]
        half.mul_(2)
        y.add_(y)
        self.seen.add_(y[0])
        y.map_(y * 3, lambda a, b: a + b)
        z = y.contiguous(memory_format=torch.channels_last).clone().relu_()
        with torch.no_grad():
            self.scale.add_(1)
        x.neg_()
        torch.add(z, self.seen, out=z)
        return z * self.scale + F.hardtanh(x.mean() + y[:, 1:], inplace=True).sum()


@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
def test_the_short_ways_record_what_the_long_way_records(train: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Updates().train(train)
    args = (torch.randn(2, 3, 8, 8),)
    short = run_metadata_pass(model, args, train=train)
    monkeypatch.setattr(dataflow, "traits_of", lambda func: traits_of(func)._replace(is_plain=False, is_update=False))
    assert run_metadata_pass(model, args, train=train) == short
    assert short.failure is None
    assert [op.target for op in short.ops].count("torch.Tensor.add_") == 4 + train  # training counts batches


def test_a_function_that_only_hands_on_what_is_known() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        one, two = torch.broadcast_tensors(x, x * 2)
        again = torch.broadcast_tensors(one, two)
        return again[0] + again[1]

    trace_of(Between(forward), rows())
