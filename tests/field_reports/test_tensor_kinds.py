"""Values that are no plain float32: half, complex, boolean, whole, empty, sparse."""

from __future__ import annotations

import pytest
import torch
from asked import edges_of, stage, topology_of
from torch import nn

import neural_flow as nf


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_any_floating_dtype_is_drawn(dtype):
    model = nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 3)).to(dtype)
    drawing = nf.render(model, torch.rand(2, 6, dtype=dtype), detail="layer")
    assert drawing.capture.stats("0").std > 0
    assert b"<svg" in drawing.to_bytes(".svg")[:400]


class Fourier(nn.Module):
    def __init__(self):
        super().__init__()
        self.spectrum = Spectrum()
        self.back = Back()

    def forward(self, x):
        return self.back(self.spectrum(x))


class Spectrum(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, dtype=torch.complex64))

    def forward(self, x):
        return torch.fft.rfft(x) * self.weight


class Back(nn.Module):
    def forward(self, x):
        return torch.fft.irfft(x, n=8)


def test_complex_values_are_shown_by_magnitude():
    model, x = Fourier(), torch.rand(2, 8)
    drawing = nf.render(model, x, select=["spectrum", "back"])
    record = drawing.topology.record
    assert edges_of(model, x, select=["spectrum", "back"]) == {
        ("x", "spectrum"), ("spectrum", "back"), ("back", "output"),
    }  # fmt: skip
    assert stage(record, "spectrum").outputs[0].dtype == "complex64"
    magnitude = model.spectrum(x).abs()
    assert drawing.capture.stats("spectrum").mean == pytest.approx(magnitude.mean().item(), rel=1e-5)
    assert drawing.capture.stats("spectrum").min >= 0


class Kind(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x):
        return self.make(x)


KINDS = {
    "bool": lambda x: x > 0.5,
    "int64": lambda x: x.argsort(-1),
    "empty": lambda x: x[:, :0],
    "uint8": lambda x: (x * 255).to(torch.uint8),
    "nan": lambda x: x * float("nan"),
}


@pytest.mark.parametrize("name", KINDS)
def test_statistics_fit_the_kind(name):
    model = nn.Sequential(Kind(KINDS[name]), Kind(lambda x: x.float().sum(-1)))
    drawing = nf.render(model, torch.rand(3, 4), select="*")
    assert b"<svg" in drawing.to_bytes(".svg")[:400]
    stage_id = next(one.stage_id for one in drawing.topology.record.stages if one.name == "0")
    captured = drawing.picture.capture
    assert stage_id in captured.summaries or stage_id in captured.stats or stage_id in captured.skipped


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x, adjacency):
        return self.last(torch.sparse.mm(adjacency, self.first(x)))


@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_sparse_inputs_pass_and_count_what_they_store(layout):
    adjacency = torch.eye(5).to_sparse() if layout == "coo" else torch.eye(5).to_sparse_csr()
    topology = topology_of(Graph(), (torch.rand(5, 4), adjacency))
    assert edges_of(Graph(), (torch.rand(5, 4), adjacency)) == {
        ("x", "first"), ("first", "last"), ("adjacency", "last"), ("last", "output"),
    }  # fmt: skip
    assert stage(topology, "adjacency").outputs[0].nbytes == 5 * 4
    assert b"<svg" in nf.render(Graph(), (torch.rand(5, 4), adjacency)).to_bytes(".svg")[:400]


def test_a_probe_keeps_tensors_of_any_kind():
    probe = nf.Probe.make(name="seen")
    _, offers = probe.collect(lambda: probe.emit(torch.ones(2, dtype=torch.bfloat16)))
    assert offers[0].dtype == torch.bfloat16
