"""The family of a card is what its ops compute, whatever its class is called."""

import torch
from torch import nn
from torch.nn import functional as F

import neural_flow as nf


class WrittenOut(nn.Module):
    """Attention without any function that has attention in its name."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        weights = F.dropout((self.q(x) @ self.k(x).transpose(1, 2)).softmax(-1), 0.1, False)
        return weights.to(x.dtype) @ self.v(x)


class Fused(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        return F.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1))


class Router(nn.Module):
    """A softmax that scales, and mixes nothing."""

    def __init__(self):
        super().__init__()
        self.gate, self.work = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.gate(x).softmax(-1) * self.work(x)


class DenseThing(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv1d(5, 5, 3, padding=1), nn.Linear(8, 8)

    def forward(self, x):
        return self.b(self.a(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lookup = nn.Embedding(10, 8)
        self.one, self.two, self.three, self.four = WrittenOut(), Fused(), Router(), DenseThing()
        self.five, self.six = nn.GRU(8, 8, batch_first=True), nn.LayerNorm(8)

    def forward(self, ids):
        x = self.four(self.three(self.two(self.one(self.lookup(ids)))))
        return self.six(self.five(x)[0])


EXPECTED = {
    "lookup": "embedding", "one": "attention", "two": "attention", "three": "linear",
    "four": "convolution", "five": "recurrent", "six": "normalisation",
}  # fmt: skip


def test_families_of_blocks():
    topology = nf.trace(Net(), torch.arange(5)[None], select=list(EXPECTED))
    assert {stage.path: stage.family for stage in topology.stages if stage.kind == "module"} == EXPECTED


def test_families_of_ops_survive_the_graph_file():
    topology = nf.trace(Net(), torch.arange(5)[None], detail="op")
    found = {stage.class_name: stage.family for stage in topology.stages if stage.kind == "op"}
    assert found["conv1d"] == "convolution"
    assert found["linear"] == "linear"
    assert found["softmax"] == ""
    again = nf.Topology.from_json(topology.to_json())
    assert [stage.family for stage in again.stages] == [stage.family for stage in topology.stages]
