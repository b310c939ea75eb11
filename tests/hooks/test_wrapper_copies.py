"""Copies, pickles and replicas of a wrapper."""

from __future__ import annotations

import copy
import io
import pickle
from collections import OrderedDict

import pytest
import torch
from hooked_layers import LAYERS, describe, nest
from torch import nn

from neural_flow.hooks import HookedModule, hooks_of, layer_of, with_hooks


def round_trip_pickle(model):
    return pickle.loads(pickle.dumps(model))


def round_trip_torch(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {"deepcopy": copy.deepcopy, "pickle": round_trip_pickle, "torch.save": round_trip_torch}


@pytest.fixture(params=list(COPIES))
def copied(request):
    return COPIES[request.param]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("kind", [kind for kind in LAYERS if kind != "parametrized"])
def test_copies_are_equal_hookable_and_without_hooks(kind, depth, copied):
    layer = LAYERS[kind]()
    wrapper = nest(layer, depth)
    hooks_of(wrapper).add_forward_hook(lambda x, y: y * 0)
    hooks_of(wrapper).add_backward_hook(lambda g: g * 0)
    other = copied(nn.Sequential(wrapper))[0]
    assert type(other) is type(wrapper)
    assert hooks_of(other).registry.is_empty
    assert hooks_of(other).registry is not hooks_of(wrapper).registry
    assert len(hooks_of(wrapper).registry.post) == 1
    assert describe(other)["keys"] == describe(wrapper)["keys"]
    for parameter, original in zip(other.parameters(), wrapper.parameters(), strict=True):
        assert torch.equal(parameter, original)
        assert parameter is not original
    ran = []
    hooks_of(other).add_forward_pre_hook(lambda x: ran.append(1) or x)
    x = torch.randn(2, 1, 4) if kind == "attention" else torch.randn(2, 3)
    args = (x, x, x) if kind == "attention" else (x,)
    other(*args)
    assert ran == [1]


def test_copy_of_a_parametrized_layer():
    wrapper = nest(nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), 2)
    hooks_of(wrapper).add_forward_hook(lambda x, y: y * 0)
    other = copy.deepcopy(nn.Sequential(wrapper))[0]
    assert isinstance(other, HookedModule)
    x = torch.randn(2, 3)
    assert torch.equal(other(x), layer_of(wrapper)(x))
    with pytest.raises(RuntimeError, match="state_dict"):  # what the bare layer says
        pickle.dumps(wrapper)


def test_loaded_copy_of_a_wrapper_with_a_lambda_hook_gives_the_output_of_the_layer():
    layer = nn.Linear(2, 2)
    wrapper, hooks = with_hooks(layer)
    hooks.add_forward_hook(lambda x, y: y * 100)
    x = torch.randn(3, 2)
    assert torch.equal(round_trip_torch(wrapper)(x), layer(x))


def test_copies_keep_aliasing(copied):
    shared = nn.Linear(2, 2)
    wrapper, _ = with_hooks(shared)
    tied = nn.Linear(2, 2)
    tied.weight = shared.weight
    other = copied(nn.ModuleList([wrapper, shared, wrapper, tied]))
    assert other[0] is other[2]
    assert layer_of(other[0]) is other[1]
    assert other[3].weight is other[1].weight


def keep(x, y):
    return y


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.stem_hooks = with_hooks(nn.Linear(2, 2))
        self.handle = self.stem_hooks.add_forward_hook(keep)

    def forward(self, x):
        return self.stem(x)


def test_hooks_kept_on_the_model_become_those_of_the_copied_wrapper(copied):
    model = Model()
    model.stem_hooks.add_forward_hook(lambda x, y: y)
    other = copied(model)
    assert other.stem_hooks.registry is hooks_of(other.stem).registry is other.handle.registry
    assert other.stem_hooks.registry.is_empty
    other.handle.remove()
    assert len(model.stem_hooks.registry.post) == 2


def test_wrapper_held_by_its_own_layer_is_copied(copied):
    layer = nn.Linear(2, 2)
    wrapper, _ = with_hooks(layer)
    layer.note = [wrapper]
    other = copied(wrapper)
    assert layer_of(other).note[0] is other
    assert copied(layer).note[0].out_features == 2
    layer.note.clear()


def test_shallow_copy_shares_the_layer_and_starts_without_hooks():
    wrapper, hooks = with_hooks(nn.Linear(2, 2))
    hooks.add_forward_hook(lambda x, y: y)
    other = copy.copy(wrapper)
    assert layer_of(other) is layer_of(wrapper)
    assert hooks_of(other).registry.is_empty
    assert not hooks.registry.is_empty


def test_copies_keep_native_hooks_of_the_wrapper_as_torch_does(copied):
    wrapper, _ = with_hooks(nn.Linear(2, 2))
    wrapper.register_forward_hook(native_zero)
    assert copied(wrapper)(torch.ones(1, 2)).abs().sum() == 0


def native_zero(module, args, output):
    return output * 0


def replicate(network):
    """Do what torch.nn.parallel.replicate does, with copies on this device."""
    modules = list(network.modules())
    replicas = [module._replicate_for_data_parallel() for module in modules]
    copies = {}
    for module, replica in zip(modules, replicas, strict=True):
        replica._former_parameters = OrderedDict()
        for name, child in module._modules.items():
            setattr(replica, name, replicas[modules.index(child)])
        for name, parameter in module._parameters.items():
            if parameter is None:
                replica._parameters[name] = None
            else:
                copies[parameter] = parameter.clone()
                setattr(replica, name, copies[parameter])
                replica._former_parameters[name] = copies[parameter]
        for name, buffer in module._buffers.items():
            setattr(replica, name, buffer.clone())
    return replicas[0], copies


@pytest.mark.parametrize("depth", [1, 2])
def test_data_parallel_replicas_use_their_own_tensors_and_share_the_hooks(depth):
    layer = nn.Sequential(nn.Linear(3, 3), nest(nn.BatchNorm1d(3), depth))
    network = nn.Sequential(nest(layer, depth), nn.Linear(3, 2))
    hooks = hooks_of(network[0])
    seen = []
    hooks.add_forward_hook(lambda x, y: seen.append("post") or y)
    hooks.add_backward_hook(lambda g: seen.append("back") or g * 2)
    bare = nn.Sequential(nn.Sequential(layer[0], innermost(layer[1])), network[1])
    x = torch.randn(4, 3)
    bare_replica, _ = replicate(copy.deepcopy(bare))
    expected = bare_replica(x)

    replica, copies = replicate(network)
    assert type(replica[0]) is type(network[0])
    assert hooks_of(replica[0]).registry is hooks.registry
    assert innermost(replica[0]) is not layer
    assert [*replica.parameters()] == []
    with torch.no_grad():
        saved = {name: parameter.clone() for name, parameter in network.named_parameters()}
        for parameter in network.parameters():
            parameter.zero_()  # the replica must not look at these
        output = replica(x)
        for name, parameter in network.named_parameters():
            parameter.copy_(saved[name])
    assert torch.equal(output, expected)
    assert seen == ["post"]

    replica(x).sum().backward()
    assert seen == ["post", "post", "back"]
    assert len(copies) == len([*network.parameters()])
    assert all(parameter.grad is not None for parameter in network.parameters())


def innermost(module):
    while isinstance(module, HookedModule):
        module = layer_of(module)
    return module
