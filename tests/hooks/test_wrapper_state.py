"""The state of a wrapper is that of its layer: names, state dicts, devices, dtypes."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from hooked_layers import LAYERS, Scale, describe, nest
from torch import nn

from neural_flow.hooks import hooks_of, layer_of, with_hooks


@pytest.fixture(params=list(LAYERS))
def layer(request):
    return LAYERS[request.param]()


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_names_state_dict_metadata_and_paths_are_those_of_the_layer(layer, depth):
    wrapper = nest(layer, depth)
    assert describe(wrapper) == describe(layer)
    assert describe(nn.Sequential(nn.ReLU(), nn.Sequential(wrapper))) == describe(
        nn.Sequential(nn.ReLU(), nn.Sequential(layer))
    )


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("kind", [kind for kind in LAYERS if kind != "identity"])
def test_state_loads_strictly_from_bare_and_into_bare(kind, depth, assign):
    source, target = LAYERS[kind](), LAYERS[kind]()
    for tensor in target.state_dict().values():
        if isinstance(tensor, torch.Tensor):
            tensor.detach().zero_()
    wrapped = nest(copy.deepcopy(target), depth)
    assert str(wrapped.load_state_dict(source.state_dict(), assign=assign)) == "<All keys matched successfully>"
    bare = copy.deepcopy(target)
    bare.load_state_dict(nest(source, depth).state_dict(), assign=assign)
    inside = nn.Sequential(nest(target, depth))
    inside.load_state_dict(nn.Sequential(source).state_dict(), assign=assign)
    expected = source.state_dict()
    for module in (wrapped, bare, inside[0]):
        for name, value in module.state_dict().items():
            assert torch.equal(value, expected[name]) if isinstance(value, torch.Tensor) else value == expected[name]


def test_missing_and_unexpected_keys_are_told_under_the_names_of_the_layer():
    wrapper, _ = with_hooks(nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "0.bias"'):
        nn.Sequential(wrapper).load_state_dict({"0.weight": torch.zeros(2, 2)})
    told = nn.Sequential(wrapper).load_state_dict({"0.weight": torch.zeros(2, 2), "1.x": torch.zeros(1)}, strict=False)
    assert (told.missing_keys, told.unexpected_keys) == (["0.bias"], ["1.x"])


def test_extra_state_is_the_layers():
    layer = Scale()
    wrapper, _ = with_hooks(layer)
    layer.note = "changed"
    state = nn.Sequential(wrapper).state_dict()
    assert state["0._extra_state"] == {"note": "changed"}
    other, _ = with_hooks(Scale())
    nn.Sequential(other).load_state_dict(state)
    assert layer_of(other).note == "changed"


@pytest.mark.parametrize("register_on", ["layer", "wrapper"])
@pytest.mark.parametrize("is_inside", [False, True])
def test_state_dict_hooks_fire_with_the_layer(register_on, is_inside):
    layer = nn.Linear(2, 2)
    wrapper, _ = with_hooks(layer)
    seen = []
    on = layer if register_on == "layer" else wrapper
    on.register_state_dict_pre_hook(lambda module, prefix, keep: seen.append(("save pre", module)))
    on.register_state_dict_post_hook(lambda module, *rest: seen.append(("save post", module)))
    on.register_load_state_dict_pre_hook(lambda module, *rest: seen.append(("load pre", module)))
    on.register_load_state_dict_post_hook(lambda module, keys: seen.append(("load post", module)))
    root = nn.Sequential(wrapper) if is_inside else wrapper
    root.load_state_dict(root.state_dict())
    assert seen == [(what, layer) for what in ("save pre", "save post", "load pre", "load post")]


def test_load_post_hook_may_change_the_missing_keys_and_is_removed_by_its_handle():
    wrapper, _ = with_hooks(nn.Linear(2, 2))
    handle = wrapper.register_load_state_dict_post_hook(lambda module, keys: keys.missing_keys.clear())
    nn.Sequential(wrapper).load_state_dict({})
    handle.remove()
    with pytest.raises(RuntimeError, match="Missing key"):
        nn.Sequential(wrapper).load_state_dict({})


def test_registry_is_in_no_state():
    wrapper, hooks = with_hooks(nn.Linear(2, 2))
    hooks.add_forward_hook(lambda x, y: y)
    assert [name for name in wrapper.state_dict() if "registry" in name] == []
    assert all(isinstance(value, torch.Tensor) for value in wrapper.state_dict().values())
    assert list(wrapper.children()) == []
    assert {*map(id, wrapper.parameters())} == {*map(id, layer_of(wrapper).parameters())}


def test_functional_call_reaches_the_layer_at_every_depth():
    layer = nn.Linear(2, 2)
    x = torch.randn(3, 2)
    weights = {"0.weight": torch.randn(2, 2), "0.bias": torch.randn(2)}
    for depth in (1, 2):
        model = nn.Sequential(nest(layer, depth))
        before = {name: id(parameter) for name, parameter in model.named_parameters()}
        called = torch.func.functional_call(model, weights, (x,))
        assert torch.equal(called, F.linear(x, weights["0.weight"], weights["0.bias"]))
        direct = {name[2:]: value for name, value in weights.items()}
        assert torch.equal(torch.func.functional_call(model[0], direct, (x,)), called)
        assert {name: id(parameter) for name, parameter in model.named_parameters()} == before


def test_optimizer_steps_the_parameters_of_the_layer():
    layer = nn.Linear(2, 2)
    wrapper, hooks = with_hooks(layer)
    hooks.add_backward_hook(lambda g: g * 0 + 1)
    before = layer.bias.detach().clone()
    optimizer = torch.optim.SGD(nn.Sequential(wrapper).parameters(), lr=0.5)
    (wrapper(torch.ones(1, 2)).sum() * 100).backward()
    optimizer.step()
    assert torch.equal(layer.bias, before - 0.5)
    optimizer.zero_grad()
    assert layer.bias.grad is None


@pytest.mark.parametrize("is_swapping", [False, True])
@pytest.mark.parametrize("depth", [1, 2])
def test_moving_and_casting_reach_the_layer(layer, depth, is_swapping):
    wrapper = nest(layer, depth)
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(is_swapping)
    try:
        assert wrapper.double() is wrapper
        assert {tensor.dtype for tensor in layer.parameters()} <= {torch.float64}
        assert wrapper.to("cpu", torch.float32) is wrapper
        assert nn.Sequential(wrapper).double()[0] is wrapper
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
    assert {tensor.dtype for tensor in layer.parameters()} <= {torch.float64}
    assert layer.state_dict().keys() == wrapper.state_dict().keys()


def test_meta_and_to_empty_work_at_every_depth():
    with torch.device("meta"):
        layer = nn.Linear(2, 2)
    for depth in (1, 2):
        model = nn.Sequential(nest(layer, depth)).to_empty(device="cpu")
        model.load_state_dict({"0.weight": torch.eye(2), "0.bias": torch.zeros(2)})
        x = torch.randn(1, 2)
        assert torch.equal(model(x), x)
        model.to("meta")
        assert layer.weight.is_meta
        hooks = hooks_of(model[0])
        shapes = []
        hooks.add_forward_hook(lambda x, y, shapes=shapes: shapes.append(y.shape) or y)
        hooks.add_backward_hook(lambda g, shapes=shapes: shapes.append(g.shape) or g)
        model(torch.randn(1, 2, device="meta", requires_grad=True)).sum().backward()
        assert shapes == [(1, 2), (1, 2)]


def test_recurrent_layer_keeps_its_flat_weights_through_dtype_changes():
    layer = nn.LSTM(3, 2)
    wrapper = nest(layer, 2)
    x = torch.randn(4, 1, 3)
    nn.Sequential(wrapper).double()
    assert all(flat is named for flat, named in zip(layer._flat_weights, layer.parameters(), strict=True))
    output, _ = wrapper(x.double())
    assert output.dtype is torch.float64
    wrapper.float()
    wrapper.weight_hh_l0 = nn.Parameter(torch.zeros(8, 2))
    assert layer._flat_weights[1] is layer.weight_hh_l0
    assert torch.equal(wrapper(x)[0], layer(x)[0])


def test_shared_wrapper_keeps_one_path_as_a_shared_layer_does():
    layer = nn.Linear(2, 2)
    wrapper, _ = with_hooks(layer)
    assert [name for name, _ in nn.Sequential(wrapper, wrapper).named_modules()] == ["", "0"]
    assert [*nn.Sequential(wrapper, wrapper).state_dict()] == [*nn.Sequential(layer, layer).state_dict()]
