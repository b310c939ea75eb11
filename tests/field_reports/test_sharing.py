"""Counting parameters: tied, loose, in subclasses of containers, of any width."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from asked import stage, topology_of
from torch import nn


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.body, self.head = nn.Embedding(10, 4), nn.Linear(4, 4), nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.body(self.embed(ids)))


def test_tied_weights_count_once():
    topology = topology_of(Tied(), torch.randint(10, (2, 3)))
    assert topology.model.num_params == 40 + 20
    assert stage(topology, "head").num_params == 40
    assert stage(topology, "head").num_shared_params == 40
    assert sum(one.num_params - one.num_shared_params for one in topology.stages) == 60


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gates = nn.ParameterList([nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))])
        self.experts = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x):
        return sum(expert(x * gate) for gate, expert in zip(self.gates, self.experts, strict=True))


def test_loose_parameters_count_in_the_total():
    model = Experts()
    topology = topology_of(model, torch.rand(2, 4), select="experts.*")
    assert topology.model.num_params == sum(param.numel() for param in model.parameters())
    assert topology.model.num_loose_params == 8


class Rezero(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 4), nn.Linear(4, 4))
        self.weights = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        for weight, layer in zip(self.weights, self, strict=True):
            x = x + weight * layer(x)
        return x


def test_a_subclass_of_a_container_is_a_module_like_others():
    topology = topology_of(nn.Sequential(nn.Linear(4, 4), Rezero()), torch.rand(2, 4), select=["0", "1"])
    assert stage(topology, "1").num_params == 42
    assert topology.model.num_trainable_params == 62


def test_bytes_follow_the_dtype():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    whole = topology_of(model, torch.rand(1, 4)).model.param_nbytes
    assert topology_of(model.half(), torch.rand(1, 4).half()).model.param_nbytes * 2 == whole


class Packed(nn.Module):
    """A layer whose weight is kept as whole numbers, as quantized layers keep it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 127, (4, 4), dtype=torch.int8))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return F.linear(x, self.weight.float() * self.scale)


def test_packed_weights_are_no_trouble():
    topology = topology_of(nn.Sequential(Packed(), nn.Linear(4, 2)), torch.rand(1, 4), select="*")
    assert topology.model.param_nbytes == 4 + 40
