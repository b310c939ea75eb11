"""Code that a symbolic tracer cannot follow, and two passes that must take the same way."""

from __future__ import annotations

import pytest
import torch
from asked import edges, topology_of
from torch import nn

import neural_flow as nf
from neural_flow.errors import TopologyFallbackWarning


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.a(x) if x.sum() > 0 else self.b(x))


@pytest.mark.parametrize(("sign", "taken", "left"), [(1, "a", "b"), (-1, "b", "a")])
def test_the_branch_that_ran_is_shown_and_the_other_one_told(sign, taken, left):
    topology = topology_of(Branch(), sign * torch.ones(2, 4))
    assert edges(topology) == {("x", taken), (taken, "head"), ("head", "output")}
    assert topology.not_run == (left,)


def test_fx_that_cannot_answer_is_not_fatal():
    with pytest.warns(TopologyFallbackWarning, match="model could not be symbolically traced"):
        topology = topology_of(Branch(), torch.ones(2, 4), topology="fx")
    assert topology.source == "sequential"
    assert all(edge.inferred for edge in topology.edges)
    assert topology.not_run == ("b",)


def test_the_captures_of_an_encoder_match_its_stages_one_to_one():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=True).eval()
    drawing = nf.render(model, (torch.rand(2, 5, 8),), {"src_key_padding_mask": torch.zeros(2, 5).bool()}, select="**")
    stages = [one for one in drawing.topology.record.stages if one.kind == "module"]
    assert len(stages) >= 12
    assert {one.stage_id for one in stages} <= {*drawing.picture.capture.stats, *drawing.picture.capture.skipped}
    assert not [one.name for one in stages if one.stage_id in drawing.picture.capture.skipped]


class Shapes(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(3, 3)

    def forward(self, x):
        y = self.first(x)
        y = y.reshape(y.shape[:-1] + (2, 3))  # noqa: RUF005  the sum of two shapes is what is asked
        return self.last(y).reshape(x.size(0), -1)


@pytest.mark.parametrize("source", ["dataflow", "fx", "export"])
def test_arithmetic_of_shapes_makes_no_nodes(source):
    topology = topology_of(Shapes(), torch.rand(2, 6), topology=source)
    assert topology.source == source
    assert edges(topology) == {("x", "first"), ("first", "last"), ("last", "output")}
    assert not topology.joins
