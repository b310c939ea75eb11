from __future__ import annotations

import dataclasses
from collections import OrderedDict, namedtuple

import pytest
import torch
from torch import nn

from neural_flow import nested
from neural_flow.hooks import HookReturnError, with_hooks


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


Point = namedtuple("Point", "left right")


@dataclasses.dataclass(frozen=True)
class Frozen:
    left: torch.Tensor
    right: torch.Tensor
    note: str = "kept"


class ModelOutputLike(OrderedDict):
    """Keys are attributes as well, as Hugging Face's outputs have them."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        object.__setattr__(self, key, value)


class Plain:
    def __init__(self, left, right):
        self.left, self.right = left, right


def model_output(left, right):
    output = ModelOutputLike()
    output["left"], output["right"] = left, right
    return output


STRUCTURES = {
    "tuple": lambda left, right: (left, right),
    "list": lambda left, right: [left, "text", right, None],
    "dict": lambda left, right: {"left": left, "n": 3, "right": right},
    "namedtuple": Point,
    "dataclass": Frozen,
    "model output": model_output,
    "object": Plain,
    "nested": lambda left, right: {"a": (left, [Frozen(right, torch.arange(2))]), "empty": ()},
}


@pytest.mark.parametrize("name", list(STRUCTURES))
def test_hook_receives_and_returns_the_structure_of_the_output(name):
    make = STRUCTURES[name]
    seen = []

    def double(g):
        seen.append(g)
        return nested.map_tensors(g, lambda t: t * 2)

    wrapper, _ = hooked(Function(lambda x: make(x * 2, x * 3)), double)
    x = torch.tensor([1.0, 1.0], requires_grad=True)
    output = wrapper(x)
    assert type(output) is type(make(x, x))
    left, right = [leaf for _, leaf in nested.tensor_leaves(output) if leaf.requires_grad]
    (left * 5 + right * 7).sum().backward()
    assert x.grad[0] == 2 * (5 * 2 + 7 * 3)
    assert type(seen[0]) is type(output)
    assert [leaf[0].item() for _, leaf in nested.tensor_leaves(seen[0])] == [5, 7]
    assert len(seen) == 1


@pytest.mark.parametrize("name", list(STRUCTURES))
def test_leaf_without_a_gradient_is_none_for_the_hook(name):
    make = STRUCTURES[name]
    seen = []
    wrapper, _ = hooked(Function(lambda x: make(x * 2, x * 3)), lambda g: seen.append(nested.tensor_leaves(g)) or g)
    x = torch.ones(2, requires_grad=True)
    output = wrapper(x)
    right = [leaf for _, leaf in nested.tensor_leaves(output) if leaf.requires_grad][1]
    right.sum().backward()
    assert [leaf.tolist() for _, leaf in seen[0]] == [[1, 1]]
    assert torch.equal(x.grad, torch.full((2,), 3.0))


def test_measured_example_of_a_leaf_that_gets_no_gradient():
    seen = []
    wrapper, _ = hooked(Function(lambda x: (x * 2, x * 3)), lambda g: seen.append(g) or g)
    x = torch.ones(2, 3, requires_grad=True)
    first, _ = wrapper(x)
    first.sum().backward()
    assert [(None if g is None else tuple(g.shape)) for g in seen[0]] == [(2, 3), None]


def test_hook_may_give_a_gradient_where_none_arrived():
    wrapper, _ = hooked(Function(lambda x: (x * 2, x * 3)), lambda g: (g[0], torch.ones(1)))
    x = torch.ones(1, requires_grad=True)
    wrapper(x)[0].sum().backward()
    assert x.grad == 5


def test_output_that_is_not_used_runs_no_hook():
    ran = []
    wrapper, _ = hooked(nn.Linear(2, 2), lambda g: ran.append(1) or g)
    x = torch.ones(1, 2, requires_grad=True)
    (x.sum() + wrapper(x).detach().sum()).backward()

    class Cut(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return y * 1

        @staticmethod
        def backward(ctx, g):
            return None

    Cut.apply(wrapper(x)).sum().backward()
    assert ran == []


def test_tensors_that_need_no_gradient_pass_as_they_are():
    index = torch.arange(3)
    constant = torch.ones(2)
    wrapper, _ = hooked(Function(lambda x: {"y": x * 2, "index": index, "constant": constant, "n": 4}), lambda g: g)
    output = wrapper(torch.ones(1, requires_grad=True))
    assert output["index"] is index
    assert output["constant"] is constant
    assert output["n"] == 4


def test_structure_without_any_gradient_is_the_very_object():
    given = (torch.ones(1), {"a": 3})
    wrapper, _ = hooked(Function(lambda: given), lambda g: g)
    assert wrapper() is given


def test_packed_sequence_keeps_its_order_for_the_hook():
    seen = []

    def double(g):
        packed, _ = g
        seen.append(packed)
        return packed._replace(data=packed.data * 2), g[1]

    layer = nn.LSTM(3, 4)
    wrapper, _ = hooked(layer, double)
    packed = nn.utils.rnn.pack_sequence([torch.randn(2, 3), torch.randn(4, 3)], enforce_sorted=False)
    gradients = []
    for module in (layer, wrapper):
        layer.zero_grad()
        output, _ = module(packed)
        padded, lengths = nn.utils.rnn.pad_packed_sequence(output)
        assert lengths.tolist() == [2, 4]
        padded.sum().backward()
        gradients.append(layer.weight_ih_l0.grad)
    assert torch.allclose(gradients[1], 2 * gradients[0])
    assert seen[0].data.shape == (6, 4)


@pytest.mark.parametrize(
    ("hook", "told"),
    [
        (lambda g: None, "return g"),
        (lambda g: (g[0], None), r"no tensor at '\[1\]'"),
        (lambda g: (g[0],), r"no tensor at '\[1\]'"),
        (lambda g: g[0], "no tensor at"),
        (lambda g: (*g, g[0]), r"a gradient at '\[2\]'"),
        (lambda g: (g[0], g[1][:1]), r"shape \[1\] at '\[1\]', expected \[2\]"),
        (lambda g: (g[0].double(), g[1]), r"dtype torch.float64 at '\[0\]', expected torch.float32"),
        (lambda g: (g[0].to("meta"), g[1]), r"device meta at '\[0\]', expected cpu"),
    ],
)
def test_structure_that_cannot_be_the_gradient_is_refused(hook, told):
    wrapper, _ = hooked(Function(lambda x: (x * 2, x * 3)), hook)
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(HookReturnError, match=told):
        sum(wrapper(x)).sum().backward()
    assert x.grad is None


@pytest.mark.parametrize(
    ("hook", "told"),
    [
        (lambda g: 3.0, "returned float instead of a tensor"),
        (lambda g: (g,), "returned tuple instead of a tensor"),
        (lambda g: g[:1], r"shape \[1, 2\], expected \[3, 2\]"),
        (lambda g: g.sum(), r"shape \[\], expected \[3, 2\]"),
        (lambda g: g.double(), "dtype torch.float64, expected torch.float32"),
        (lambda g: g.to("meta"), "device meta, expected cpu"),
    ],
)
def test_value_that_cannot_be_the_gradient_is_refused_and_names_the_hook(hook, told):
    wrapper, _ = hooked(nn.Linear(2, 2), hook)
    x = torch.ones(3, 2, requires_grad=True)
    output = wrapper(x)
    with pytest.raises(HookReturnError, match=told) as refused:
        output.sum().backward()
    assert "test_structure.py" in str(refused.value)
    assert refused.value.hint
    assert x.grad is None


def test_sets_of_tensors_are_refused():
    wrapper, _ = hooked(Function(lambda x: [{x * 2, x * 3}]), lambda g: g)
    with pytest.raises(TypeError, match="set"):
        wrapper(torch.ones(1, requires_grad=True))


def test_equal_names_are_refused():
    wrapper, _ = hooked(Function(lambda x: {"a.b": x * 2, "a": {"b": x * 3}}), lambda g: g)
    with pytest.raises(TypeError, match="equal names"):
        wrapper(torch.ones(1, requires_grad=True))


def test_container_that_cannot_be_rebuilt_is_refused():
    class Stubborn(tuple):
        def __new__(cls, first, second):
            return super().__new__(cls, (first, second))

    wrapper, _ = hooked(Function(lambda x: Stubborn(x * 2, 1)), lambda g: g)
    with pytest.raises(TypeError, match="Stubborn refuses"):
        wrapper(torch.ones(1, requires_grad=True))
