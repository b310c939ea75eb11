"""Outputs of every make: containers, empty ones, objects; and tensors that an earlier trace has seen."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from asked import edges_of
from torch import nn

import neural_flow as nf


@dataclasses.dataclass
class Found:
    value: torch.Tensor
    rest: torch.Tensor | None = None


CHILDREN = {
    "dict": (lambda y: {"x": y}, lambda made: made["x"]),
    "list": (lambda y: [y], lambda made: made[0]),
    "empty tuple inside": (lambda y: (y, ()), lambda made: made[0]),
    "empty dict inside": (lambda y: {"y": y, "none": {}}, lambda made: made["y"]),
    "dataclass": (Found, lambda made: made.value),
    "none inside": (lambda y: (None, y), lambda made: made[1]),
}


class Child(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.make = make

    def forward(self, x):
        return self.make(self.layer(x))


class Parent(nn.Module):
    def __init__(self, make, take):
        super().__init__()
        self.child, self.head = Child(make), nn.Linear(4, 2)
        self.take = take

    def forward(self, x):
        return self.head(self.take(self.child(x)))


@pytest.mark.parametrize("name", CHILDREN)
def test_a_child_may_return_any_container(name):
    model = Parent(*CHILDREN[name])
    assert edges_of(model, torch.rand(2, 4), select=["child", "head"]) == {
        ("x", "child"),
        ("child", "head"),
        ("head", "output"),
    }


@pytest.mark.parametrize("name", CHILDREN)
def test_gradients_are_measured_behind_any_container(name):
    model = Parent(*CHILDREN[name])
    drawing = nf.render(model, torch.rand(2, 4), select=["child", "head"], gradients=True)
    measured = next(one for one in drawing.picture.measurements if one.name == "gradient").by_stage
    names = {one.stage_id: one.name for one in drawing.topology.record.stages}
    assert {names[key] for key, value in measured.items() if value > 0} >= {"child", "head"}


def test_a_model_may_return_empty_containers():
    model = Child(lambda y: (y, (), {}))
    assert edges_of(model, torch.rand(2, 4)) == {("x", "layer"), ("layer", "output[0]")}


def test_outputs_of_an_earlier_trace_are_plain_tensors():
    first, second = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    with nf.DataflowTracer(first):
        kept = first(torch.rand(2, 4))
    with nf.DataflowTracer(second) as tracer:
        second(kept)
    assert not vars(kept)
    assert [op.role for op in tracer.trace.ops[:1]] == ["input"]
    assert edges_of(second, (kept,), select="*") == {("input", "0"), ("0", "1"), ("1", "output")}
