from __future__ import annotations

import copy
import gc
import inspect
import io
import pickle
import weakref
from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize

from neural_flow.hooks import HookedModule, HookReturnError, Hooks, hooks_of, layer_of, with_hooks


class Scale(nn.Module):
    """A layer with everything a state dict can hold."""

    _version = 3

    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))
        self.register_buffer("offset", torch.tensor(1.0))
        self.register_buffer("cache", torch.tensor(0.0), persistent=False)
        self.inner = nn.ModuleDict({"norm": nn.BatchNorm1d(3), "act": nn.ReLU()})
        self.note = "as made"

    @property
    def twice(self) -> float:
        return 2 * self.factor.item()

    def freeze(self) -> int:
        self.factor.requires_grad_(False)
        return 7

    def get_extra_state(self):
        return {"note": self.note}

    def set_extra_state(self, state):
        self.note = state["note"]

    def forward(self, x: torch.Tensor, scale: float = 1.0, *, bias: torch.Tensor | None = None) -> torch.Tensor:
        y = self.inner["act"](self.inner["norm"](x * self.factor + self.offset)) * scale
        return y if bias is None else y + bias


def nest(layer, depth):
    for _ in range(depth):
        layer, _hooks = with_hooks(layer)
    return layer


def describe(module):
    state = module.state_dict()
    return {
        "keys": list(state),
        "metadata": state._metadata,
        "parameters": [(name, id(parameter)) for name, parameter in module.named_parameters()],
        "buffers": [(name, id(buffer)) for name, buffer in module.named_buffers()],
        "modules": [name for name, _ in module.named_modules()],
        "children": [name for name, _ in module.named_children()],
    }


LAYERS = {
    "linear": lambda: nn.Linear(3, 3),
    "batch norm": lambda: nn.BatchNorm1d(3),
    "sequential": lambda: nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 3))),
    "attention": lambda: nn.MultiheadAttention(4, 2),
    "recurrent": lambda: nn.LSTM(3, 2),
    "own": Scale,
    "parametrized": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)),
    "identity": nn.Identity,
}


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
        hooks.add_forward_hook(lambda x, y: shapes.append(y.shape) or y)  # noqa: B023
        hooks.add_backward_hook(lambda g: shapes.append(g.shape) or g)  # noqa: B023
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
    with pytest.raises(TypeError, match="with_hooks wraps an nn.Module"):
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


def test_native_hooks_run_outside_on_the_wrapper_and_inside_on_the_layer():
    layer = nn.Linear(2, 2)
    wrapper, hooks = with_hooks(layer)
    log = []
    wrapper.register_forward_pre_hook(lambda *args: log.append("wrapper pre"))
    wrapper.register_forward_hook(lambda *args: log.append("wrapper post"))
    wrapper.register_full_backward_hook(lambda *args: log.append("wrapper back"))
    layer.register_forward_pre_hook(lambda *args: log.append("layer pre"))
    layer.register_forward_hook(lambda *args: log.append("layer post"))
    layer.register_full_backward_hook(lambda *args: log.append("layer back"))
    hooks.add_forward_pre_hook(lambda x: log.append("pre") or x)
    hooks.add_forward_hook(lambda x, y: log.append("post") or y)
    hooks.add_backward_hook(lambda g: log.append("back") or g)
    wrapper(torch.ones(1, 2, requires_grad=True)).sum().backward()
    assert log == [
        "wrapper pre", "pre", "layer pre", "layer post", "post", "wrapper post", "back", "layer back", "wrapper back",
    ]  # fmt: skip


def test_native_always_call_hook_on_the_wrapper_runs_after_a_hook_raised():
    wrapper, hooks = with_hooks(nn.Linear(2, 2))
    outputs = []
    wrapper.register_forward_hook(lambda module, args, output: outputs.append(output), always_call=True)

    def fail(x):
        raise ValueError("stop")

    hooks.add_forward_pre_hook(fail)
    with pytest.raises(ValueError, match="stop"):
        wrapper(torch.ones(1, 2))
    assert outputs == [None]


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
    with pytest.raises(AttributeError, match="parametrize the layer, then wrap"):
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


def test_shared_wrapper_keeps_one_path_as_a_shared_layer_does():
    layer = nn.Linear(2, 2)
    wrapper, _ = with_hooks(layer)
    assert [name for name, _ in nn.Sequential(wrapper, wrapper).named_modules()] == ["", "0"]
    assert [*nn.Sequential(wrapper, wrapper).state_dict()] == [*nn.Sequential(layer, layer).state_dict()]


def test_fast_path_of_the_transformer_layer_does_not_skip_a_wrapped_child():
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        expected = block(x)
        block.self_attn, hooks = with_hooks(block.self_attn)
        seen = []
        handle = hooks.add_forward_hook(lambda x, y: seen.append(y[0].shape) or y)
        assert torch.allclose(block(x), expected, atol=1e-6)
        assert seen == [(2, 5, 8)]
        handle.remove()
        block.linear1, hooks = with_hooks(block.linear1)
        hooks.add_forward_hook(lambda x, y: seen.append(y.shape) or y)
        block(x)
        assert seen == [(2, 5, 8), (2, 5, 16)]


def test_attention_keeps_its_other_arguments_and_keywords():
    attention = nn.MultiheadAttention(4, 2, batch_first=True).eval()
    wrapper, hooks = with_hooks(attention)
    seen = []
    hooks.add_forward_pre_hook(lambda x: seen.append(x.shape) or x)
    query, key = torch.randn(1, 2, 4), torch.randn(1, 3, 4)
    mask = torch.tensor([[False, True, False]])
    expected = attention(query, key, value=key, key_padding_mask=mask)
    found = wrapper(query, key, value=key, key_padding_mask=mask)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert seen == [(1, 2, 4)]


class Keywords(nn.Module):
    def forward(self, x=None, y=None, *rest, scale=None, **extra):
        return {"x": x, "y": y, "scale": scale, "rest": rest, **extra}


@pytest.mark.parametrize(
    ("args", "kwargs", "seen", "expected"),
    [
        ((1, 2), {}, 1, {"x": 11, "y": 2}),
        ((1,), {"scale": 3}, 1, {"x": 11, "scale": 3}),
        ((), {"x": 1}, 1, {"x": 11}),
        ((), {"scale": 3, "y": 2, "x": 1}, 1, {"scale": 3, "y": 2, "x": 11}),
        ((), {"scale": 3, "y": 2}, 2, {"scale": 3, "y": 12}),
        ((), {"odd": 5, "even": 6}, 5, {"odd": 15, "even": 6}),
    ],
)
def test_the_input_is_the_first_argument_or_the_first_keyword_of_the_signature(args, kwargs, seen, expected):
    wrapper, hooks = with_hooks(Keywords())
    log = []
    hooks.add_forward_pre_hook(lambda x: log.append(x) or x + 10)
    hooks.add_forward_hook(lambda x, y: log.append(x) or y)
    output = wrapper(*args, **kwargs)
    assert log == [seen, seen + 10]
    assert {name: value for name, value in output.items() if value not in (None, ())} == expected
    assert [*kwargs.values()] == [*dict(kwargs).values()]


def test_call_without_input_gives_none_and_takes_no_replacement():
    wrapper, hooks = with_hooks(Keywords())
    seen = []
    handle = hooks.add_forward_pre_hook(lambda x: seen.append(x))
    hooks.add_forward_hook(lambda x, y: seen.append(x) or y)
    assert wrapper()["x"] is None
    assert seen == [None, None]
    handle.remove()
    hooks.add_forward_pre_hook(lambda x: torch.ones(1))
    with pytest.raises(HookReturnError, match="without any input"):
        wrapper()


def test_without_hooks_the_very_object_of_the_layer_is_returned():
    class Fixed(nn.Module):
        output = object()

        def forward(self, x):
            return self.output

    wrapper = nest(Fixed(), 2)
    assert wrapper(1) is Fixed.output
    identity, hooks = with_hooks(nn.Identity())
    x = torch.ones(1, requires_grad=True)
    assert identity(x) is x
    hooks.add_forward_pre_hook(lambda x: x)
    hooks.add_forward_hook(lambda x, y: y)
    assert identity(x) is x
    hooks.add_backward_hook(lambda g: g).remove()
    assert identity(x) is x


def test_replaced_forward_of_the_wrapper_stays_on_the_wrapper():
    layer = nn.Linear(2, 2)
    wrapper, hooks = with_hooks(layer)
    ran = []
    hooks.add_forward_hook(lambda x, y: ran.append(1) or y)
    old = wrapper.forward
    wrapper.forward = lambda *args, **kwargs: old(*args, **kwargs) * 0
    assert wrapper(torch.ones(1, 2)).abs().sum() == 0
    assert ran == [1]
    assert "forward" not in vars(layer)
    del wrapper.forward
    assert torch.equal(wrapper(torch.ones(1, 2)), layer(torch.ones(1, 2)))


def test_scripted_layer_is_wrapped():
    with pytest.warns(DeprecationWarning):
        layer = torch.jit.script(nn.Linear(2, 2))
    wrapper, hooks = with_hooks(layer)
    hooks.add_backward_hook(lambda g: g * 2)
    x = torch.randn(1, 2, requires_grad=True)
    wrapper(x).sum().backward()
    assert torch.allclose(x.grad, 2 * layer.weight.sum(0, keepdim=True))
    assert [*wrapper.state_dict()] == ["weight", "bias"]


