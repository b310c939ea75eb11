"""Module calls: what goes in, what comes out, and what a call makes itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from capture_flow import SIZE, Between, check_consistent, reaches, rows, trace_of
from torch import nn

from neural_flow.capture.dataflow import DataflowTracer
from neural_flow.capture.metadata import run_metadata_pass

pytestmark = pytest.mark.usefixtures("nothing_left")


@dataclasses.dataclass
class _Box:
    value: torch.Tensor
    label: str = ""


class _Cache(nn.Module):
    def __init__(self, *, is_buffer: bool) -> None:
        super().__init__()
        if is_buffer:
            self.register_buffer("cache", torch.zeros(4, SIZE))
        else:
            self.cache = torch.zeros(4, SIZE)
        self.first, self.second, self.last = (nn.Linear(SIZE, SIZE) for _ in range(3))
        self.other = nn.Linear(SIZE, SIZE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        position = torch.tensor(2)
        self.cache[0] = self.first(x)[0]
        self.cache[position] = self.second(x)[0]
        return self.last(self.cache[:1]) + self.other(self.cache[1:])


@pytest.mark.parametrize("is_buffer", [True, False])
def test_a_cache_is_split_by_what_was_written_where(is_buffer: bool) -> None:
    model = _Cache(is_buffer=is_buffer)
    trace = trace_of(model, rows())
    assert reaches(trace, "first", "last")
    assert not reaches(trace, "second", "last")
    assert reaches(trace, "second", "other")
    assert not reaches(trace, "first", "other")
    assert not model.cache.any()


def test_an_unwritten_buffer_is_a_constant() -> None:
    model = nn.BatchNorm1d(SIZE).eval()
    trace = trace_of(model, rows())
    assert [op.target for op in trace.ops] == ["input", "torch.nn.functional.batch_norm"]
    assert trace.ops[1].params == (0, 1)
    assert trace.ops[1].parents == ((0, 0),)


def test_running_statistics_do_not_connect_the_calls_of_one_norm() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last, self.norm = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE), nn.BatchNorm1d(SIZE)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.norm(self.first(x))
            return self.last(self.norm(x))

    trace = run_metadata_pass(Twice(), (rows(),), train=True)
    check_consistent(trace)
    norms = [op for op in trace.ops if op.target.endswith("batch_norm")]
    assert len(norms) == 2
    assert norms[1].parents == trace.calls[0].input_refs[0]


class _Parent(nn.Module):
    def __init__(
        self, middle: nn.Module, code: Callable[[nn.Module, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
    ) -> None:
        super().__init__()
        self.first, self.middle = nn.Linear(SIZE, SIZE), middle
        self.of_result, self.of_original = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE)
        self.code = code

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        original = self.first(x)
        original, result = self.code(self.middle, original)
        return self.of_result(result) + self.of_original(original)


class _Dict(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"same": x, "double": x * 2, "label": "kept"}


class _List(nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [x, x]


class _Named(NamedTuple):
    same: torch.Tensor
    text: str


class _NamedModule(nn.Module):
    def forward(self, x: torch.Tensor) -> _Named:
        return _Named(x, "kept")


class _Object:
    def __init__(self, value: torch.Tensor) -> None:
        self.value = value


class _ObjectModule(nn.Module):
    def forward(self, x: torch.Tensor) -> _Object:
        return _Object(x)


class _PackedModule(nn.Module):
    def forward(self, packed: nn.utils.rnn.PackedSequence) -> nn.utils.rnn.PackedSequence:
        return packed


class _BoxModule(nn.Module):
    def forward(self, x: torch.Tensor) -> _Box:
        return _Box(x, "kept")


@pytest.mark.parametrize(
    ("middle", "take"),
    [
        (nn.Identity(), lambda y: y),
        (nn.Dropout(0.5), lambda y: y),
        (nn.Sequential(nn.Identity(), nn.Identity()), lambda y: y),
        (_Dict(), lambda y: y["same"]),
        (_List(), lambda y: y[1]),
        (_NamedModule(), lambda y: y.same),
        (_BoxModule(), lambda y: y.value),
        (_ObjectModule(), lambda y: y.value),
    ],
)
def test_a_module_that_returns_its_input_stands_between(middle: nn.Module, take: Callable[[Any], torch.Tensor]) -> None:
    trace = trace_of(_Parent(middle, lambda m, x: (x, take(m(x)))), rows())
    assert reaches(trace, "first", "middle")
    assert reaches(trace, "middle", "of_result")
    assert not reaches(trace, "middle", "of_original")
    assert reaches(trace, "first", "of_original")
    assert any(op.role == "alias" for op in trace.ops)


def test_a_packed_sequence_that_is_handed_on_stays_one() -> None:
    def code(m: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        packed = nn.utils.rnn.pack_padded_sequence(x[None], torch.tensor([4]), batch_first=True)
        handed = m(packed)
        assert isinstance(handed, nn.utils.rnn.PackedSequence)
        assert handed.data is not packed.data
        return packed.data, nn.utils.rnn.pad_packed_sequence(handed, batch_first=True)[0][0]

    trace = trace_of(_Parent(_PackedModule(), code), rows())
    assert reaches(trace, "middle", "of_result")
    assert not reaches(trace, "middle", "of_original")


def test_containers_that_others_hold_stay_the_same_objects() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.state: dict[str, torch.Tensor] = {}
            self.given: list[object] = []

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            self.state["x"] = x
            return self.state

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.holder = Holder()
            self.is_same: list[bool] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            state = self.holder(x)
            is_same = state is self.holder.state and state["x"] is x
            return x * (1 if is_same else torch.nan)

    model = Root()
    with torch.no_grad(), DataflowTracer(model) as tracer:
        result = model(rows())
    assert tracer.error is None
    assert not result.isnan().any()


def test_a_module_that_returns_its_parameter_is_a_root() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.ones(SIZE))

        def forward(self) -> torch.Tensor:
            return self.table

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.last = Table(), nn.Linear(SIZE, SIZE)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(x + self.table()) + self.table.table

    trace = trace_of(Root(), rows())
    assert reaches(trace, "table", "last")
    alias = next(op for op in trace.ops if op.role == "alias")
    assert (alias.params, alias.parents) == ((0,), ())
    assert trace.ops[-1].params == (0,)


def test_an_in_place_module_makes_its_value_itself() -> None:
    trace = trace_of(Between(lambda x, middle: (middle(x), x)[1], middle=nn.ReLU(inplace=True)), rows())
    assert reaches(trace, "middle", "last")
    assert not any(op.role == "alias" for op in trace.ops)


def test_inputs_of_a_call_are_what_went_in_although_it_overwrote_them() -> None:
    class Overwriting(nn.Module):
        def forward(self, *, x: torch.Tensor) -> torch.Tensor:
            return x.mul_(2).add_(1)

    trace = trace_of(Between(lambda x, middle: middle(x=x), middle=Overwriting()), rows())
    first = next(call for call in trace.calls if call.path == "first")
    middle = next(call for call in trace.calls if call.path == "middle")
    assert middle.input_refs == first.output_refs
    assert middle.output_refs != middle.input_refs


def test_a_failing_call_that_is_caught_leaves_the_stack_right() -> None:
    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(SIZE, SIZE)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.inner(x)
            raise ValueError("no")

    def code(x: torch.Tensor, middle: nn.Module) -> torch.Tensor:
        with pytest.raises(ValueError, match="no"):
            middle(x)
        return x * 2

    trace = trace_of(Between(code, middle=Failing()), rows())
    assert [(call.path, call.has_returned) for call in trace.calls] == [
        ("", True),
        ("first", True),
        ("middle", False),
        ("middle.inner", True),
        ("last", True),
    ]
    assert next(op for op in trace.ops if op.target == "torch.Tensor.mul").call_id == 0


def test_reused_modules_are_calls_of_their_own() -> None:
    class Reused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = nn.GRUCell(SIZE, SIZE)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            state = torch.zeros(4, SIZE)
            while state.shape[0] and len(seen) < 3:
                state = self.step(x, state)
                seen.append(1)
            return state

    seen: list[int] = []
    trace = trace_of(Reused(), rows())
    steps = trace.calls[1:]
    assert [(call.path, call.call_index) for call in steps] == [("step", 0), ("step", 1), ("step", 2)]
    assert steps[2].input_refs[1] == steps[1].output_refs[0]
    assert trace.modules[0].num_params == sum(p.numel() for p in nn.GRUCell(SIZE, SIZE).parameters())


def test_children_reached_by_method_or_forward_belong_to_the_caller() -> None:
    class Child(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(SIZE, SIZE)

        def encode(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) * 2

    def code(x: torch.Tensor, middle: Any) -> torch.Tensor:
        return middle.inner.forward(middle.encode(x))

    trace = trace_of(Between(code, middle=Child()), rows())
    assert [call.path for call in trace.calls] == ["", "first", "middle.inner", "last"]
    assert reaches(trace, "first", "middle.inner")
    assert reaches(trace, "middle.inner", "last")
    assert trace.ops[-2].call_id == 0


def test_modules_in_plain_containers_have_paths() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = [nn.Linear(SIZE, SIZE), nn.ReLU()]
            self.heads = {"a": nn.Linear(SIZE, 2)}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for step in self.steps:
                x = step(x)
            return self.heads["a"](x)

    trace = trace_of(Plain(), rows())
    assert [call.path for call in trace.calls] == ["", "steps.0", "steps.1", "heads.a"]
    assert trace.modules[0].num_params == SIZE * SIZE + SIZE + 2 * SIZE + 2


def test_routing_reaches_only_the_experts_that_were_chosen() -> None:
    class Routed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(SIZE, 3)
            self.experts = nn.ModuleList(nn.Linear(SIZE, SIZE) for _ in range(3))
            self.last = nn.Linear(SIZE, SIZE)
            nn.init.zeros_(self.gate.weight)
            nn.init.constant_(self.gate.bias[1], 5.0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights, chosen = self.gate(x).softmax(-1).topk(1)
            result = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                rows = (chosen == number).any(-1).nonzero().flatten()
                if len(rows):
                    result.index_add_(0, rows, expert(x[rows]) * weights[rows])
            return self.last(result)

    trace = trace_of(Routed(), rows())
    assert [call.path for call in trace.calls] == ["", "gate", "experts.1", "last"]
    assert reaches(trace, "experts.1", "last")
    assert reaches(trace, "gate", "last")


def test_ops_say_where_in_the_users_code_they_stand() -> None:
    trace = trace_of(Between(lambda x: x + 1), rows())
    location = next(op for op in trace.ops if op.target == "torch.Tensor.add").location
    assert location is not None
    file, _, line = location.rpartition(":")
    assert file == __file__
    assert "x + 1" in Path(__file__).read_text(encoding="utf-8").splitlines()[int(line) - 1]


def test_parameters_are_read_directly_or_through_ops_on_them() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, SIZE)
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return (self.table(ids) * self.scale) @ self.table.weight.t()

    trace = trace_of(Tied(), torch.tensor([1, 2]))
    by_target = {op.target.rpartition(".")[2]: op for op in trace.ops}
    assert by_target["embedding"].params == (1,)
    assert by_target["mul"].params == (0,)
    assert by_target["t"].params == (1,)
    assert by_target["t"].parents == ()
    assert (by_target["t"].op_id, 0) in by_target["matmul"].parents


def test_distributions_carry_values() -> None:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = nn.Linear(SIZE, SIZE)

        def forward(self, x: torch.Tensor) -> torch.distributions.Normal:
            return torch.distributions.Normal(self.mean(x), torch.ones(SIZE))

    trace = trace_of(Between(lambda x, middle: middle(x).rsample(), middle=Head()), rows())
    assert reaches(trace, "middle.mean", "last")
    assert reaches(trace, "middle", "last")
    head = next(call for call in trace.calls if call.path == "middle")
    assert len(head.outputs) == 2


def test_tensors_deep_in_an_input_object_are_constants() -> None:
    class Layer:
        def __init__(self) -> None:
            self.length = torch.ones(SIZE)

    class Cache:
        def __init__(self) -> None:
            self.layers = [Layer()]

    class Cached(nn.Module):
        def forward(self, x: torch.Tensor, cache: Cache) -> torch.Tensor:
            return x * cache.layers[0].length

    trace = trace_of(Cached(), rows(), Cache())
    assert [leaf.name for leaf in trace.inputs] == ["x"]
    assert [op.role for op in trace.ops] == ["input", "op"]
    assert trace.tracer == "function"
