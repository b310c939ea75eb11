from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn.modules import module as module_globals

from neural_flow.capture.measure._base import MEASUREMENTS, MeasureOptions
from neural_flow.capture.metadata import run_metadata_pass
from neural_flow.records import Edge, EdgeMark, Measurements, ModelInfo, Stage, Topology, Trace


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    yield
    assert torch._C._len_torch_function_stack() == 0
    assert torch._C._len_torch_dispatch_stack() == 0
    assert not module_globals._global_forward_hooks
    assert not module_globals._global_forward_pre_hooks


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.conv(x)).relu()
        return self.head(x.mean(dim=(2, 3)))


def stages_of(trace: Trace, *paths: str) -> list[Stage]:
    found = [call for call in trace.calls if call.path in paths]
    return [
        Stage(stage_id=index, kind="module", name=call.path, label="", path=call.path, call_id=call.call_id,
              call_index=call.call_index, class_name=call.class_name, outputs=call.outputs)
        for index, call in enumerate(found)
    ]  # fmt: skip


def topology_of(*stages: Stage, edges: tuple[Edge, ...] = ()) -> Topology:
    return Topology(model=ModelInfo(name="net", class_name="Net"), stages=stages, edges=edges)


def measured(name: str, model: nn.Module, x: torch.Tensor, topology: Topology, trace: Trace) -> Measurements:
    return MEASUREMENTS.get(name)(model, (x,), {}, topology, MeasureOptions(trace=trace))


@pytest.mark.parametrize("name", MEASUREMENTS.names())
def test_every_measurement_gives_a_number_to_each_stage_and_leaves_no_trace(name: str) -> None:
    model, x = Net().train(), torch.randn(2, 1, 8, 8)
    model.head.weight.grad = torch.ones_like(model.head.weight)
    x_before, state = x.clone(), torch.get_rng_state()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    trace = run_metadata_pass(model, (x,))
    topology = topology_of(*stages_of(trace, "conv", "norm", "head"))
    found = measured(name, model, x, topology, trace)
    assert found.name == name
    assert set(found.by_stage) == {0, 1, 2}
    assert all(value >= 0 for value in found.by_stage.values())
    assert sum(found.by_stage.values()) > 0
    assert model.training
    assert torch.equal(x, x_before)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert model.conv.weight.grad is None
    assert torch.equal(model.head.weight.grad, torch.ones_like(model.head.weight))


@pytest.mark.parametrize("name", MEASUREMENTS.names())
def test_an_error_of_the_model_passes_unchanged(name: str) -> None:
    class Broken(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            super().forward(x)
            raise LookupError("mine")

    model, x = Broken(), torch.randn(1, 1, 8, 8)
    trace = run_metadata_pass(model, (x,))
    with pytest.raises(LookupError, match="mine"):
        measured(name, model, x, topology_of(*stages_of(trace, "conv")), trace)


@pytest.mark.parametrize("name", sorted(set(MEASUREMENTS.names()) - {"time", "memory", "gradient"}))
def test_joined_calls_and_marks_count_with_their_card(name: str) -> None:
    model, x = Net(), torch.randn(2, 1, 8, 8)
    trace = run_metadata_pass(model, (x,))
    conv, norm, head = stages_of(trace, "conv", "norm", "head")
    alone = measured(name, model, x, topology_of(conv, norm, head), trace).by_stage
    assert conv.call_id is not None
    assert norm.call_id is not None
    card = Stage(
        stage_id=0, kind="module", name="conv", label="", path="conv", call_id=conv.call_id, joined=(norm.call_id,)
    )
    last = Stage(stage_id=1, kind="module", name="head", label="", path="head", call_id=head.call_id)
    together = measured(name, model, x, topology_of(card, last), trace).by_stage
    assert together == {0: alone[0] + alone[1], 1: alone[2]}
    mark = EdgeMark(call_id=norm.call_id, path="norm", text="norm")
    first = Stage(stage_id=0, kind="module", name="conv", label="", path="conv", call_id=conv.call_id)
    marked = topology_of(first, last, edges=(Edge(source=0, target=1, marks=(mark,)),))
    assert measured(name, model, x, marked, trace).by_stage == {0: alone[0], 1: alone[1] + alone[2]}


@pytest.mark.parametrize("name", MEASUREMENTS.names())
def test_ops_can_be_measured_too(name: str) -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(5, 5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x @ self.weight).relu()

    model, x = Bare(), torch.randn(2, 5)
    trace = run_metadata_pass(model, (x,))
    op = next(op for op in trace.ops if op.target.endswith("matmul"))
    stage = Stage(stage_id=0, kind="op", name="matmul", label="", op_id=op.op_id, call_id=op.call_id)
    found = measured(name, model, x, topology_of(stage), trace)
    assert set(found.by_stage) == {0}
    assert found.by_stage[0] > 0
