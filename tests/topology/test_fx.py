from __future__ import annotations

import pytest
import torch
from torch import nn

from neural_flow.capture.metadata import run_metadata_pass
from neural_flow.errors import TopologyFallbackWarning
from neural_flow.hooks import with_hooks
from neural_flow.records import Request
from neural_flow.topology.resolve import resolve_topology

FX = Request(topology="fx")
LEAVES = ("Linear", "ReLU", "Dropout")


def leaves(call):
    return call.class_name in LEAVES


class Branchy(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        x = self.a(x)
        if x.mean() > 100:
            return x
        return self.b(x)


def test_control_flow_on_values_costs_the_warning_of_the_contract(choose, rows):
    model, x = Branchy(), torch.randn(1, 4)
    trace = run_metadata_pass(model, (x,))
    text = "model could not be symbolically traced … Using runtime execution order instead."
    with pytest.warns(TopologyFallbackWarning, match=text):
        topology = resolve_topology(trace, choose(trace, leaves), FX, model, (x,))
    assert topology.source == "sequential"
    assert "TraceError" in topology.notes[-1]
    assert rows(topology, "inferred") == {("x", "a", True), ("a", "b", True), ("b", "output", True)}


def test_a_hooked_layer_is_a_leaf_or_passes_for_its_layer(choose, rows):
    wrapper, hooks = with_hooks(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    hooks.add_forward_hook(lambda x, y: y * 2)
    model, x = nn.Sequential(wrapper, nn.Linear(4, 2)), torch.randn(1, 4)
    trace = run_metadata_pass(model, (x,))
    whole = resolve_topology(trace, choose(trace, ["0", "1"]), FX, model, (x,))
    assert whole.source == "fx"
    assert [(edge.source, edge.target) for edge in whole.edges][-1] == (len(whole.stages) - 2, len(whole.stages) - 1)
    inside = resolve_topology(trace, choose(trace, ["0.0", "0.1", "1"]), FX, model, (x,))
    assert inside.source == "fx"
    assert {("0.0", "0.1"), ("0.1", "1")} <= rows(inside)


class Repeats(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        for _ in range(3):
            x = self.layer(x) + x
        return x


def test_a_repeated_target_is_the_kth_call(choose, rows):
    model, x = Repeats(), torch.randn(1, 4)
    trace = run_metadata_pass(model, (x,))
    selection = choose(trace, leaves)
    assert rows(resolve_topology(trace, selection, FX, model, (x,)), "kind", "via") == rows(
        resolve_topology(trace, selection), "kind", "via"
    )


class Sizes(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        y = self.a(x)
        blank = y.new_zeros(y.shape[0], 4) + torch.zeros_like(y)
        return self.b(blank.reshape(y.size(0), -1))


def test_sizes_and_empty_copies_carry_no_values(choose, rows):
    model, x = Sizes(), torch.randn(1, 4)
    trace = run_metadata_pass(model, (x,))
    selection = choose(trace, leaves)
    topology = resolve_topology(trace, selection, FX, model, (x,))
    assert topology.source == "fx"
    assert ("a", "b", False) not in rows(topology, "inferred")


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.out = nn.Parameter(torch.randn(4, 4)), nn.Linear(4, 2)

    def forward(self, x):
        first = torch.relu(torch.matmul(x, self.weight))
        second = torch.matmul(first, self.weight)
        return self.out(first + second)


@pytest.mark.parametrize("source", ["fx", "export"])
def test_ops_as_stages_are_found_by_their_place_in_the_call(choose, rows, source):
    model, x = Functional(), torch.randn(1, 4)
    trace = run_metadata_pass(model, (x,))
    ops = [op.op_id for op in trace.ops if op.target.endswith("matmul")]
    assert len(ops) == 2
    selection = choose(trace, ["out"], ops=ops)
    topology = resolve_topology(trace, selection, Request(topology=source), model, (x,))
    assert topology.source == source
    expected = resolve_topology(trace, selection)
    assert [(e.source, e.target, e.kind, e.via) for e in topology.edges] == [
        (e.source, e.target, e.kind, e.via) for e in expected.edges
    ]


def test_without_a_module_the_chain_goes_on(choose):
    model, x = Repeats(), torch.randn(1, 4)
    trace = run_metadata_pass(model, (x,))
    with pytest.warns(TopologyFallbackWarning, match="no module"):
        assert resolve_topology(trace, choose(trace, leaves), FX).source == "sequential"
