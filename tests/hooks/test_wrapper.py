from __future__ import annotations

import gc
import inspect
import weakref

import pytest
import torch
from hooked_layers import LAYERS, Scale, nest
from torch import nn
from torch.nn.utils import parametrize

from neural_flow.hooks import HookedModule, Hooks, hooks_of, layer_of, with_hooks


@pytest.fixture(params=list(LAYERS))
def layer(request):
    return LAYERS[request.param]()


class FrozenNorm(nn.BatchNorm1d):
    def train(self, mode=True):
        return super().train(False)


@pytest.mark.parametrize("is_training", [True, False])
def test_wrapping_leaves_the_train_flag(is_training):
    layer = nn.Sequential(nn.Dropout()).train(is_training)
    wrapper, _ = with_hooks(layer)
    assert layer.training is is_training
    assert wrapper.training is is_training
    assert layer[0].training is is_training


def test_train_and_eval_are_the_layers_own():
    layer = nn.Sequential(nn.Dropout(), FrozenNorm(3))
    wrapper = nest(layer, 2)
    model = nn.Sequential(wrapper)
    assert wrapper.train() is wrapper
    assert [module.training for module in layer.modules()] == [True, True, False]
    model.eval()
    assert [module.training for module in layer.modules()] == [False, False, False]
    frozen, _ = with_hooks(FrozenNorm(3))
    nn.Sequential(frozen).train()
    assert layer_of(frozen).training is False
    frozen.training = True
    assert layer_of(frozen).training is True


def test_attributes_properties_and_methods_read_through():
    convolution = nest(nn.Conv2d(3, 8, 3, padding=1), 2)
    assert convolution.out_channels == 8
    assert convolution.padding == (1, 1)
    assert with_hooks(nn.MultiheadAttention(4, 2, batch_first=True))[0].batch_first is True
    layer = Scale()
    wrapper = nest(layer, 2)
    assert wrapper.twice == 4.0
    assert wrapper.freeze() == 7
    assert not layer.factor.requires_grad
    assert wrapper.inner["norm"] is layer.inner["norm"]
    assert wrapper.get_submodule("inner.norm") is layer.inner["norm"]
    assert wrapper.get_submodule("") is wrapper
    assert wrapper.get_parameter("factor") is layer.factor
    assert wrapper.factor is layer.factor
    assert {"twice", "freeze", "factor", "inner", "forward"} <= {*dir(wrapper)}
    assert not hasattr(wrapper, "no_such_thing")
    with pytest.raises(AttributeError, match="'Scale' object has no attribute 'no_such_thing'"):
        _ = wrapper.no_such_thing


def test_writes_reach_the_layer():
    layer = nn.Linear(2, 2)
    wrapper = nest(layer, 2)
    wrapper.p = 0.25
    assert layer.p == 0.25
    wrapper.weight = nn.Parameter(torch.zeros(2, 2))
    assert layer.weight.sum() == 0
    with pytest.raises(TypeError, match="cannot assign"):
        wrapper.weight = torch.zeros(2, 2)
    del wrapper.bias
    assert not hasattr(layer, "bias")
    wrapper.bias = None
    wrapper.register_buffer("steps", torch.tensor(3))
    wrapper.register_parameter("gain", nn.Parameter(torch.ones(1)))
    wrapper.add_module("act", nn.ReLU())
    assert [*layer.state_dict()] == ["weight", "gain", "steps"]
    assert [name for name, _ in layer.named_children()] == ["act"]
    wrapper.requires_grad_(False)
    assert not any(parameter.requires_grad for parameter in layer.parameters())
    del wrapper.p
    assert not hasattr(layer, "p")


def test_apply_hands_the_layer_to_code_that_asks_for_its_class():
    layer = nn.Linear(2, 2)

    def init(module):
        if isinstance(module, nn.Linear):
            nn.init.constant_(module.weight, 5.0)

    model = nn.Sequential(nest(layer, 2))
    assert model.apply(init) is model
    assert torch.equal(layer.weight, torch.full((2, 2), 5.0))
    assert model[0].apply(init) is model[0]


def test_methods_that_the_layer_overrides_are_its_own():
    class Own(nn.Linear):
        def state_dict(self, *args, **kwargs):
            return {"own": torch.zeros(1)}

        def to(self, *args, **kwargs):
            raise ValueError("stays here")

        def parameters(self, recurse=True):
            return iter(())

        def extra_repr(self):
            return "own"

    wrapper = nest(Own(2, 2), 2)
    assert [*wrapper.state_dict()] == ["own"]
    assert [*wrapper.parameters()] == []
    assert repr(wrapper) == "Hooked(Hooked(Own(own)))"
    with pytest.raises(ValueError, match="stays here"):
        wrapper.to("cpu")


def test_methods_run_without_hooks():
    class Twice(nn.Module):
        def forward(self, x):
            return x * 2

        def encode(self, x):
            return self(x)

    wrapper, hooks = with_hooks(Twice())
    hooks.add_forward_hook(lambda x, y: y + 1)
    assert wrapper(torch.tensor(1.0)) == 3
    assert wrapper.encode(torch.tensor(1.0)) == 2
    assert wrapper.forward(torch.tensor(1.0)) == 3  # forward is the call


def test_operators_and_signature_are_those_of_the_layer():
    layer = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    wrapper = nest(layer, 2)
    assert len(wrapper) == 2
    assert wrapper[0] is layer[0]
    assert [*wrapper] == [*layer]
    assert isinstance(wrapper[:1], nn.Sequential)
    wrapper[1] = nn.Tanh()
    del wrapper[0]
    assert [type(child) for child in layer] == [nn.Tanh]
    wrapper.append(nn.ReLU())
    assert len(layer) == 2
    mapping, _ = with_hooks(nn.ModuleDict({"a": nn.ReLU()}))
    assert "a" in mapping
    assert "b" not in mapping
    assert [*mapping.keys()] == ["a"]
    with pytest.raises(TypeError):
        len(with_hooks(nn.Linear(2, 2))[0])
    own = nest(Scale(), 2)
    assert inspect.signature(own.forward) == inspect.signature(Scale().forward)
    assert inspect.signature(type(own).forward) == inspect.signature(Scale.forward)


def test_wrapper_is_another_object_of_a_named_class():
    layer = nn.Linear(2, 2)
    wrapper, hooks = with_hooks(layer)
    assert isinstance(wrapper, HookedModule)
    assert isinstance(wrapper, nn.Module)
    assert not isinstance(wrapper, nn.Linear)
    assert wrapper != layer
    assert len({wrapper, layer}) == 2
    assert isinstance(hooks, Hooks)
    assert repr(wrapper) == "Hooked(Linear(in_features=2, out_features=2, bias=True))"
    assert "HookedModule[Linear]" in repr(type(wrapper))
    assert type(wrapper).__name__ == "Linear"
    assert type(with_hooks(nn.Linear(3, 3))[0]) is type(wrapper)


def test_the_layer_and_its_class_are_not_changed(layer):
    before, type_before, class_before = dict(vars(layer)), type(layer), dict(vars(type(layer)))
    contents = {name: list(value) for name, value in before.items() if isinstance(value, dict | set)}
    wrapper, hooks = with_hooks(layer)
    hooks.add_forward_pre_hook(lambda x: x)
    hooks.add_forward_hook(lambda x, y: y)
    hooks.add_backward_hook(lambda g: g)
    wrapper.register_forward_hook(lambda *args: None)
    assert vars(layer) == before
    assert {name: list(value) for name, value in vars(layer).items() if isinstance(value, dict | set)} == contents
    assert type(layer) is type_before
    assert dict(vars(type(layer))) == class_before


@pytest.mark.parametrize("what", [3, None, nn.Linear, lambda x: x])
def test_only_modules_are_wrapped(what):
    with pytest.raises(TypeError, match=r"with_hooks wraps an nn\.Module"):
        with_hooks(what)


def test_hooks_of_and_layer_of_refuse_what_is_no_wrapper():
    for function in (hooks_of, layer_of):
        with pytest.raises(TypeError, match="Linear has no hooks"):
            function(nn.Linear(2, 2))


def test_hooks_of_and_layer_of_find_the_outermost_wrapper():
    layer = nn.Linear(2, 2)
    inner, inner_hooks = with_hooks(layer)
    outer, outer_hooks = with_hooks(inner)
    assert hooks_of(outer).registry is outer_hooks.registry is not inner_hooks.registry
    assert layer_of(outer) is inner
    assert layer_of(inner) is layer


def test_wrapper_is_freed_without_a_collection():
    gc.disable()
    try:
        wrapper, hooks = with_hooks(nn.Linear(2, 2))
        hooks.add_backward_hook(lambda g: g)
        wrapper(torch.ones(1, 2)).sum().backward()
        alive = weakref.ref(wrapper), weakref.ref(layer_of(wrapper))
        del wrapper
        assert [ref() for ref in alive] == [None, None]
    finally:
        gc.enable()


def test_lazy_layers_become_what_they_are():
    layer = nn.LazyLinear(4)
    wrapper, hooks = with_hooks(layer)
    shapes = []
    hooks.add_forward_hook(lambda x, y: shapes.append((x.shape, y.shape)) or y)
    model = nn.Sequential(wrapper, with_hooks(nn.LazyBatchNorm1d())[0])
    assert wrapper.has_uninitialized_params()
    model(torch.randn(2, 3))
    assert type(layer) is nn.Linear
    assert wrapper.in_features == 3
    assert shapes == [((2, 3), (2, 4))]
    assert [*model.state_dict()][:2] == ["0.weight", "0.bias"]
    loaded, _ = with_hooks(nn.LazyLinear(4))
    nn.Sequential(loaded).load_state_dict({"0.weight": layer.weight.detach(), "0.bias": layer.bias.detach()})
    x = torch.randn(2, 3)
    assert torch.equal(loaded(x), layer(x))


def test_parametrization_after_wrapping_is_refused_with_the_way_on():
    wrapper, _ = with_hooks(nn.Linear(2, 2))
    with pytest.raises(AttributeError, match="parametrize it and wrap the result"):
        nn.utils.parametrizations.weight_norm(wrapper)


def test_parametrization_of_the_layer_shows_through():
    layer = nn.Linear(2, 2)
    wrapper, _ = with_hooks(layer)
    x = torch.randn(3, 2)
    before = wrapper(x)
    nn.utils.parametrizations.weight_norm(layer)
    assert parametrize.is_parametrized(wrapper)
    assert torch.allclose(wrapper(x), before)
    assert [*wrapper.state_dict()] == [*layer.state_dict()]
    assert wrapper.weight.shape == (2, 2)


def test_old_style_reparametrization_through_the_wrapper_reaches_the_layer():
    layer = nn.Linear(2, 2)
    wrapper, _ = with_hooks(layer)
    x = torch.randn(3, 2)
    expected = layer(x)
    with pytest.warns(FutureWarning, match="weight_norm"):
        nn.utils.weight_norm(wrapper)
    assert [*layer.state_dict()] == ["bias", "weight_g", "weight_v"]
    assert torch.allclose(wrapper(x), expected)
    with torch.no_grad():
        layer.weight_g.mul_(2)
    assert torch.allclose(wrapper(x) - layer.bias, 2 * (expected - layer.bias), atol=1e-6)


def test_scripted_layer_is_wrapped():
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        layer = torch.jit.script(nn.Linear(2, 2))
    wrapper, hooks = with_hooks(layer)
    hooks.add_backward_hook(lambda g: g * 2)
    x = torch.randn(1, 2, requires_grad=True)
    wrapper(x).sum().backward()
    assert torch.allclose(x.grad, 2 * layer.weight.sum(0, keepdim=True))
    assert [*wrapper.state_dict()] == ["weight", "bias"]
