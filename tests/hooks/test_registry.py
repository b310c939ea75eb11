from __future__ import annotations

import copy
import functools
import gc
import pickle
import threading
import weakref

import pytest
import torch
from torch import nn

import neural_flow as nf
from neural_flow.hooks import HookHandle, HookKind, HookRegistry, HookReturnError, Hooks, with_hooks


def test_kinds_have_the_numbers_and_names_of_the_three_registrations():
    assert [(kind.name, kind.value) for kind in HookKind] == [("forward_pre", 0), ("forward", 1), ("backward", 2)]


@pytest.mark.parametrize("kind", list(HookKind))
def test_kind_is_read_from_its_number_its_name_and_itself(kind):
    assert HookKind.from_(kind.value) is kind
    assert HookKind.from_(kind.name) is kind
    assert HookKind.from_(kind) is kind
    assert getattr(HookKind, "from")(kind.name) is kind


@pytest.mark.parametrize("value", [3, -1, True, False, 1.0, "1", "Forward", "FORWARD", "", "from_", " backward", None])
def test_kind_of_anything_else_is_refused_with_the_choices(value):
    with pytest.raises(ValueError, match="forward_pre"):
        HookKind.from_(value)


def test_handle_names_its_registration():
    _, hooks = with_hooks(nn.Identity())
    pre = hooks.add_forward_pre_hook(lambda x: x)
    post = hooks.add_forward_hook(lambda x, y: y)
    back = hooks.add_backward_hook(lambda g: g)
    assert [handle.kind for handle in (pre, post, back)] == list(HookKind)
    assert {handle.registry for handle in (pre, post, back)} == {hooks.registry}
    assert len({handle.id for handle in (pre, post, back)}) == 3
    assert all(isinstance(handle, HookHandle) for handle in (pre, post, back))
    assert (list(hooks.registry.pre), list(hooks.registry.post), list(hooks.registry.back)) == (
        [pre.id],
        [post.id],
        [back.id],
    )


def test_remove_is_idempotent_and_takes_only_its_own_registration():
    wrapper, hooks = with_hooks(nn.Identity())
    first = hooks.add_forward_pre_hook(lambda x: x + 1)
    second = hooks.add_forward_pre_hook(lambda x: x * 2)
    for _ in range(2):
        first.remove()
        assert wrapper(torch.tensor(3.0)) == 6
    second.remove()
    assert hooks.registry.is_empty
    third = hooks.add_forward_pre_hook(lambda x: x)
    assert third.id not in (first.id, second.id)
    first.remove()
    second.remove()
    assert list(hooks.registry.pre) == [third.id]


def test_one_function_registered_twice_runs_twice_until_one_is_removed():
    wrapper, hooks = with_hooks(nn.Identity())

    def double(x):
        return x * 2

    hooks.add_forward_pre_hook(double)
    hooks.add_forward_pre_hook(double).remove()
    hooks.add_forward_pre_hook(double)
    assert wrapper(torch.tensor(1.0)) == 4


def test_handle_and_registry_outlive_the_wrapper():
    wrapper, hooks = with_hooks(nn.Identity())
    handle = hooks.add_forward_pre_hook(lambda x: x)
    alive = weakref.ref(wrapper)
    gc.disable()
    try:
        del wrapper
        assert alive() is None  # no cycle keeps it until the next collection
    finally:
        gc.enable()
    handle.remove()
    assert hooks.registry.is_empty


def test_registry_is_freed_with_its_wrapper_and_handles():
    wrapper, hooks = with_hooks(nn.Identity())
    alive = weakref.ref(hooks.registry)
    del wrapper, hooks
    assert alive() is None


def test_copy_and_pickle_of_a_registry_are_empty():
    registry = HookRegistry()
    handle = Hooks(registry).add_forward_hook(lambda x, y: y)
    for copied in (copy.copy(registry), copy.deepcopy(registry), pickle.loads(pickle.dumps(registry))):
        assert copied is not registry
        assert copied.is_empty
        assert copied.registry_id != registry.registry_id
    copied_handle = copy.deepcopy(handle)
    copied_handle.remove()
    assert list(registry.post) == [handle.id]


def native_pre(module, args):
    return args


def native_post(module, args, output):
    return output


def native_back(module, grad_input, grad_output):
    return grad_input


@pytest.mark.parametrize(
    ("method", "hook", "called", "told"),
    [
        ("add_forward_pre_hook", native_pre, "hook(x)", "register_forward_pre_hook"),
        ("add_forward_hook", native_post, "hook(x, y)", "register_forward_hook"),
        ("add_backward_hook", native_back, "hook(g)", "register_full_backward_hook"),
        ("add_backward_hook", lambda: None, "hook(g)", "register_full_backward_hook"),
        ("add_forward_hook", lambda y: y, "hook(x, y)", "return y"),
        ("add_forward_pre_hook", lambda x, *, scale: x, "hook(x)", "return x"),
        ("add_forward_hook", functools.partial(native_post, 1, 2), "hook(x, y)", "return y"),
    ],
)
def test_hook_that_cannot_take_its_arguments_is_refused_at_registration(method, hook, called, told):
    _, hooks = with_hooks(nn.Identity())
    with pytest.raises(TypeError) as refused:
        getattr(hooks, method)(hook)
    message = str(refused.value)
    assert called in message
    assert told in message
    assert "no module" in message or "only the gradient" in message
    assert hooks.registry.is_empty
    assert hooks.registry.next_id == 0


@pytest.mark.parametrize("hook", [None, 3, "hook", torch.zeros(1)])
def test_what_is_not_callable_is_refused(hook):
    _, hooks = with_hooks(nn.Identity())
    with pytest.raises(TypeError, match=r"called as hook\(g\)"):
        hooks.add_backward_hook(hook)


class Counter:
    def __init__(self):
        self.num_calls = 0

    def __call__(self, x):
        self.num_calls += 1
        return x

    def method(self, x, y):
        self.num_calls += 1
        return y


def test_any_callable_with_the_right_arguments_is_a_hook():
    wrapper, hooks = with_hooks(nn.Identity())
    counter = Counter()
    hooks.add_forward_pre_hook(counter)
    hooks.add_forward_pre_hook(nn.ReLU())
    hooks.add_forward_pre_hook(torch.neg)  # tells no signature
    hooks.add_forward_pre_hook(lambda *args: args[0])
    hooks.add_forward_pre_hook(lambda x, scale=3: x * scale)
    hooks.add_forward_hook(counter.method)
    hooks.add_forward_hook(functools.partial(lambda offset, x, y: y + offset, 1.0))
    assert wrapper(torch.tensor(2.0)) == -5
    assert counter.num_calls == 2


def steer(x, y):
    torch.add(y, 1)


def test_none_from_a_hook_is_an_error_that_names_the_hook_and_what_to_write():
    wrapper, hooks = with_hooks(nn.Linear(2, 2))
    x = torch.ones(1, 2, requires_grad=True)
    handle = hooks.add_forward_hook(steer)
    with pytest.raises(HookReturnError, match="'steer'") as missing:
        wrapper(x)
    assert isinstance(missing.value, TypeError)
    assert "return y" in missing.value.hint
    assert "return y" in str(missing.value)
    assert "test_registry.py" in str(missing.value)
    handle.remove()

    handle = hooks.add_forward_pre_hook(lambda x: None)
    with pytest.raises(HookReturnError, match="return x"):
        wrapper(x)
    handle.remove()

    hooks.add_backward_hook(lambda g: None)
    output = wrapper(x)
    with pytest.raises(HookReturnError, match="return g"):
        output.sum().backward()
    assert x.grad is None


def test_none_goes_on_where_the_value_is_none():
    class Nothing(nn.Module):
        def forward(self, x=None):
            return None

    wrapper, hooks = with_hooks(Nothing())
    hooks.add_forward_pre_hook(lambda x: x)
    hooks.add_forward_hook(lambda x, y: y)
    assert wrapper(None) is None
    assert wrapper() is None


def test_changes_inside_a_hook_are_seen_from_the_next_phase_on():
    wrapper, hooks = with_hooks(nn.Identity())
    log = []
    handles = []

    def first(x):
        log.append("first")
        handles[0].remove()
        handles[1].remove()
        hooks.add_forward_pre_hook(lambda x: log.append("late pre") or x)
        hooks.add_forward_hook(lambda x, y: log.append("late post") or y)
        return x

    handles.append(hooks.add_forward_pre_hook(first))
    handles.append(hooks.add_forward_pre_hook(lambda x: log.append("second") or x))
    wrapper(torch.ones(1))
    assert log == ["first", "second", "late post"]
    log.clear()
    wrapper(torch.ones(1))
    assert log == ["late pre", "late post"]


def test_changes_inside_a_backward_hook_are_seen_from_the_next_pass_on():
    wrapper, hooks = with_hooks(nn.Linear(2, 2))
    log = []
    handles = []

    def first(g):
        log.append("first")
        handles[1].remove()
        hooks.add_backward_hook(lambda g: log.append("late") or g)
        return g

    handles.append(hooks.add_backward_hook(first))
    handles.append(hooks.add_backward_hook(lambda g: log.append("second") or g))
    loss = wrapper(torch.ones(1, 2)).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert log == ["first", "second", "first"]


def test_threads_add_and_remove_while_others_run():
    wrapper, hooks = with_hooks(nn.Linear(2, 2))
    counted = []
    errors = []
    hooks.add_backward_hook(lambda g: counted.append(1) or g)
    is_done = threading.Event()

    def churn():
        try:
            while not is_done.is_set():
                handles = [
                    hooks.add_forward_pre_hook(lambda x: x),
                    hooks.add_forward_hook(lambda x, y: y),
                    hooks.add_backward_hook(lambda g: g),
                ]
                for handle in handles:
                    handle.remove()
        except Exception as error:
            errors.append(error)

    def run():
        try:
            for _ in range(50):
                wrapper(torch.ones(1, 2, requires_grad=True)).sum().backward()
        except Exception as error:
            errors.append(error)

    churning = [threading.Thread(target=churn) for _ in range(2)]
    running = [threading.Thread(target=run) for _ in range(4)]
    for thread in churning + running:
        thread.start()
    for thread in running:
        thread.join()
    is_done.set()
    for thread in churning:
        thread.join()
    assert errors == []
    assert len(counted) == 200
    assert len(hooks.registry.back) == 1
    assert not hooks.registry.pre
    assert not hooks.registry.post


def test_ids_stay_unique_when_threads_register_at_once():
    _, hooks = with_hooks(nn.Identity())
    handles = []

    def register():
        for _ in range(200):
            handles.append(hooks.add_forward_hook(lambda x, y: y))

    threads = [threading.Thread(target=register) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({handle.id for handle in handles}) == 800 == len(hooks.registry.post)


def test_public_names_are_those_of_the_package():
    assert nf.with_hooks is with_hooks
    assert nf.HookKind is HookKind
    assert nf.Hooks is Hooks
