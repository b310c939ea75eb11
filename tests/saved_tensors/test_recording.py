"""Recording attributes every saved tensor to a call, counts memory once, and keeps nothing."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from neural_flow.saved_tensors import list_saved_tensors, record_saved_tensors


def test_owners_and_kinds_of_nested_containers():
    net = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Tanh(), nn.Linear(8, 3)))
    x = torch.randn(5, 4)
    with record_saved_tensors(net) as record:
        net(x)
    assert [row.call for row in record.rows] == ["0", "1.0", "1.1", "1.1"]
    assert [row.kind for row in record.rows] == ["input", "activation", "activation", "parameter"]
    assert record.rows[1].shared_with == ("1.1",)
    assert record.rows[1].storage == record.rows[2].storage
    assert record.total_nbytes == 4 * (5 * 4 + 5 * 8)
    assert record.param_nbytes == 4 * 8 * 3
    assert record.nbytes_by_call == {"0": 80, "1.0": 160, "1.1": 0}


def make_net():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, 3))


def test_every_row_is_found_again_in_the_graph():
    net = make_net()
    with record_saved_tensors(net) as record:
        loss = F.cross_entropy(net(torch.randn(5, 6)), torch.tensor([0, 1, 2, 0, 1]))
    assert record.join_nodes(loss) == len(record) == 14
    rows = record.rows
    assert all(row.node is not None for row in rows)
    listed = {(row.node_index, row.attribute): row for row in list_saved_tensors(loss)}
    for row in rows:
        other = listed[row.node_index, row.attribute]
        assert (row.node, row.shape, row.nbytes) == (other.node, other.shape, other.nbytes)
    kinds = {row.attribute: row.kind for row in rows if row.node == "NativeBatchNormBackward0"}
    assert kinds["running_mean"] == kinds["running_var"] == "buffer"
    assert kinds["result1"] == kinds["result2"] == "workspace"
    assert kinds["weight"] == "parameter"
    assert kinds["input"] == "activation"
    assert [row.call for row in rows if row.node == "NllLossBackward0"] == ["<root>"] * 3


def test_gradients_are_those_without_recording():
    net = make_net()
    x = torch.randn(5, 6)
    net(x).square().sum().backward()
    expected = [param.grad.clone() for param in net.parameters()]
    net.zero_grad()
    with record_saved_tensors(net):
        loss = net(x).square().sum()
    loss.backward()
    assert all(torch.equal(param.grad, one) for param, one in zip(net.parameters(), expected, strict=True))


def test_record_keeps_no_tensor():
    net = make_net()
    with record_saved_tensors(net) as record:
        y = net(torch.randn(5, 6)).exp()
        alive = weakref.ref(y), weakref.ref(y.untyped_storage())
        record.join_nodes(y)
        del y
        gc.collect()
        assert [ref() for ref in alive] == [None, None]
    assert len(record.rows) == 11


def test_memory_that_was_freed_is_never_taken_for_memory_made_later():
    net = nn.Tanh()
    with record_saved_tensors(net) as record:
        for _ in range(20):
            net(torch.randn(100, requires_grad=True)).sum().backward()
    assert len({row.storage for row in record.rows}) == 20
    assert record.total_nbytes == 20 * 400


def test_calls_of_one_module_are_told_apart():
    act = nn.Tanh()
    net = nn.Sequential(nn.Linear(2, 2), act, nn.Linear(2, 2), act)
    with record_saved_tensors(net) as record:
        net(torch.randn(1, 2))
    assert [row.call for row in record.rows if row.kind == "activation" and row.path == "1"] == ["1", "1#1"]


def test_frozen_and_tied_parameters_and_their_views_are_parameters():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    net.requires_grad_(False)
    x = torch.randn(2, 3, requires_grad=True)
    with record_saved_tensors(net) as record:
        net(x)
    assert [row.kind for row in record.rows] == ["parameter", "parameter"]
    assert record.total_nbytes == 0
    assert record.param_nbytes == 36


def test_autocast_copies_are_activations():
    net = nn.Linear(8, 8)
    with record_saved_tensors(net) as record, torch.autocast("cpu", torch.bfloat16):
        net(torch.randn(4, 8, requires_grad=True))
    copies = [row for row in record.rows if row.dtype == "bfloat16" and row.shape == (8, 8)]
    assert [row.kind for row in copies] == ["activation"]


def test_lstm_workspace_is_told():
    net = nn.LSTM(3, 2, batch_first=True)
    with record_saved_tensors(net) as record:
        net(torch.randn(2, 4, 3))
    assert "workspace" in record.nbytes_by_kind
    assert any(row.kind == "workspace" and row.dtype == "uint8" for row in record.rows)


def test_write_after_saving_raises_as_without_recording():
    leaf = torch.randn(5, requires_grad=True)
    with record_saved_tensors(nn.Identity()):
        x = leaf + 0
        y = (x * x).sum()
    x.mul_(10)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        self.use_reentrant = use_reentrant

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=self.use_reentrant)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_saves_its_input_and_recomputation_is_marked(use_reentrant):
    net = Checkpointed(use_reentrant)
    x = torch.randn(2, 4, requires_grad=True)
    with record_saved_tensors(net) as record:
        y = net(x).sum()
        num_before = len(record)
        y.backward()
    assert num_before <= 1
    assert not any(row.is_recomputed for row in record.rows[:num_before])
    later = record.rows[num_before:]
    assert all(row.is_recomputed for row in later)
    if use_reentrant:
        assert [row.path for row in later if row.kind == "activation"] == ["body.1", "body.2"]


def test_context_inside_a_checkpointed_function_sees_both_runs():
    net = nn.Tanh()
    records = []

    def body(x):
        with record_saved_tensors(net) as record:
            records.append(record)
            return net(x)

    x = torch.randn(3, requires_grad=True)
    checkpoint(body, x, use_reentrant=True).sum().backward()
    assert [[row.is_recomputed for row in record.rows] for record in records] == [[], [True]]


def test_double_backward_is_not_taken_for_recomputation():
    x = torch.randn(3, requires_grad=True)
    with record_saved_tensors(nn.Identity()) as record:
        (gradient,) = torch.autograd.grad(x.exp().sum(), x, create_graph=True)
    assert gradient.requires_grad
    assert len(record) >= 2
    assert not any(row.is_recomputed for row in record.rows)


def test_table_names_calls_and_totals():
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
    with record_saved_tensors(net) as record:
        y = net(torch.randn(250, 4)).sum()
    record.join_nodes(y)
    text = str(record)
    assert "TanhBackward0.result" in text
    assert "8 kB" in text
    assert text.splitlines()[-1] == "12 kB beside parameters and buffers (input 4 kB, activation 8 kB)"
    assert repr(record) == "<SavedTensorRecord: 2 saved tensors, 12 kB>"


def test_error_inside_leaves_nothing_behind_and_the_record_readable():
    net = nn.Sequential(nn.Tanh(), nn.Unflatten(1, (2, 2)))
    with pytest.raises(RuntimeError), record_saved_tensors(net) as record:
        net(torch.randn(2, 5, requires_grad=True))
    assert [row.call for row in record.rows] == ["0"]


def test_nothing_is_recorded_without_gradients():
    net = make_net()
    with record_saved_tensors(net) as record, torch.no_grad():
        net(torch.randn(5, 6))
    assert record.rows == ()
    assert record.total_nbytes == 0
    assert "nothing saved" in str(record)


class Loop(nn.Module):
    """One weight in many calls, and many times in each of them."""

    def __init__(self, num_calls: int) -> None:
        super().__init__()
        self.cell = Cell()
        self.num_calls = num_calls

    def forward(self, x):
        for _ in range(self.num_calls):
            x = self.cell(x)
        return x


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(3))

    def forward(self, x):
        return x @ self.weight @ self.weight


def test_one_weight_of_many_calls():
    with record_saved_tensors(Loop(40)) as record:
        pass
    assert record.rows == ()
    model = Loop(40)
    with record_saved_tensors(model) as record:
        model(torch.randn(2, 3, requires_grad=True))
    calls = ["cell", *(f"cell#{number}" for number in range(1, 40))]
    weights = [row for row in record.rows if row.kind == "parameter"]
    assert len(weights) == 80
    for row in weights:
        assert row.shared_with == tuple(call for call in calls if call != row.call)
    assert len({id(row.shared_with) for row in weights}) == 40, "rows of one call share their list"
    lines = str(record).splitlines()
    assert max(map(len, lines)) < 200
    assert any("and 31 more" in line for line in lines)
