"""Recurrent nets: packed sequences and cells that run once a step."""

from __future__ import annotations

import torch
from asked import edges, edges_of, stage, topology_of
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import neural_flow as nf


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm, self.head = nn.Linear(3, 4), nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.embed(x), lengths, batch_first=True)
        padded, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.head(padded)


def test_values_flow_through_a_packed_sequence():
    args = (torch.rand(3, 6, 3), torch.tensor([6, 3, 2]))
    topology = topology_of(Packed(), args)
    assert {("x", "embed"), ("embed", "lstm"), ("lstm", "head"), ("head", "output")} <= edges(topology)
    assert stage(topology, "lengths").outputs[0].dtype == "int64"
    assert not any(edge.inferred or edge.opaque for edge in topology.edges)
    drawing = nf.render(Packed(), args, detail="layer")
    assert ("lstm", 0) in drawing.capture


class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRUCell(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        state = torch.zeros(x.shape[0], 4)
        for step in x.unbind(1):
            state = self.cell(step, state)
        return self.head(state)


def test_a_cell_in_a_loop_is_one_loop_and_counted_once():
    topology = topology_of(Steps(), torch.rand(2, 20, 3))
    assert [(fold.kind, fold.count) for fold in topology.folds] == [("loop", 20)]
    cells = [one for one in topology.stages if one.path == "cell"]
    assert len(cells) == 20
    assert sum(one.num_params - one.num_shared_params for one in cells) == sum(
        param.numel() for param in nn.GRUCell(3, 4).parameters()
    )
    found = edges(topology)
    assert {("cell", "cell#1"), ("cell#18", "cell#19"), ("cell#19", "head"), ("x", "cell#7")} <= found
    assert ("cell", "cell#2") not in found


def test_a_loop_can_be_unrolled():
    topology = topology_of(Steps(), torch.rand(2, 3, 3), fold=False)
    assert not topology.folds
    assert edges_of(Steps(), torch.rand(2, 3, 3)) == edges(topology)
