from __future__ import annotations

import dataclasses
import gc
import math
import weakref
from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch
import torch.nn.functional as F
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


class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


# The contract, in order of its clauses.


def test_two_pre_hooks_run_in_order_of_registration():
    wrapper, hooks = with_hooks(nn.Identity())
    hooks.add_forward_pre_hook(lambda x: x + 1)
    hooks.add_forward_pre_hook(lambda x: x * 2)
    assert wrapper(torch.tensor(3.0)) == 8


def test_post_hook_receives_the_input_that_the_layer_saw():
    wrapper, hooks = with_hooks(nn.Identity())
    seen = []
    hooks.add_forward_pre_hook(lambda x: x + 1)
    hooks.add_forward_hook(lambda x, y: seen.append(x.item()) or y)
    wrapper(torch.tensor(3.0))
    assert seen == [4]


def test_post_hooks_receive_the_output_of_the_previous_one():
    wrapper, hooks = with_hooks(Times(2))
    hooks.add_forward_hook(lambda x, y: y + x)
    hooks.add_forward_hook(lambda x, y: y * 10)
    assert wrapper(torch.tensor(3.0)) == 90


@pytest.mark.parametrize(
    "error", [ValueError("stop"), StopIteration("stop"), KeyboardInterrupt("stop"), SystemExit(3), GeneratorExit()]
)
def test_error_of_a_pre_hook_stops_the_pass_and_is_the_same_object(error):
    ran = []
    wrapper, hooks = with_hooks(Function(lambda x: ran.append("layer") or x))

    def fail(x):
        raise error

    hooks.add_forward_pre_hook(fail)
    hooks.add_forward_pre_hook(lambda x: ran.append("pre") or x)
    hooks.add_forward_hook(lambda x, y: ran.append("post") or y)
    with pytest.raises(type(error)) as raised:
        wrapper(torch.ones(1))
    assert raised.value is error
    assert error.__cause__ is None
    assert error.__context__ is None
    assert "fail" in [frame.name for frame in raised.traceback]
    assert ran == []


def test_error_of_a_post_hook_stops_the_pass_and_is_the_same_object():
    wrapper, hooks = with_hooks(nn.Identity())
    error = ValueError("stop")
    ran = []

    def fail(x, y):
        raise error

    hooks.add_forward_hook(fail)
    hooks.add_forward_hook(lambda x, y: ran.append("second") or y)
    with pytest.raises(ValueError, match="stop") as raised:
        wrapper(torch.ones(1))
    assert raised.value is error
    assert ran == []


def test_backward_hooks_run_in_order_and_the_last_result_flows_on():
    wrapper, _ = hooked(Times(3), lambda g: g * 2, lambda g: g + 1)
    x = torch.tensor([2.0], requires_grad=True)
    wrapper(x).sum().backward()
    assert x.grad == 9


@pytest.mark.parametrize("is_anomaly", [False, True])
@pytest.mark.parametrize("error", [ValueError("stop"), StopIteration("stop"), KeyboardInterrupt("stop")])
def test_error_of_a_backward_hook_stops_backpropagation_and_is_the_same_object(error, is_anomaly):
    def fail(g):
        raise error

    ran = []
    wrapper, _ = hooked(nn.Identity(), fail, lambda g: ran.append("second") or g)
    a = torch.ones(1, requires_grad=True)
    for backward in (torch.autograd.backward, lambda loss: torch.autograd.grad(loss, a)):
        with torch.autograd.set_detect_anomaly(is_anomaly, check_nan=False):
            loss = wrapper(a * 2).sum()
            if is_anomaly:
                with pytest.warns(UserWarning, match="Error detected in BackwardHookGate"):
                    raised = raise_from(backward, loss, type(error))
            else:
                raised = raise_from(backward, loss, type(error))
        assert raised.value is error
        assert error.__cause__ is None
        assert "fail" in [frame.name for frame in raised.traceback]
    assert a.grad is None
    assert ran == []


def raise_from(backward, loss, kind):
    with pytest.raises(kind) as raised:
        backward(loss)
    return raised


@pytest.mark.parametrize("make", [lambda: nn.Linear(2, 2).requires_grad_(False), nn.Identity, nn.Flatten])
def test_output_that_needs_no_gradient_gets_no_gate(make):
    ran = []
    wrapper, hooks = hooked(make(), lambda g: ran.append("back") or g)
    hooks.add_forward_pre_hook(lambda x: ran.append("pre") or x)
    hooks.add_forward_hook(lambda x, y: ran.append("post") or y)
    output = wrapper(torch.ones(1, 2))
    assert output.grad_fn is None
    assert not output.requires_grad
    assert ran == ["pre", "post"]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_grad_mode_there_is_no_gate_even_for_a_leaf_that_requires_a_gradient(mode):
    ran = []
    wrapper, hooks = hooked(nn.Identity(), lambda g: ran.append("back") or g)
    hooks.add_forward_pre_hook(lambda x: ran.append("pre") or x)
    hooks.add_forward_hook(lambda x, y: ran.append("post") or y)
    x = torch.ones(1, requires_grad=True)
    with mode():
        output = wrapper(x)
        assert output is x
    assert ran == ["pre", "post"]


def test_gate_is_attached_to_what_the_post_hooks_return():
    seen = []
    wrapper, hooks = hooked(nn.Identity(), lambda g: seen.append(g.item()) or g)
    hooks.add_forward_hook(lambda x, y: y * 5)
    x = torch.tensor([1.0], requires_grad=True)
    (wrapper(x) * 3).sum().backward()
    assert seen == [3]
    assert x.grad == 15
    detached, hooks = hooked(nn.Linear(2, 2), lambda g: seen.append("never") or g)
    hooks.add_forward_hook(lambda x, y: y.detach())
    assert detached(torch.ones(1, 2)).grad_fn is None


def test_hook_removed_between_forward_and_backward_does_not_run():
    ran = []
    wrapper, hooks = hooked(nn.Linear(2, 2))
    kept = hooks.add_backward_hook(lambda g: ran.append("kept") or g)
    removed = hooks.add_backward_hook(lambda g: ran.append("removed") or g)
    loss = wrapper(torch.ones(1, 2)).sum()
    removed.remove()
    loss.backward(retain_graph=True)
    assert ran == ["kept"]
    kept.remove()
    loss.backward()
    assert ran == ["kept"]


def test_hook_added_between_forward_and_backward_does_not_run():
    ran = []
    wrapper, hooks = hooked(nn.Linear(2, 2), lambda g: ran.append("early") or g)
    loss = wrapper(torch.ones(1, 2)).sum()
    hooks.add_backward_hook(lambda g: ran.append("late") or g)
    loss.backward()
    assert ran == ["early"]


def logging_wrapper(log, name, layer):
    wrapper, hooks = with_hooks(layer)
    hooks.add_forward_pre_hook(lambda x: log.append(f"pre{name}") or x)
    hooks.add_forward_hook(lambda x, y: log.append(f"post{name}") or y)
    hooks.add_backward_hook(lambda g: log.append(f"back{name}") or g)
    return wrapper


def test_order_between_kinds_over_three_layers():
    log = []
    model = nn.Sequential(*[logging_wrapper(log, index, nn.Linear(2, 2)) for index in range(3)])
    model(torch.ones(1, 2)).sum().backward()
    assert log == ["pre0", "post0", "pre1", "post1", "pre2", "post2", "back2", "back1", "back0"]


def test_order_of_nested_wrappers():
    log = []
    wrapper = logging_wrapper(log, " outer", logging_wrapper(log, " inner", nn.Linear(2, 2)))
    wrapper(torch.ones(1, 2)).sum().backward()
    assert log == ["pre outer", "pre inner", "post inner", "post outer", "back outer", "back inner"]


def test_hook_runs_once_for_each_backward_pass():
    ran = []
    wrapper, _ = hooked(nn.Linear(2, 2), lambda g: ran.append(1) or g)
    output = wrapper(torch.ones(1, 2))
    loss = (output * 2 + output.sin()).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert len(ran) == 2


def test_wrapper_may_call_itself_from_its_hook():
    depth = []

    def again(x):
        if len(depth) < 3:
            depth.append(1)
            return wrapper(x) + 1
        return x

    wrapper, hooks = with_hooks(nn.Identity())
    hooks.add_forward_pre_hook(again)
    assert wrapper(torch.tensor(0.0)) == 3


# The node.


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


# Operations in place.


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


# Structured outputs.

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
    wrapper, _ = hooked(
        Function(lambda x: make(x * 2, x * 3)), lambda g: seen.append(nested.tensor_leaves(g)) or g
    )
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
    assert "test_gate.py" in str(refused.value)
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


# Kinds of tensors.


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
    assert not torch.allclose(found, expected)
    plain, _ = hooked(layer, lambda g: g)
    assert torch.autograd.gradcheck(plain, (x,), check_forward_ad=True)


# The gate alone.


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


def test_gate_outputs_checks_the_hook():
    with pytest.raises(TypeError, match="register_full_backward_hook"):
        gate_outputs(torch.ones(1), lambda module, grad_input, grad_output: None)
    output = gate_outputs(torch.ones(1, requires_grad=True), lambda g: None)
    with pytest.raises(HookReturnError, match="return g"):
        output.backward()


# Higher derivatives.


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


def test_types_of_the_module_are_exact() -> None:
    output: Any = gate_outputs(torch.ones(1, requires_grad=True), lambda g: g)
    assert type(output) is torch.Tensor
