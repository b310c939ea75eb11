"""The metadata pass: its trace, what it falls back to, and what it says when the model raises."""

from __future__ import annotations

import gc
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from capture_flow import SIZE, Between, check_consistent, reaches, rows
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from neural_flow.capture.metadata import run_metadata_pass
from neural_flow.errors import UnknownNameError

pytestmark = pytest.mark.usefixtures("nothing_left")


class UNet(nn.Module):
    """Two levels, a concatenated skip, a residual sum and one activation used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.enc1, self.enc2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.mid, self.up = nn.Conv2d(8, 8, 3, padding=1), nn.ConvTranspose2d(8, 4, 2, 2)
        self.dec1, self.head, self.act = nn.Conv2d(8, 4, 3, padding=1), nn.Conv2d(4, 2, 1), nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skip = self.act(self.enc1(x))
        deep = self.enc2(F.max_pool2d(skip, 2))
        deep = self.act(self.mid(deep)) + deep
        return self.head(self.dec1(torch.cat([self.up(deep), skip], 1)))


def test_the_trace_of_a_unet() -> None:
    trace = run_metadata_pass(UNet(), (torch.rand(1, 1, 8, 8),), model_name="unet")
    check_consistent(trace)
    assert (trace.model_name, trace.class_name, trace.tracer) == ("unet", "UNet", "function")
    assert [(call.path, call.call_index) for call in trace.calls] == [
        ("", 0), ("enc1", 0), ("act", 0), ("enc2", 0), ("mid", 0), ("act", 1), ("up", 0), ("dec1", 0), ("head", 0),
    ]  # fmt: skip
    outputs = {(call.path, call.call_index): call.output_refs[0][0] for call in trace.calls}
    cat = next(op for op in trace.ops if op.target == "torch.cat")
    assert set(cat.parents) == {outputs["up", 0], outputs["act", 0]}
    add = next(op for op in trace.ops if op.target == "torch.Tensor.add")
    assert set(add.parents) == {outputs["act", 1], outputs["enc2", 0]}
    assert trace.outputs[0].refs == (outputs["head", 0],)
    assert trace.outputs[0].meta.shape == (1, 2, 8, 8)
    assert trace.calls[0].inputs[0].shape == (1, 1, 8, 8)


def test_parameters_and_modules_are_counted_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 3)
            self.head = nn.Linear(3, 5, bias=False)
            self.head.weight = self.table.weight
            self.gates = nn.ParameterList([nn.Parameter(torch.ones(2)) for _ in range(2)])
            self.loose = nn.Parameter(torch.ones(7, dtype=torch.float16), requires_grad=False)
            self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3, bias=False))

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.normed(self.table(ids)))

    model = Tied()
    trace = run_metadata_pass(model, (torch.tensor([1]),))
    root = trace.modules[0]
    distinct = list(model.parameters())
    assert root.num_params == sum(param.numel() for param in distinct)
    assert root.num_trainable_params == root.num_params - 7
    assert root.param_nbytes == sum(param.numel() * param.element_size() for param in distinct)
    names = {info.names for info in trace.params}
    assert ("table.weight", "head.weight") in names
    assert ("normed.parametrizations.weight.original0",) in names
    by_path = {info.path: info for info in trace.modules}
    assert set(by_path) == {"", "table", "head", "gates", "normed"}
    assert by_path["head"].param_ids == by_path["table"].param_ids
    assert by_path["normed"].class_name == "Linear"
    assert by_path["normed"].num_params == 12
    assert by_path["gates"].num_params == 4
    assert [trace.params[i].names for i in root.own_param_ids] == [("loose",)]
    assert not any("parametrizations" in call.path for call in trace.calls)


def test_lazy_parameters_are_counted_as_they_became() -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    trace = run_metadata_pass(model, (torch.rand(2, 5),))
    assert trace.modules[0].num_params == 18
    assert trace.calls[1].class_name == "Linear"
    assert isinstance(model[0], nn.LazyLinear)


def test_half_precision_counts_two_bytes() -> None:
    trace = run_metadata_pass(nn.Linear(4, 4).bfloat16(), (torch.rand(2, 4).bfloat16(),))
    assert trace.modules[0].param_nbytes == 40
    assert trace.outputs[0].meta.dtype == "bfloat16"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_packed_weights_of_quantized_modules_are_counted() -> None:
    plain = nn.Sequential(nn.Linear(SIZE, 4), nn.ReLU())
    model = torch.ao.quantization.quantize_dynamic(plain, {nn.Linear})
    trace = run_metadata_pass(model, (rows(),))
    assert trace.modules[0].num_params == SIZE * 4 + 4
    assert trace.modules[0].param_nbytes == SIZE * 4 + 4 * 4
    linear = next(op for op in trace.ops if "linear" in op.target)
    assert [trace.params[param_id].dtype for param_id in linear.params] == ["qint8", "float32"]


def test_the_user_sees_no_warning_of_an_ordinary_run() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_metadata_pass(UNet(), (torch.rand(1, 1, 8, 8),))


def test_an_unknown_tracer_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="tracer"):
        run_metadata_pass(nn.Identity(), tracer="magic")


_OTHER = nn.Linear(SIZE, SIZE)
_TABLE = torch.arange(8.0)


class _Settings:
    scale = torch.full((SIZE,), 2.0)

    def __init__(self) -> None:
        self.shift = torch.ones(SIZE)


_SETTINGS = _Settings()


@pytest.mark.parametrize(
    "code",
    [
        lambda x: x + _TABLE,
        lambda x: x * _Settings.scale + _SETTINGS.shift,
        (lambda table: lambda x: x + table)(torch.ones(SIZE)),
        lambda x: _OTHER(x),
    ],
)
def test_tensors_of_the_users_program_are_constants(code: Callable[[torch.Tensor], torch.Tensor]) -> None:
    trace = run_metadata_pass(Between(code), (rows(),))
    assert reaches(trace, "first", "last")
    assert {op.role for op in trace.ops} <= {"input", "op", "alias"}
    assert trace.tracer == "function"


def test_a_forward_that_writes_parameters_is_told_and_undone() -> None:
    class Writing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept, self.written, self.viewed = (nn.Linear(SIZE, SIZE) for _ in range(3))
            self.table = nn.Embedding(4, SIZE, max_norm=0.1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.written.weight.data.mul_(0.5)
            with torch.no_grad():
                self.viewed.weight[0].copy_(x[0])
                torch.add(self.written.bias, 1, out=self.written.bias)
            return self.kept(x) + self.viewed(x) + self.written(x) + self.table(torch.tensor([1]))

    model = Writing()
    before = {name: (param.detach().clone(), param._version) for name, param in model.named_parameters()}
    for tracer in ("function", "dispatch"):
        trace = run_metadata_pass(model, (rows(),), tracer=tracer)
        names = {trace.params[param_id].names[0] for param_id in trace.written_param_ids}
        assert names == {"written.weight", "written.bias", "viewed.weight", "table.weight"}
        linear = [op for op in trace.ops if op.call_id == 2]
        assert any(trace.inputs[0].refs[0][0] in _ancestors(trace.ops, op.op_id) for op in linear)
        for name, param in model.named_parameters():
            assert torch.equal(param, before[name][0]), name
            assert param._version == before[name][1], name


def _ancestors(ops: Any, op_id: int) -> set[int]:
    seen: set[int] = set()
    waiting = [op_id]
    while waiting:
        for parent, _ in ops[waiting.pop()].parents:
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return seen


@pytest.mark.parametrize("kind", ["real", "built fake", "built on meta"])
def test_fake_runs_need_no_data(kind: str) -> None:
    def build() -> nn.Module:
        return nn.ModuleDict({"lstm": nn.LSTM(SIZE, SIZE), "norm": nn.BatchNorm1d(SIZE), "net": UNet()})

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = build()
            self.big = nn.Linear(SIZE, 300_000, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y, _ = self.parts["lstm"](x)
            image = self.parts["norm"](y).view(1, 1, SIZE, SIZE)
            return self.big(self.parts["net"](image)).view(2, SIZE, 300_000)

    if kind == "built fake":
        with FakeTensorMode(allow_non_fake_inputs=True):
            model = Root()
    elif kind == "built on meta":
        with torch.device("meta"):
            model = Root()
    else:
        model = Root()
    params = {name: (id(param), id(param.data) and param.device.type) for name, param in model.named_parameters()}
    trace = run_metadata_pass(model, (torch.rand(SIZE, SIZE),), fake=True)
    assert trace.failure is None
    assert trace.has_dataflow
    assert trace.notes == ("run on fake tensors",)
    assert trace.outputs[0].meta.shape == (2, SIZE, 300_000)
    assert trace.outputs[0].meta.device == "cpu"
    check_consistent(trace)
    assert reaches(trace, "parts.lstm", "parts.net.head")
    assert params == {
        name: (id(param), id(param.data) and param.device.type) for name, param in model.named_parameters()
    }


def test_a_failure_on_fake_tensors_is_told() -> None:
    trace = run_metadata_pass(nn.Linear(4, 4), (torch.rand(2, 5),), fake=True)
    assert trace.failure is not None
    assert trace.failure.type == "RuntimeError"


def test_running_twice_gives_the_same_trace() -> None:
    model = nn.Sequential(nn.Linear(SIZE, SIZE), nn.Dropout(0.5), nn.BatchNorm1d(SIZE))
    x = rows()
    first = run_metadata_pass(model, (x,), train=True)
    assert run_metadata_pass(model, (x,), train=True) == first


def test_nothing_waits_for_the_garbage_collector() -> None:
    seen: list[weakref.ref[torch.Tensor]] = []

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(2))
            self.plain = torch.zeros(2)
            self.norm = nn.BatchNorm1d(SIZE)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(x) * 2
            seen.extend(map(weakref.ref, (x, y, self.cache, self.plain, self.norm.running_mean)))
            return y

    model, x = Watched(), rows()
    gc.collect()
    gc.disable()
    try:
        for tracer in ("function", "dispatch"):
            run_metadata_pass(model, (x,), tracer=tracer)
            assert [ref() for ref in seen] == [None] * len(seen), tracer
    finally:
        gc.enable()


def test_no_tensor_outlives_the_pass() -> None:
    model, x = UNet(), torch.rand(1, 1, 8, 8)
    run_metadata_pass(model, (x,))
    gc.collect()
    before = sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())
    trace = run_metadata_pass(model, (x,))
    gc.collect()
    assert sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects()) == before
    assert trace.ops


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("wrap", ["compile", "script", "fx", "export", "parallel", "weight_norm"])
def test_roots_of_every_make(wrap: str) -> None:
    plain, x = nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU()), rows()
    wraps: dict[str, Callable[[], Any]] = {
        "compile": lambda: torch.compile(plain),
        "script": lambda: torch.jit.script(plain),
        "fx": lambda: torch.fx.symbolic_trace(plain),
        "export": lambda: torch.export.export(plain, (x,)).module(),
        "parallel": lambda: nn.DataParallel(plain),
        "weight_norm": lambda: nn.Sequential(nn.utils.weight_norm(plain[0]), plain[1]),
    }
    trace = run_metadata_pass(wraps[wrap](), (x,))
    assert trace.failure is None
    assert trace.has_dataflow
    check_consistent(trace)
    assert trace.calls[0].path == ""
    assert len(trace.inputs) == len(trace.outputs) == 1
    assert _ancestors(trace.ops, trace.outputs[0].refs[0][0]) >= {trace.inputs[0].refs[0][0]}
    assert trace.modules[0].num_params in (SIZE * SIZE + SIZE, SIZE * SIZE + 2 * SIZE)


@pytest.mark.slow
def test_a_model_that_begins_to_compile_is_run_eagerly() -> None:
    """In a process of its own, because compiling is imported but once."""
    code = """
import sys, torch
from torch import nn
from neural_flow.capture.metadata import run_metadata_pass

class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x)
        return self.last(torch.cond(x.sum() > 0, lambda z: z + 1, lambda z: z - 1, (x,)))

assert "torch._dynamo" not in sys.modules
trace = run_metadata_pass(Branching(), (torch.ones(2, 4),))
assert trace.has_dataflow, trace.notes
print([op.target.rpartition(".")[2] for op in trace.ops])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "cond" in result.stdout
