from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neural_flow import nested
from neural_flow.hooks import with_hooks
from neural_flow.torch_private import failure_of


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


def test_relu_in_place_behind_a_linear_layer():
    layer = nn.Linear(3, 3)
    wrapper, _ = hooked(layer, lambda g: g * 2)
    x = torch.randn(4, 3)
    for module in (layer, wrapper):
        F.relu(module(x), inplace=True).sum().backward()
        if module is layer:
            reference = layer.weight.grad.clone()
            layer.zero_grad()
    assert torch.equal(layer.weight.grad, 2 * reference)


ALIASING = {
    "flatten": nn.Flatten(),
    "unflatten": nn.Unflatten(1, (2, 1)),
    "identity": nn.Identity(),
    "eval dropout": nn.Dropout().eval(),
    "slice": Function(lambda h: h[:, 1:]),
    "transpose": Function(lambda h: h.t()),
    "expand": Function(lambda h: h.expand(4, 1, 2)),
    "detached view": Function(lambda h: h.view_as(h)),
    "in place": nn.ReLU(inplace=True),
}


@pytest.mark.parametrize("name", list(ALIASING))
@pytest.mark.parametrize("changed", ["output", "input"])
def test_in_place_on_an_output_that_aliases_the_input_raises_or_is_right(name, changed):
    results = []
    for is_hooked in (False, True):
        x = torch.tensor([[2.0, 3.0]], requires_grad=True)
        layer = hooked(ALIASING[name], lambda g: g)[0] if is_hooked else ALIASING[name]
        try:
            h = x * 1
            y = layer(h)
            (y if changed == "output" else h).mul_(2)
            (y.sum() + h.sum()).backward()
            results.append(x.grad)
        except RuntimeError as error:
            results.append(error)
    reference, found = results
    if isinstance(found, RuntimeError):
        assert "BackwardHookGate" in str(found)
        assert "modified inplace" in str(found)
    else:
        assert torch.equal(found, reference)


def test_flatten_then_in_place_is_never_silently_wrong():
    wrapper, _ = hooked(nn.Flatten(), lambda g: g)
    x = torch.ones(1, 2, requires_grad=True)
    h = x * 1
    y = wrapper(h)
    with pytest.raises(RuntimeError, match="is being modified inplace"):
        y.mul_(2)


def test_leaf_is_not_changed_through_the_gate_without_an_error():
    wrapper, _ = hooked(nn.Identity(), lambda g: g)
    x = torch.ones(1, requires_grad=True)
    with pytest.raises(RuntimeError, match="inplace"):
        wrapper(x).mul_(2)


class Bank(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 2))
        self.register_buffer("memory", torch.zeros(3, 2))

    def forward(self, x, what):
        if what == "parameter":
            return self.weight
        if what == "row":
            return self.weight[0]
        self.memory = self.memory.detach()
        return self.memory.add_(x * self.weight)


@pytest.mark.parametrize("what", ["parameter", "row", "buffer"])
def test_output_that_aliases_a_parameter_or_buffer_refuses_in_place(what):
    wrapper, _ = hooked(nn.Sequential(Bank())[0], lambda g: g)
    with pytest.raises(RuntimeError, match="inplace"):
        wrapper(torch.ones(1), what).mul_(2)


def test_outputs_that_alias_each_other_refuse_in_place():
    def halves(x):
        whole = x * 2
        return whole[:1], whole[1:], x * 3

    wrapper, _ = hooked(Function(halves), lambda g: g)
    first, second, third = wrapper(torch.ones(2, requires_grad=True))
    for output in (first, second):
        with pytest.raises(RuntimeError, match="inplace"):
            output.mul_(2)
    third.mul_(2)


def test_view_of_memory_that_nothing_else_reaches_may_be_changed_in_place():
    layer = nn.Sequential(nn.Linear(2, 4), nn.Unflatten(1, (2, 2)))
    wrapper, _ = hooked(layer, lambda g: g)
    x = torch.randn(1, 2)
    for module in (layer, wrapper):
        module(x).mul_(3).sum().backward()
    assert torch.equal(layer[0].bias.grad, torch.full((4,), 6.0))


def test_stale_saved_output_is_still_detected_behind_the_gate():
    wrapper, _ = hooked(Function(torch.exp), lambda g: g)
    y = wrapper(torch.ones(2, requires_grad=True))
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("keeper", ["layer", "hook", "container"])
def test_output_that_is_kept_elsewhere_refuses_in_place(keeper):
    kept = []

    def keep(x, y):
        kept.append(y)
        return y

    class Keeping(nn.Linear):
        def forward(self, x):
            output = super().forward(x)
            if keeper == "layer":
                kept.append(output)
            return (output, 1) if keeper == "container" else output

    wrapper, hooks = hooked(Keeping(2, 2), lambda g: g)
    if keeper != "layer":
        hooks.add_forward_hook(keep)
    y = wrapper(torch.ones(1, 2))
    with pytest.raises(RuntimeError, match="inplace"):
        (y[0] if keeper == "container" else y).relu_()


@pytest.mark.parametrize("kind", [lambda y: y, lambda y: (y, 1), lambda y: [y], lambda y: {"y": y}])
def test_hook_that_only_looks_leaves_in_place_operations_alone(kind):
    wrapper, hooks = hooked(Function(lambda x: kind(x * 2)), lambda g: g)
    norms = []
    hooks.add_forward_hook(lambda x, y: norms.append([t.norm().item() for _, t in nested.tensor_leaves(y)]) or y)
    ((_, y),) = nested.tensor_leaves(wrapper(torch.ones(4, requires_grad=True)))
    y.relu_()
    assert norms == [[4.0]]


def test_several_outputs_may_each_be_changed_in_place():
    layer = nn.LSTM(3, 2)
    wrapper, _ = hooked(layer, lambda g: g)
    x = torch.randn(4, 3)
    gradients = []
    for module in (layer, wrapper):
        layer.zero_grad()
        output, (hidden, cell) = module(x)
        if module is wrapper:
            assert output.grad_fn is hidden.grad_fn is cell.grad_fn
        (cell.mul_(2).sum() + output.sum() + hidden.sum()).backward()
        gradients.append([parameter.grad for parameter in layer.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_gradient_changed_in_place_by_a_hook_is_an_error_that_names_it():
    def double(g):
        return g.mul_(2)

    wrapper, _ = hooked(nn.Identity(), double)
    a, b = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"'.*double'.* changed the gradient in place"):
        (wrapper(a) + b).sum().backward()
    both, _ = hooked(Function(lambda x: (x * 1, x * 2)), lambda g: (double(g[0]), g[1]))
    with pytest.raises(RuntimeError, match="changed the gradient in place"):
        sum(both(a)).sum().backward()


@pytest.mark.parametrize("name", ["storage id", "fx tracing flag", "keep from Dynamo"])
def test_private_interfaces_work_here(name):
    assert failure_of(name) == ""
