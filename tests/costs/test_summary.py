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


def test_a_column_takes_one_run_however_deep_the_model_is(capsys):
    class Counted(nn.Linear):
        runs = 0

        def forward(self, x):
            Counted.runs += 1
            print("once")
            return super().forward(x)

    model = Counted(3, 3)
    for _ in range(5):
        model = nn.Sequential(model, nn.ReLU())
    summary_table(model, torch.randn(2, 3), columns=())
    base = Counted.runs
    capsys.readouterr()
    table = summary_table(model, torch.randn(2, 3))
    assert Counted.runs == 2 * base + 1 + 1 + 4
    assert capsys.readouterr().out.count("once") == base
    assert {row.flops for row in table.rows if "0" in row.path or not row.path} >= {2 * 2 * 9}
    for row in table.rows:
        children = [one for one in table.rows if one.path.rpartition(".")[0] == row.path and one.path]
        assert row.seconds >= sum(one.seconds for one in children)
        assert row.saved_nbytes >= sum(one.saved_nbytes for one in children)


def test_of_a_module_inside_itself_the_outermost_call_counts():
    class Again(nn.Linear):
        def forward(self, x, num=3):
            return super().forward(x) if num == 1 else self(super().forward(x), num - 1)

    rows = summary_table(Again(4, 4), torch.randn(2, 4), columns=("flops",)).rows
    assert rows[0].flops == 3 * 2 * 2 * 16


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


def test_nothing_takes_time_on_meta():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU()).to("meta")
    table = summary_table(model, torch.empty(2, 4, device="meta"))
    assert all(row.seconds is None for row in table.rows)
    assert table.rows[1].flops == 2 * 2 * 4 * 8
    assert table.notes == ("time was not measured: nothing is computed on meta",)
