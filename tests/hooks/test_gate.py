from __future__ import annotations

import gc
import math
import weakref

import pytest
import torch
from torch import nn

from neural_flow import nested
from neural_flow.hooks import BackwardHookGate, HookReturnError, gate_outputs, with_hooks

# PyTorch scripts its own decompositions when forward mode is first used
FIRST_USE_OF_FORWARD_MODE = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def hooked(layer, *back):
    wrapper, hooks = with_hooks(layer)
    for hook in back:
        hooks.add_backward_hook(hook)
    return wrapper, hooks


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


class Pair(nn.Module):
    def forward(self, x):
        return x * 2, {"twice": x * 3, "count": 7, "index": x.detach().argmax()}


@pytest.mark.parametrize(
    ("layer", "num_parents"), [(nn.Linear(2, 2), 1), (nn.Identity(), 1), (nn.Flatten(), 1), (Pair(), 2)]
)
def test_node_is_named_and_has_one_parent_for_each_tensor_that_requires_a_gradient(layer, num_parents):
    wrapper, _ = hooked(layer, lambda g: g)
    output = wrapper(torch.ones(1, 2, requires_grad=True))
    first = output if isinstance(output, torch.Tensor) else output[0]
    assert first.grad_fn.name().startswith("BackwardHookGate")
    assert issubclass(type(first.grad_fn)._forward_cls, BackwardHookGate)
    assert len(first.grad_fn.next_functions) == num_parents
    assert all(parent is not None for parent, _ in first.grad_fn.next_functions)


def test_identity_hook_sees_the_gradient_of_the_output_alone():
    seen = []
    wrapper, _ = hooked(nn.Identity(), lambda g: seen.append(g.item()) or g)
    x = torch.ones(1, requires_grad=True)
    (wrapper(x).sum() + 3 * x.sum()).backward()
    assert seen == [1]
    assert x.grad == 4


def test_gate_keeps_no_tensor_of_the_output():
    wrapper, _ = hooked(Function(lambda x: (x * 2, x * 3)), lambda g: g)
    first, second = wrapper(torch.ones(1000, requires_grad=True))
    alive = weakref.ref(second)
    node = first.grad_fn
    gc.disable()
    try:
        del first, second
        assert alive() is None
    finally:
        gc.enable()
    assert node is not None


def test_attributes_on_the_output_pass_the_gate():
    def tag(x):
        y = x * 2
        y.note = ["kept"]
        return y

    wrapper, _ = hooked(Function(tag), lambda g: g)
    assert wrapper(torch.ones(1, requires_grad=True)).note == ["kept"]


class Tagged(torch.Tensor):
    pass


@pytest.mark.parametrize("layer", [nn.ReLU(), nn.Identity(), nn.Flatten()])
def test_tensor_subclass_passes_the_gate(layer):
    ran = []
    wrapper, _ = hooked(layer, lambda g: ran.append(1) or g)
    x = torch.randn(2, 3).as_subclass(Tagged).requires_grad_()
    output = wrapper(x)
    assert type(output) is Tagged
    output.sum().backward()
    assert ran == [1]


def test_jagged_nested_tensor_passes_the_gate():
    layer = nn.Linear(3, 3)
    wrapper, _ = hooked(layer, lambda g: g * 2)
    rows = [torch.randn(2, 3), torch.randn(4, 3)]
    gradients = []
    for module in (layer, wrapper):
        x = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
        module(x).values().sum().backward()
        gradients.append(x.grad.values())
    assert torch.allclose(gradients[1], 2 * gradients[0])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_strided_nested_tensor_is_refused_with_the_way_on():
    wrapper, _ = hooked(nn.Linear(3, 3), lambda g: g)
    x = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], requires_grad=True)
    with pytest.raises(RuntimeError, match=r"torch\.jagged"):
        wrapper(x)


def test_sparse_output_passes_the_gate_unless_it_aliases():
    seen = []
    wrapper, _ = hooked(Function(lambda x: x.to_sparse()), lambda g: seen.append(g.layout) or g * 2)
    x = torch.eye(3, requires_grad=True)
    torch.sparse.sum(wrapper(x)).backward()
    assert torch.equal(x.grad.diagonal(), torch.full((3,), 2.0))
    assert len(seen) == 1
    identity, _ = hooked(nn.Identity(), lambda g: g)
    with pytest.raises(RuntimeError, match="return a copy"):
        identity(torch.eye(2).to_sparse().requires_grad_())


@FIRST_USE_OF_FORWARD_MODE
@pytest.mark.parametrize("layer", [nn.Linear(2, 2, dtype=torch.complex128), nn.Identity(), nn.Flatten(0)])
def test_complex_gradients(layer):
    wrapper, _ = hooked(layer, lambda g: g * 1j)
    x = torch.randn(1, 2, dtype=torch.complex128, requires_grad=True)
    (expected,) = torch.autograd.grad(layer(x).abs().sum(), x, retain_graph=True)
    (found,) = torch.autograd.grad(wrapper(x).abs().sum(), x)
    assert torch.allclose(found, expected * 1j)
    plain, _ = hooked(layer, lambda g: g)
    assert torch.autograd.gradcheck(plain, (x,), check_forward_ad=True)


def test_gate_outputs_is_the_gate_alone():
    seen = []
    x = torch.ones(2, requires_grad=True)
    output = gate_outputs({"y": x * 3, "n": 1}, lambda g: seen.append(g) or {"y": g["y"] * 2, "n": 1})
    assert output["n"] == 1
    output["y"].sum().backward()
    assert torch.equal(x.grad, torch.full((2,), 6.0))
    assert seen[0]["y"].tolist() == [1, 1]
    assert seen[0]["n"] == 1


def test_gate_outputs_returns_the_very_object_where_nothing_needs_a_gradient():
    given = (torch.ones(1), 3)
    assert gate_outputs(given, lambda g: g) is given
    leaf = torch.ones(1, requires_grad=True)
    with torch.no_grad():
        assert gate_outputs(leaf, lambda g: g) is leaf
    assert gate_outputs("text", lambda g: g) == "text"


def test_gate_outputs_allows_in_place_only_where_it_knows_what_the_memory_is_shared_with():
    layer = nn.Linear(2, 2)
    x = torch.ones(1, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="inplace"):
        gate_outputs(layer(x), lambda g: g).mul_(2)
    gate_outputs(layer(x), lambda g: g, inputs=(x,), module=layer).mul_(2).sum().backward()
    assert torch.equal(layer.bias.grad, torch.full((2,), 2.0))
    with pytest.raises(RuntimeError, match="inplace"):
        gate_outputs(x[0], lambda g: g, inputs={"args": (x,)}).mul_(2)
    with pytest.raises(RuntimeError, match="inplace"):
        gate_outputs(layer.weight[0], lambda g: g, inputs=(), module=layer).mul_(2)


def test_gate_outputs_can_leave_what_shares_memory_alone():
    seen = []
    x = torch.ones(2, requires_grad=True)
    h = x * 1
    output = gate_outputs((h.view(2), h * 3, h.view(2)), lambda g: seen.append(g) or g, inputs=(h,), gate_shared=False)
    output[0].mul_(2)
    (output[0] + output[1] + output[2]).sum().backward()
    assert torch.equal(x.grad, torch.full((2,), 7.0))
    assert [(g is None) for g in seen[0]] == [True, False, True]
    view = h.view(2)
    assert gate_outputs(view, lambda g: g, inputs=(h,), gate_shared=False) is view
    assert gate_outputs(view, lambda g: g, gate_shared=False) is view


def test_gate_outputs_checks_the_hook():
    with pytest.raises(TypeError, match="register_full_backward_hook"):
        gate_outputs(torch.ones(1), lambda module, grad_input, grad_output: None)
    output = gate_outputs(torch.ones(1, requires_grad=True), lambda g: None)
    with pytest.raises(HookReturnError, match="return g"):
        output.backward()


@FIRST_USE_OF_FORWARD_MODE
@pytest.mark.parametrize("layer", [nn.Linear(2, 3).double(), nn.Flatten(), nn.Sigmoid(), nn.LSTM(2, 2).double()])
def test_gradcheck_and_gradgradcheck(layer):
    wrapper, _ = hooked(layer, lambda g: g)
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)

    def run(x):
        return tuple(leaf for _, leaf in nested.tensor_leaves(wrapper(x)))

    is_simple = not isinstance(layer, nn.LSTM)  # its kernel has no forward mode and no batching rule
    assert torch.autograd.gradcheck(run, (x,), check_forward_ad=is_simple, check_batched_grad=is_simple)
    if is_simple:
        assert torch.autograd.gradgradcheck(run, (x,), check_batched_grad=True, check_fwd_over_rev=True)


def test_double_backward_goes_through_the_hooks():
    wrapper, _ = hooked(Function(torch.sin), lambda g: g * g)
    x = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(wrapper(x) * 3, x, create_graph=True)
    assert first.item() == pytest.approx(9 * math.cos(0.5))
    (second,) = torch.autograd.grad(first, x)
    assert second.item() == pytest.approx(-9 * math.sin(0.5))


def test_hook_result_that_depends_on_another_tensor_is_differentiable():
    scale = torch.tensor(2.0, requires_grad=True)
    wrapper, _ = hooked(nn.Identity(), lambda g: g * scale)
    x = torch.tensor(1.0, requires_grad=True)
    (first,) = torch.autograd.grad(wrapper(x) * 5, x, create_graph=True)
    first.backward()
    assert scale.grad == 5
