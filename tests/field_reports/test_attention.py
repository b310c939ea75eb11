"""Attention: masks in evaluation mode, long sequences, and operators that nobody listed."""

from __future__ import annotations

import warnings

import torch
from asked import edges, stage, topology_of
from torch import nn

import neural_flow as nf


def test_a_padding_mask_keeps_the_shapes_dense():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    mask = torch.zeros(3, 6, dtype=torch.bool)
    mask[0, 2:] = True
    with torch.no_grad():
        topology = topology_of(model, (torch.rand(3, 6, 8),), {"src_key_padding_mask": mask}, detail="block")
    for one in topology.stages:
        if one.kind == "module":
            assert one.outputs[-1].shape == (3, 6, 8), one.name
            assert one.outputs[-1].layout == "strided"
    assert (
        edges(topology, plumbing=True)
        == {(name, target) for name, target in edges(topology) if name == "src_key_padding_mask"}
        != set()
    )


class Long(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(24, 12, batch_first=True)

    def forward(self, x):
        return self.attend(x, x, x)[0]


def test_a_long_sequence_gives_a_bounded_picture():
    drawing = nf.render(Long(), torch.rand(1, 1024, 24), select="attend")
    summaries = [one for many in drawing.picture.capture.attention.values() for one in many]
    assert summaries
    for summary in summaries:
        assert all(max(array.shape[-2:]) <= 256 for array in summary.arrays.values())
        assert sum(array.nbytes for array in summary.arrays.values()) < 8 * 2**20
    assert len(drawing.to_bytes(".svg")) < 4 * 2**20


def test_an_operator_is_an_operator():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d((6, 6)), nn.Flatten(), nn.Linear(144, 2)
    )
    topology = topology_of(model, torch.rand(1, 3, 32, 32), select="*")
    assert edges(topology) == {
        ("input", "0"), ("0", "1"), ("1", "2"), ("2", "3"), ("3", "4"), ("4", "5"), ("5", "output"),
    }  # fmt: skip
    assert stage(topology, "3").outputs[0].shape == (1, 4, 6, 6)


def test_no_warning_reaches_the_user():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nf.trace(model, torch.rand(1, 4, 8))
