"""Chains of ops, held against what a model's code says."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from neural_flow import pipeline
from neural_flow.records import Stage, Topology, Trace
from neural_flow.why import chain_between, way_between


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        y = self.a(x)
        z = self.b(y.tanh())
        unused = y.exp().sum()
        del unused
        return self.c(torch.cat([y * 2, z * scale], 1))


@pytest.fixture(scope="module")
def seen() -> tuple[Trace, Topology]:
    return pipeline.observe(Net(), (torch.ones(2, 4), torch.tensor(3.0)), select="*")


def stage(topology: Topology, name: str) -> Stage:
    return next(found for found in topology.stages if found.name == name)


@pytest.mark.parametrize(
    ("source", "target", "ops"),
    [
        ("x", "a", ["nn.functional.linear"]),
        ("a", "b", ["Tensor.tanh", "nn.functional.linear"]),
        ("a", "c", ["Tensor.mul", "cat", "nn.functional.linear"]),
        ("b", "c", ["Tensor.mul", "cat", "nn.functional.linear"]),
        ("scale", "c", ["Tensor.mul", "cat", "nn.functional.linear"]),
        ("c", "output", []),
        ("x", "c", []),
        ("b", "a", []),
    ],
)
def test_the_ops_between_two_stages(seen: tuple[Trace, Topology], source: str, target: str, ops: list[str]):
    trace, topology = seen
    steps = chain_between(trace, topology, stage(topology, source), stage(topology, target))
    assert [step.target.removeprefix("torch.") for step in steps] == ops
    assert [step.is_inside for step in steps] == [False] * (len(steps) - 1) + [True] * bool(steps)


def test_every_edge_between_modules_has_a_chain_and_only_edges_have(seen: tuple[Trace, Topology]):
    trace, topology = seen
    edges = {(edge.source, edge.target) for edge in topology.edges}
    for source in topology.stages:
        for target in topology.stages:
            if source.stage_id != target.stage_id and target.kind == "module":
                pair = (source.stage_id, target.stage_id)
                assert bool(chain_between(trace, topology, source, target)) == (pair in edges)


def test_places_are_lines_of_the_users_code(seen: tuple[Trace, Topology]):
    trace, topology = seen
    lines, first = inspect.getsourcelines(Net)
    steps = chain_between(trace, topology, stage(topology, "a"), stage(topology, "c"))
    number = first + next(index for index, line in enumerate(lines) if "torch.cat" in line)
    assert [step.location for step in steps[:2]] == [f"{__file__}:{number}"] * 2
    assert steps[1].shape == (2, 8)


def test_the_way_from_one_stage_to_another(seen: tuple[Trace, Topology]):
    _, topology = seen
    names = [found.name for found in way_between(topology, stage(topology, "x"), stage(topology, "output"))]
    assert names == ["x", "a", "c", "output"]
    assert way_between(topology, stage(topology, "output"), stage(topology, "x")) == ()
