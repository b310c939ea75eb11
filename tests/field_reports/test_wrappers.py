"""Modules inside wrappers: scripted, compiled, parallel, checkpointed, with computed weights."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from asked import edges_of, stage, topology_of
from torch import nn
from torch.nn.utils import weight_norm as old_weight_norm
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import neural_flow as nf


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x).relu()


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_scripted_child_is_one_stage():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.Sequential(torch.jit.script(Small()), nn.Linear(4, 2))
    expected = {("input", "0"), ("0", "1"), ("1", "output")}
    assert edges_of(model, torch.rand(2, 4), select=["0", "1"]) == expected
    assert nf.render(model, torch.rand(2, 4), select=["0", "1"]).capture.stats("0").min >= 0


def test_a_compiled_child_is_not_a_stage_of_its_own():
    model = nn.Sequential(torch.compile(nn.Linear(4, 4)), nn.Linear(4, 2))
    topology = topology_of(model, torch.rand(2, 4))
    assert [one.name for one in topology.stages if one.kind == "module"] == ["0", "1"]
    assert stage(topology, "0").class_name == "Linear"


def test_a_parallel_model_is_traced_twice():
    model = nn.DataParallel(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
    for _ in range(2):
        found = edges_of(model, torch.rand(2, 4), select=["module.0", "module.1"])
        assert ("module.0", "module.1") in found
        assert not any(vars(module).get("_forward_hooks") for module in model.modules())


class _Wrapper(nn.Module):
    def __init__(self, name, inner):
        super().__init__()
        self.add_module(name, inner)

    def forward(self, x):
        return next(iter(self.children()))(x)


@pytest.mark.parametrize("part", ["_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"])
@pytest.mark.parametrize("written", ["{}", "{}.%s"])
def test_paths_are_cleaned_and_found_either_way(part, written):
    model = nn.Sequential(_Wrapper(part, nn.Linear(4, 4)), nn.Linear(4, 2))
    asked = written.format("0").replace("%s", part)
    found = edges_of(model, torch.rand(2, 4), select=[asked, "1"])
    assert found == {("input", "0"), ("0", "1"), ("1", "output")}


NORMED = {
    "old": lambda: old_weight_norm(nn.Linear(4, 4)),
    "weight": lambda: weight_norm(nn.Linear(4, 4)),
    "spectral": lambda: spectral_norm(nn.Linear(4, 4)),
}


@pytest.mark.parametrize("name", NORMED)
@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning")
def test_computed_weights_are_no_stages_and_are_left_alone(name):
    model = nn.Sequential(NORMED[name](), nn.Linear(4, 2))
    x = torch.rand(2, 4)
    model(x)  # an old weight norm cannot be copied after this
    before = copy.deepcopy(dict(model.state_dict()))
    topology = topology_of(model, x)
    assert [one.name for one in topology.stages if one.kind == "module"] == ["0", "1"]
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert nf.render(model, x)
