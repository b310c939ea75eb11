"""Edges that tools lose, invent or leave dangling."""

from __future__ import annotations

import gc

import pytest
import torch
import torch.nn.functional as F
from asked import edges, edges_of, topology_of
from torch import nn
from torch.overrides import TorchFunctionMode

import neural_flow as nf


class Between(nn.Module):
    """Two layers with a piece of code between them."""

    def __init__(self, code, **children):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 6)
        for name, child in children.items():
            self.add_module(name, child)
        self.code = code

    def forward(self, x):
        return self.last(self.code(self, self.first(x)))


CHAIN = {("x", "first"), ("first", "last"), ("last", "output")}


class Same(nn.Module):
    def forward(self, x):
        return x


def test_modules_that_return_their_input_stand_between():
    model = nn.Sequential(Same(), nn.Linear(6, 6), Same())
    assert edges_of(model, torch.rand(2, 6), select=["0", "1", "2"]) == {
        ("input", "0"), ("0", "1"), ("1", "2"), ("2", "output"),
    }  # fmt: skip


class Repeats(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        y = self.layer(x)
        return [y, y, torch.cat([y, y])]


def test_an_output_that_is_returned_twice_is_two():
    assert edges_of(Repeats(), torch.rand(2, 6)) == {
        ("x", "layer"), ("layer", "output[0]"), ("layer", "output[1]"), ("layer", "output[2]"),
    }  # fmt: skip


def factory(model, y):
    value = torch.tensor(-1.0)
    return y + torch.tensor([value, value]).sum()


def test_a_factory_accepts_what_it_accepts_untraced():
    assert edges_of(Between(factory), torch.rand(2, 6)) == CHAIN


class Names(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


def test_calls_hidden_in_other_functions_lose_nothing():
    model = Between(
        lambda m, y: m.attend(y[:, None], y[:, None], y[:, None])[0][:, 0], attend=nn.MultiheadAttention(6, 2)
    )
    with Names() as mode:
        model(torch.rand(2, 6))
    assert "multi_head_attention_forward" in mode.names
    found = edges_of(model, torch.rand(2, 6), select=["first", "attend", "last"])
    assert found == {("x", "first"), ("first", "attend"), ("attend", "last"), ("last", "output")}


RARE = {
    "einsum": lambda m, y: torch.einsum("ij,kj->ij", y, y),
    "scatter_reduce": lambda m, y: torch.zeros(2, 6).scatter_reduce(1, torch.zeros(2, 6, dtype=torch.long), y, "sum"),
    "unfold": lambda m, y: y.unfold(1, 3, 1).mean(-1).repeat(1, 2)[:, :6],
    "searchsorted": lambda m, y: torch.searchsorted(torch.linspace(0, 1, 9), y).float(),
    "index_put": lambda m, y: torch.zeros(2, 6).index_put((torch.tensor([0]),), y[0]),
    "tril": lambda m, y: torch.tril(y, 1),
    "cummax": lambda m, y: y.cummax(1).values,
    "cdist": lambda m, y: torch.cdist(y, torch.ones(6, 6)),
    "bucketize": lambda m, y: torch.bucketize(y, torch.linspace(0, 1, 5)).float(),
    "grid_sample": lambda m, y: F.grid_sample(
        y.reshape(1, 1, 2, 6), torch.zeros(1, 2, 6, 2), align_corners=False).reshape(2, 6),
    "unique": lambda m, y: torch.unique(y).sum() + torch.zeros(2, 6),
    "fold": lambda m, y: F.fold(y.reshape(1, 4, 3), (2, 4), (2, 2)).reshape(1, 8)[:, :6].repeat(2, 1),
    "view_as_complex": lambda m, y: torch.view_as_real(torch.view_as_complex(y.reshape(2, 3, 2))).reshape(2, 6),
    "linalg": lambda m, y: torch.linalg.svd(y, full_matrices=False).Vh,
    "tolist": lambda m, y: y * torch.tensor(y.tolist()).abs(),
}  # fmt: skip


@pytest.mark.parametrize("name", RARE)
def test_rare_functions_keep_the_edge(name):
    topology = topology_of(Between(RARE[name]), torch.rand(2, 6))
    assert edges(topology) == CHAIN
    assert edges(topology, inferred=True) == set()


class Square(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        y = self.a(x)
        square = y * y
        for _ in range(50):  # values die and their identities are used again
            square = square + 1
            gc.collect(0)
        lonely = self.b(torch.ones(2, 6))
        return self.c(square), lonely


def test_an_identity_that_is_used_again_joins_nothing():
    topology = topology_of(Square(), torch.rand(2, 6))
    assert edges(topology, inferred=False) == {
        ("x", "a"), ("a", "c"), ("c", "output[0]"), ("b", "output[1]"),
    }  # fmt: skip


def test_a_second_figure_takes_the_place_of_the_first(tmp_path):
    file = tmp_path / "figure.svg"
    small, large = nn.Sequential(nn.Linear(4, 2)), nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    for model in (large, small):
        nf.render(model, torch.rand(1, 4)).save(file)
    again = tmp_path / "again.svg"
    nf.render(small, torch.rand(1, 4)).save(again)
    assert len(list(tmp_path.iterdir())) == 2
    assert edges_of(small, torch.rand(1, 4)) == {("input", "0"), ("0", "output")}
    assert file.read_bytes().count(b"<image") == again.read_bytes().count(b"<image")
