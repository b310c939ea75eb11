"""Real modules, as the metadata pass saw them run."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neural_flow.capture.metadata import run_metadata_pass
from neural_flow.errors import TopologyUnavailable
from neural_flow.records import Selection, Trace
from neural_flow.topology._base import TopologyQuery
from neural_flow.topology.dataflow import dataflow_graph
from neural_flow.topology.resolve import resolve_topology


def edges_of(choose, rows, model, *args, classes=("Linear",), fields=(), **kwargs):
    trace = run_metadata_pass(model.eval(), args, kwargs)
    return rows(resolve_topology(trace, choose(trace, lambda call: call.class_name in classes)), *fields)


class NumpyChild(nn.Module):
    def forward(self, x):
        return torch.from_numpy(x.detach().numpy() * 2)


class Opaque(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.child, self.b = nn.Linear(4, 4), NumpyChild(), nn.Linear(4, 4)

    def forward(self, x):
        return self.b(self.child(self.a(x)))


def test_an_opaque_child_hides_how_but_not_that_values_flow(choose, rows):
    found = edges_of(choose, rows, Opaque(), torch.randn(1, 4), fields=("opaque",))
    assert found == {("x", "a", False), ("a", "b", True), ("b", "output", False)}


class NumpyInline(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.b(torch.from_numpy(self.a(x).detach().numpy() * 2))


def test_a_detour_through_numpy_is_opaque(choose, rows):
    found = edges_of(choose, rows, NumpyInline(), torch.randn(1, 4), fields=("opaque", "inferred"))
    assert found == {("x", "a", False, False), ("a", "b", True, False), ("b", "output", False, False)}


class Preallocated(nn.Module):
    """Each half of a buffer has its writer; one reader reads a half, one reads all."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.part, self.whole = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(8, 2)

    def forward(self, x):
        out = torch.zeros(x.shape[0], 8)
        out[:, :4] = self.a(x)
        view = out[:, 4:]
        view.add_(self.b(x))
        return self.part(out[:, 4:]) + self.whole(out)


def test_slices_of_a_buffer_keep_their_writers_apart(choose, rows):
    assert edges_of(choose, rows, Preallocated(), torch.randn(2, 4)) == {
        ("x", "a"), ("x", "b"), ("b", "part"), ("a", "whole"), ("b", "whole"), ("part", "output"), ("whole", "output"),
    }  # fmt: skip


class Cached(nn.Module):
    """A cache that lives in a buffer: what is written in one step is read in the next."""

    def __init__(self):
        super().__init__()
        self.write, self.read = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("cache", torch.zeros(2, 4))

    def forward(self, x):
        self.cache[0:1] = self.write(x)
        self.cache[1:2] = self.write(x + 1)
        return self.read(self.cache[1:2])


def test_a_cache_in_a_buffer_leads_from_writer_to_reader(choose, rows):
    found = edges_of(choose, rows, Cached(), torch.randn(1, 4))
    assert ("write#1", "read") in found
    assert ("write", "read") not in found


class Passing(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.same, self.b = nn.Linear(4, 4), nn.Identity(), nn.Linear(4, 4)

    def forward(self, x, note):
        y = self.same(self.a(x))
        return self.b(y), y, note


def test_a_module_that_returns_its_input_stands_between(choose, rows):
    model, x = Passing(), torch.randn(1, 4)
    found = edges_of(choose, rows, model, x, torch.randn(2), classes=("Linear", "Identity"))
    assert found == {
        ("x", "a"), ("a", "same"), ("same", "b"), ("b", "output[0]"), ("same", "output[1]"), ("note", "output[2]"),
    }  # fmt: skip


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.cell, self.head = nn.Embedding(9, 4), nn.GRUCell(4, 4), nn.Linear(4, 9)

    def forward(self, ids):
        h, outputs = torch.zeros(ids.shape[0], 4), []
        for step in range(ids.shape[1]):
            h = self.cell(self.embed(ids[:, step]), h)
            outputs.append(self.head(h))
        return torch.stack(outputs, 1)


def test_a_cell_in_a_loop_hands_its_state_on(choose, rows):
    found = edges_of(
        choose, rows, Recurrent(), torch.zeros(1, 3, dtype=torch.int64), classes=("Embedding", "GRUCell", "Linear"),
        fields=("plumbing", "via"),
    )  # fmt: skip
    assert found == {
        ("ids", "embed", False, ()), ("ids", "embed#1", False, ()), ("ids", "embed#2", False, ()),
        ("embed", "cell", False, ()),
        ("embed#1", "cell#1", False, ("gru_cell",)), ("cell", "cell#1", False, ("gru_cell",)),
        ("embed#2", "cell#2", False, ("gru_cell",)), ("cell#1", "cell#2", False, ("gru_cell",)),
        ("cell", "head", False, ()), ("cell#1", "head#1", False, ()), ("cell#2", "head#2", False, ()),
        ("head", "output", False, ("stack",)), ("head#1", "output", False, ("stack",)),
        ("head#2", "output", False, ("stack",)),
    }  # fmt: skip


def test_masks_of_a_transformer_are_plumbing(choose, rows):
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False)
    found = edges_of(
        choose, rows, model, torch.randn(1, 3, 8), src_key_padding_mask=torch.zeros(1, 3, dtype=torch.bool),
        classes=("TransformerEncoderLayer",), fields=("plumbing",),
    )  # fmt: skip
    assert found == {
        ("src", "layers.0", False),
        ("layers.0", "layers.1", False),
        ("layers.1", "output", False),
        ("src_key_padding_mask", "layers.0", True),
        ("src_key_padding_mask", "layers.1", True),
    }


class Failing(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(5, 5)

    def forward(self, x):
        return self.b(self.a(x))


def test_what_ran_before_an_error_is_still_linked(choose, rows):
    trace = run_metadata_pass(Failing(), (torch.randn(1, 4),))
    topology = resolve_topology(trace, choose(trace, lambda call: call.class_name == "Linear"))
    assert topology.status == "partial"
    assert ("x", "a") in rows(topology)
    assert topology.not_run == ()


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.heads = nn.Linear(4, 4), nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})
        self.drop, self.scale = nn.Dropout(), nn.ParameterList([torch.ones(4)])

    def forward(self, x):
        return self.heads["a" if x.sum() > 1e6 else "b"](self.stem(x)) * self.scale[0]


def test_the_branch_not_taken_is_named(choose):
    trace = run_metadata_pass(Branches(), (torch.randn(1, 4),))
    assert resolve_topology(trace, choose(trace, ["stem", "heads.b"])).not_run == ("heads.a",)


def test_without_a_tracer_there_is_nothing_to_read():
    trace = Trace(model_name="", class_name="", has_dataflow=False)
    with pytest.raises(TopologyUnavailable):
        dataflow_graph(TopologyQuery(trace=trace, selection=Selection(stages=())))
