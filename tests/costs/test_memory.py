"""The memory table adds up, and what it predicts is what the allocator shows."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from neural_flow.costs import _step, memory, memory_table
from neural_flow.saved_tensors import offload_saved_tensors, record_saved_tensors
from neural_flow.torch_private import AllocationLog


def allocator_peak(step):
    with AllocationLog() as log:
        step()
    live = peak = 0
    for nbytes in log.nbytes:
        live += nbytes
        peak = max(peak, live)
    return peak


def make_encoder():
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True)
    return nn.TransformerEncoder(layer, 3), (torch.randn(4, 32, 64),)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(500, 32)
        self.body = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32))
        self.head = nn.Linear(32, 500, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.head(x + self.body(x))


NETS = {"encoder": make_encoder, "tied": lambda: (Tied(), (torch.randint(0, 500, (4, 20)),))}


@pytest.mark.parametrize("name", ["unet", "mlp", "rnn", "encoder", "tied"])
def test_rows_add_up_and_the_prediction_is_within_a_tenth_of_the_measurement(name, sample):
    model, args = NETS[name]() if name in NETS else sample(name)
    table = memory_table(model, args)
    assert sum(row.saved_nbytes for row in table.rows) == table.total_nbytes > 0
    assert sum(row.saved_fraction for row in table.rows) == pytest.approx(1)
    assert table.param_nbytes == sum(param.numel() * 4 for param in model.parameters())
    assert table.measured_peak_nbytes == pytest.approx(table.predicted_peak_nbytes, rel=0.1)


def test_total_is_what_recording_the_same_step_gives(sample):
    model, args = sample("unet")
    table = memory_table(model, args)
    model.train()
    with record_saved_tensors(model) as record:
        model(*args).abs().square().double().mean()
    assert table.total_nbytes == record.total_nbytes


def test_measured_peak_is_that_of_a_step_outside(sample):
    model, args = sample("unet")
    table = memory_table(model, args)
    model.train()
    found = allocator_peak(lambda: model(*args).abs().square().double().mean().backward())
    assert found == pytest.approx(table.measured_peak_nbytes, rel=0.03)


def with_checkpoint(model, path):
    block = model.get_submodule(path)
    block.forward = lambda x, inner=block.forward: checkpoint(inner, x, use_reentrant=False)


@pytest.mark.parametrize("place", ["first", "last", "every"])
def test_checkpoint_rows_are_what_checkpoints_do(sample, place):
    model, args = sample("unet")
    table = memory_table(model, args)
    rows = [row for row in table.what_if if row.action == "checkpoint"]
    assert rows[0].name == "every block"
    assert [row.saved_nbytes for row in rows[1:]] == sorted(row.saved_nbytes for row in rows[1:])
    row = {"first": rows[1], "last": rows[-1], "every": rows[0]}[place]
    model.train()
    for stage_id in row.stage_ids:
        with_checkpoint(model, table.topology.stages[stage_id].path)
    found = allocator_peak(lambda: model(*args).abs().square().double().mean().backward())
    assert found == pytest.approx(row.peak_nbytes, rel=0.15)
    with record_saved_tensors(model) as record:
        model(*args).abs().square().double().mean()
    assert row.saved_nbytes < table.total_nbytes
    assert record.total_nbytes == row.saved_nbytes


def test_offload_row_is_what_offloading_does():
    model = nn.Sequential(*[layer for _ in range(12) for layer in (nn.Linear(64, 64), nn.Tanh())])
    x = torch.randn(512, 64)
    table = memory_table(model, x, threshold=1000)
    row = table.what_if[-1]
    assert (row.action, row.name) == ("offload", "from 1000 elements")

    def step(context):
        with context:
            loss = model(x).abs().square().double().mean()
        loss.backward()

    found = allocator_peak(lambda: step(offload_saved_tensors(threshold=1000)))
    assert found == pytest.approx(row.peak_nbytes, rel=0.25)
    assert row.peak_nbytes < table.predicted_peak_nbytes / 2
    assert row.saved_nbytes < 0.1 * table.total_nbytes


def test_own_loss_and_given_loss():
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x):
            output = self.layer(x)
            result = Output()
            result.logits, result.loss = output, output.exp().mean()
            return result

    class Output:
        pass

    table = memory_table(WithLoss(), torch.randn(4, 8))
    assert table.loss == "the model's own loss"

    def half_square(output, x):
        return (output - x).square().sum() / 2

    table = memory_table(nn.Linear(8, 8), torch.randn(4, 8), loss=half_square)
    assert table.loss == "half_square"
    assert table.total_nbytes == 2 * 4 * 8 * 4  # its input and the difference
    assert [row.name for row in table.rows][-1] == "outside of stages"


def test_evaluation_mode_saves_less_and_the_model_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 8)).eval()
    x = torch.randn(16, 8)
    for param in model.parameters():
        param.grad = torch.ones_like(param)
    before = copy.deepcopy(model.state_dict())
    rng = torch.get_rng_state()
    training, evaluating = memory_table(model, x), memory_table(model, x, train=False)
    assert training.is_training
    assert not evaluating.is_training
    assert evaluating.total_nbytes < training.total_nbytes
    assert not model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(bool((param.grad == 1).all()) for param in model.parameters())
    assert torch.equal(rng, torch.get_rng_state())


def test_frozen_model_is_refused_in_words():
    with pytest.raises(ValueError, match="depends on nothing that requires a gradient"):
        memory_table(nn.Linear(4, 4).requires_grad_(False), torch.randn(2, 4))


class Deep(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.depth = depth
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        x = self.layer(x)
        for _ in range(self.depth):
            x = x.sin() + 1
        return x


@pytest.mark.parametrize("depth", [40, pytest.param(10_100, marks=pytest.mark.slow)])
def test_deep_graph_is_replayed_and_freed(depth, monkeypatch):
    monkeypatch.setattr(_step, "SHALLOW", min(20_000, depth))
    threads = set(threading.enumerate())
    table = memory_table(nn.Sequential(Deep(depth)), torch.randn(2, 4), select=("0",))
    assert table.predicted_peak_nbytes == pytest.approx(table.measured_peak_nbytes, rel=0.1)
    assert table.predicted_peak_nbytes > table.total_nbytes > depth * 32
    assert table.notes == ()
    assert set(threading.enumerate()) <= threads


def test_graph_beyond_all_limits_has_no_prediction_but_all_the_rest(monkeypatch):
    monkeypatch.setattr(_step, "SHALLOW", 20)
    monkeypatch.setattr(_step, "MAX_NODES", 50)
    table = memory_table(nn.Sequential(Deep(40)), torch.randn(2, 4), select=("0",))
    assert table.predicted_peak_nbytes is None
    assert table.measured_peak_nbytes > table.total_nbytes > 40 * 32
    assert all(row.peak_nbytes is None for row in table.what_if)
    assert table.notes == ("no peak is predicted: the graph has more than 50 nodes",)


def test_system_without_room_for_a_stack_is_said(monkeypatch):
    monkeypatch.setattr(_step, "SHALLOW", 20)
    monkeypatch.setattr(threading, "stack_size", _refused)
    table = memory_table(nn.Sequential(Deep(40)), torch.randn(2, 4), select=("0",))
    assert table.predicted_peak_nbytes is None
    assert "gives no stack" in table.notes[0]


def _refused(size=0):
    if size:
        raise ValueError("too much")
    return 0


def test_peaks_of_checkpoints_are_left_out_where_they_would_take_minutes(monkeypatch):
    monkeypatch.setattr(memory, "MAX_REPLAYED", 10)
    table = memory_table(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh()), torch.randn(2, 4))
    assert table.predicted_peak_nbytes is not None
    assert {row.peak_nbytes for row in table.what_if if row.action == "checkpoint"} <= {None}
    assert table.notes[0].startswith("no peak is predicted for checkpoints: the graph has")
