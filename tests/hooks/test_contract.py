"""The contract of hooks, clause by clause."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neural_flow.hooks import with_hooks


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
