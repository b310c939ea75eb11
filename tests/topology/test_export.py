from __future__ import annotations

import logging
import sys

import pytest
import torch
from torch import nn

from neural_flow.capture.metadata import run_metadata_pass
from neural_flow.errors import TopologyFallbackWarning
from neural_flow.records import Request
from neural_flow.topology.resolve import resolve_topology

EXPORT = Request(topology="export")


class Cache(nn.Module):
    """Writes halves of a buffer in place; each half is read on its own, then both."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.left, self.both = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(8, 4)
        self.register_buffer("cache", torch.zeros(2, 8))

    def forward(self, x):
        cache = self.cache.clone()
        cache[:, :4] = self.a(x)
        cache[:, 4:] = self.b(x)
        return self.left(cache[:, :4]) + self.both(cache)


def test_in_place_writes_are_followed(choose, rows):
    model, x = Cache(), torch.randn(2, 4)
    trace = run_metadata_pass(model, (x,))
    topology = resolve_topology(trace, choose(trace, lambda call: call.class_name == "Linear"), EXPORT, model, (x,))
    assert topology.source == "export"
    assert {("a", "both"), ("b", "both"), ("a", "left")} <= rows(topology)


class NumpyInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x):
        y = self.a(x)
        if y.sum() > 0:
            return y
        return y * 2


def test_a_failure_is_quiet_but_for_the_warning(choose, capfd: pytest.CaptureFixture[str]):
    model, x = NumpyInside(), torch.randn(2, 4)
    trace = run_metadata_pass(model, (x,))
    streams, level = (sys.stdout, sys.stderr), logging.getLogger("torch").level
    with pytest.warns(TopologyFallbackWarning, match="could not be exported"):
        topology = resolve_topology(trace, choose(trace, ["a"]), EXPORT, model, (x,))
    assert topology.source == "sequential"
    assert capfd.readouterr() == ("", "")
    assert (sys.stdout, sys.stderr) == streams
    assert logging.getLogger("torch").level == level


class Pass(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.same, self.b = nn.Linear(4, 4), nn.Identity(), nn.Linear(4, 4)

    def forward(self, x):
        return self.b(self.same(self.a(x)))


def test_a_stage_that_leaves_no_op_is_not_walked_past(choose, rows):
    model, x = Pass(), torch.randn(2, 4)
    trace = run_metadata_pass(model, (x,))
    with pytest.warns(TopologyFallbackWarning, match="no op of same"):
        topology = resolve_topology(trace, choose(trace, ["a", "same", "b"]), EXPORT, model, (x,))
    assert ("a", "b") not in rows(topology)
    assert ("a", "b") not in rows(resolve_topology(trace, choose(trace, ["a", "same", "b"])))
