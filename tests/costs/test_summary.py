"""The summary counts every parameter once and every operation where it ran."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from neural_flow.costs import summary_table
from neural_flow.errors import UnknownNameError


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(7))
        self.body = nn.ModuleDict({"a": nn.Linear(7, 7), "b": nn.Linear(7, 7)})
        self.body["b"].weight = self.body["a"].weight
        self.unused = nn.Linear(3, 3)

    def forward(self, x):
        x = self.body["a"](x * self.scale)
        return self.body["b"](self.body["b"](x)) @ torch.ones(7, 2)


def test_tree_counts_calls_shapes_and_shared_parameters():
    table = summary_table(Net(), torch.randn(4, 7))
    rows = {row.path: row for row in table.rows}
    assert list(rows) == ["", "body", "body.a", "body.b", "unused"]
    assert [row.depth for row in table.rows] == [0, 1, 2, 2, 1]
    assert [row.num_calls for row in table.rows] == [1, 0, 1, 2, 0]
    assert rows[""].num_params == table.model.num_params == 7 + 49 + 7 + 7 + 12
    assert (rows["body.a"].num_params, rows["body.a"].num_shared_params) == (56, 0)
    assert (rows["body.b"].num_params, rows["body.b"].num_shared_params) == (56, 49)
    assert (rows["body"].num_params, rows["body"].num_shared_params) == (63, 0)
    assert table.num_loose_params == 7 + 12
    assert sum(row.num_own_params for row in table.rows) - 49 == table.model.num_params
    assert rows["body.a"].inputs[0].shape == rows["body.a"].outputs[0].shape == (4, 7)
    assert rows["body.b"].activation_nbytes == 2 * 4 * 7 * 4
    assert rows["unused"].inputs == ()
    assert rows["unused"].flops is None


def test_flops_are_those_of_the_whole_model_and_saved_bytes_of_children_fit_in_their_parent():
    model, x = Net(), torch.randn(4, 7)
    rows = {row.path: row for row in summary_table(model, x, columns=("flops", "saved")).rows}
    with FlopCounterMode(display=False) as counter:
        model(x)
    assert rows[""].flops == counter.get_total_flops()
    assert rows["body"].flops == rows["body.a"].flops + rows["body.b"].flops == 3 * 2 * 4 * 7 * 7
    assert rows[""].saved_nbytes >= rows["body.a"].saved_nbytes + rows["body.b"].saved_nbytes
    assert rows[""].seconds is None


def test_time_is_measured_for_each_module(sample):
    model, args = sample("mlp")
    rows = summary_table(model, args, columns=("time",)).rows
    assert all(row.seconds > 0 for row in rows)
    assert rows[0].flops is None


def test_depth_limits_rows_and_columns_are_looked_up():
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 4))
    table = summary_table(model, torch.randn(2, 4), depth=1, columns=("flops",))
    assert [row.path for row in table.rows] == ["", "0", "1"]
    assert table.rows[1].flops == 2 * 2 * 4 * 4
    with pytest.raises(UnknownNameError):
        summary_table(model, torch.randn(2, 4), columns=("beauty",))


def test_measurement_that_cannot_be_made_is_said():
    class NoGradient(nn.Module):
        def forward(self, x):
            if torch.is_grad_enabled():
                raise ValueError("only without gradients")
            return x * 2

    table = summary_table(NoGradient(), torch.randn(3), columns=("saved", "flops"))
    assert table.notes == ("saved was not measured: ValueError: only without gradients",)
    assert table.rows[0].saved_nbytes is None
    assert table.rows[0].flops == 0
