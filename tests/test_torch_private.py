"""Private parts of torch: each works here as we use it, and where one is missing only its instrument refuses."""

from __future__ import annotations

import subprocess
import sys

import pytest

from neural_flow import torch_private

WITHOUT = """
import torch
from torch import nn

# what our loader asks for is not there; torch itself keeps what it has bound already
import neural_flow.torch_private as private
missing = private._Missing
for name in {names!r}:
    setattr(private, name, missing)

import warnings
warnings.simplefilter("ignore")
import neural_flow as nf

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.b(x[:, :4] + self.a(x))

drawing = nf.render(Net(), torch.randn(2, 4))
assert {{stage.name for stage in drawing.topology.stages}} >= {{"a", "b"}}
assert drawing.topology.edges
try:
    nf.Probe.make().collect(lambda: 1)
except RuntimeError as error:
    assert "private" in str(error), error
else:
    raise AssertionError("the probe should refuse")
print("drawn")
"""
PARTS = [
    "_autograd", "_profiler", "_eval_frame", "_functorch", "_coerce_cinterpreter", "_HigherOrderOperator",
    "FakeTensor", "FakeTensorMode", "_fx_tracing", "outside_transforms", "without_modes",
]  # fmt: skip


@pytest.mark.parametrize("name", torch_private.self_test_names())
def test_every_private_part_works_on_this_torch(name):
    assert torch_private.failure_of(name) == ""


def test_a_missing_part_is_named_by_the_instrument_that_needs_it(monkeypatch):
    monkeypatch.setitem(torch_private._SELF_TESTS, "gone", lambda: 1 / 0)
    with pytest.raises(RuntimeError, match=r"An instrument cannot work on torch .* 'gone' fails .ZeroDivisionError"):
        torch_private.require("gone", "An instrument")
    monkeypatch.delitem(torch_private._RESULTS, "gone")


def test_a_part_that_torch_lacks_refuses_when_it_is_used():
    missing = torch_private._part("torch._C._no_such_thing")
    assert not isinstance(1, missing)
    with pytest.raises(RuntimeError, match="lacks a private part"):
        missing(1)


def test_render_works_without_any_private_part():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(names=PARTS)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout == "drawn\n", done.stderr[-2000:]
