"""Listing reads a graph and changes nothing about it."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from neural_flow.saved_tensors import list_saved_tensors, offload_saved_tensors, record_saved_tensors
from neural_flow.saved_tensors.rows import unique_nbytes


def test_rows_say_what_each_node_saved():
    x = torch.randn(3, 4, requires_grad=True)
    y = (x @ torch.randn(4, 5)).exp()
    rows = list_saved_tensors(y)
    assert [(row.node, row.attribute, row.shape, row.dtype) for row in rows] == [
        ("ExpBackward0", "result", (3, 5), "float32"),
        ("MmBackward0", "mat2", (4, 5), "float32"),
    ]
    assert [(row.nbytes, row.storage_nbytes, row.packed, row.device) for row in rows] == [
        (60, 60, "", "cpu"),
        (80, 80, "", "cpu"),
    ]


def test_shared_memory_has_one_number_and_counts_once():
    x = torch.randn(1000, requires_grad=True)
    y = x + 2
    rows = list_saved_tensors([y[:10] * y[5:15], {"again": y.sin()}])
    assert sorted(row.nbytes for row in rows) == [40, 40, 4000]
    assert len({row.storage for row in rows}) == 1
    assert unique_nbytes(rows) == 4000


def test_indices_and_what_a_function_put_on_its_ctx_are_listed():
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, None, x * 3)
            ctx.extra = {"scale": torch.ones(7), "name": "s"}
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    x = torch.randn(4, 4, requires_grad=True)
    y = Scaled.apply(x[torch.tensor([0, 1]), torch.tensor([2, 3])])
    rows = {(row.node, row.attribute): row.shape for row in list_saved_tensors(y)}
    assert rows == {
        ("ScaledBackward", "tensors[0]"): (2,),
        ("ScaledBackward", "tensors[2]"): (2,),
        ("ScaledBackward", "ctx.extra.scale"): (7,),
        ("IndexBackward0", "indices[0]"): (2,),
        ("IndexBackward0", "indices[1]"): (2,),
    }


def test_listing_unpacks_nothing_and_recomputes_nothing():
    num_runs = num_unpacked = 0

    def function(value):
        nonlocal num_runs
        num_runs += 1
        return value.exp().sin()

    def unpack(packed):
        nonlocal num_unpacked
        num_unpacked += 1
        return packed[0]

    x = torch.randn(4, requires_grad=True)
    y = checkpoint(function, x, use_reentrant=False)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: (tensor.detach(),), unpack):
        y = y * y
    rows = list_saved_tensors(y)
    assert (num_runs, num_unpacked) == (1, 0)
    assert [row.packed for row in rows] == ["tuple", "tuple", "Holder", "Holder"]
    assert [row.shape for row in rows] == [None] * 4
    y.sum().backward()
    assert num_runs == 2
    assert list_saved_tensors(y) == ()


def test_values_that_our_own_contexts_packed_are_listed_in_full():
    x = torch.randn(40, 50, requires_grad=True)
    net = nn.Identity()
    with record_saved_tensors(net):
        y = x.exp()
    with offload_saved_tensors(to="cpu"):
        z = y.sin()
    stored, kept = list_saved_tensors(z)
    assert (stored.node, stored.shape, stored.packed, stored.storage) == ("SinBackward0", (40, 50), "cpu", None)
    assert (kept.node, kept.shape, kept.packed, kept.nbytes) == ("ExpBackward0", (40, 50), "", 8000)
    assert kept.storage is not None


def test_output_without_a_graph_lists_nothing():
    assert list_saved_tensors(torch.ones(3)) == ()
    assert list_saved_tensors({"a": None, "b": [1, "x"]}) == ()


def test_deep_graph_is_refused_before_walking_can_hurt():
    x = torch.ones(1, requires_grad=True)
    y = x
    for _ in range(30_000):
        y = y * 1.0
    with pytest.raises(RuntimeError, match=r"more than 20000 nodes.*record_saved_tensors"):
        list_saved_tensors(y)
    del y
    y = x
    for _ in range(15_000):
        y = y.exp().log()
    with pytest.raises(RuntimeError, match="more than 100 nodes"):
        list_saved_tensors(y, max_nodes=100)


def test_every_layout_is_described():
    matrix = torch.eye(4).to_sparse()
    weight = torch.randn(4, 2, requires_grad=True)
    (row,) = [row for row in list_saved_tensors(torch.sparse.mm(matrix, weight)) if row.attribute != "mat2"]
    assert row.shape == (4, 4)
    assert row.nbytes == 4 * 4 + 2 * 4 * 8
