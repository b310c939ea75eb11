"""Torch's promises about saved tensors and their hooks, with the version check that it drops."""

from __future__ import annotations

import functools
import gc
import threading
import weakref

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from neural_flow.saved_tensors import register_saved_tensor_hooks, saved_tensor_hooks


def same(tensor):
    return tensor


class Counter:
    def __init__(self):
        self.num_packed = 0
        self.num_unpacked = 0

    def pack(self, tensor):
        self.num_packed += 1
        return tensor.detach()

    def unpack(self, packed):
        self.num_unpacked += 1
        return packed


def test_pow_saves_its_very_input_and_exp_another_object_over_the_memory_of_its_result():
    x = torch.randn(5, requires_grad=True)
    assert x.pow(2).grad_fn._saved_self is x
    y = x.exp()
    assert y.grad_fn._saved_result is not y
    assert torch.equal(y.grad_fn._saved_result, y)
    assert y.grad_fn._saved_result.data_ptr() == y.data_ptr()


def test_released_attribute_cannot_be_read():
    y = torch.randn(5, requires_grad=True).exp()
    y.sum().backward()
    with pytest.raises(RuntimeError, match="after they have already been freed"):
        _ = y.grad_fn._saved_result


def test_without_hooks_one_object_and_under_identity_hooks_two_over_the_same_memory():
    x = torch.randn(5, requires_grad=True)
    y = x * x
    assert y.grad_fn._saved_self is x
    assert y.grad_fn._saved_other is x
    with saved_tensor_hooks(same, same):
        y = x * x
    one, other = y.grad_fn._saved_self, y.grad_fn._saved_other
    assert len({id(x), id(one), id(other)}) == 3
    assert x.data_ptr() == one.data_ptr() == other.data_ptr()
    y.sum().backward()
    assert torch.equal(x.grad, 2 * x)


def test_unpack_must_return_a_tensor_and_pack_take_one_argument():
    x = torch.randn(5, requires_grad=True)
    with saved_tensor_hooks(same, lambda packed: "no tensor"):
        y = x.exp()
    with pytest.raises(TypeError, match="expected to be a Tensor"):
        y.sum().backward()
    with (
        pytest.raises(TypeError, match="missing 1 required positional argument"),
        saved_tensor_hooks(lambda one, two: one, same),
    ):
        x.exp()


def test_pack_must_not_write_into_its_input():
    x = torch.randn(5, requires_grad=True) + 1
    with (
        pytest.raises(RuntimeError, match="modifying its input in place"),
        saved_tensor_hooks(lambda tensor: tensor.mul_(2), same),
    ):
        x.exp()


def test_packed_once_and_unpacked_as_often_as_needed():
    x = torch.randn(5, requires_grad=True)
    count = Counter()
    with saved_tensor_hooks(count.pack, count.unpack):
        y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert (count.num_packed, count.num_unpacked) == (2, 4)
    assert torch.equal(x.grad, 4 * x)


def test_reading_the_attribute_is_one_more_unpacking():
    x = torch.randn(5, requires_grad=True)
    count = Counter()
    with saved_tensor_hooks(count.pack, count.unpack):
        y = x * x
    y.sum().backward(retain_graph=True)
    y.sum().backward(retain_graph=True)
    assert torch.equal(y.grad_fn._saved_self, x)
    assert (count.num_packed, count.num_unpacked) == (2, 5)


def test_three_ways_to_register_too_late_are_three_errors():
    x = torch.randn(2, 3, requires_grad=True)
    y = x.exp()
    register_saved_tensor_hooks(y.grad_fn, "result", same, same)
    with pytest.raises(RuntimeError, match="already been set") as twice:
        register_saved_tensor_hooks(y.grad_fn, "result", same, same)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="after it has been freed") as released:
        register_saved_tensor_hooks(y.grad_fn, "result", same, same)
    product = torch.nn.functional.linear(x, torch.randn(4, 3))  # no weight gradient: the input is not saved
    with pytest.raises(RuntimeError, match="None is forbidden") as none:
        register_saved_tensor_hooks(product.grad_fn, "self", same, same)
    assert len({str(error.value) for error in (twice, released, none)}) == 3


def test_registering_packs_at_once_a_detached_tensor():
    x = torch.randn(5, requires_grad=True)
    y = x.exp()
    seen = []
    register_saved_tensor_hooks(y.grad_fn, "result", lambda tensor: seen.append(tensor) or tensor.clone(), same)
    assert torch.equal(seen[0], y)
    assert not seen[0].requires_grad
    y.sum().backward()
    assert torch.equal(x.grad, y)


def test_registering_after_a_write_is_refused():
    x = torch.randn(5, requires_grad=True) + 0
    y = x * x
    x.mul_(10)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        register_saved_tensor_hooks(y.grad_fn, "self", torch.clone, same)


def test_names_of_saved_tensors():
    x = torch.randn(4, 4, requires_grad=True)
    y = x[torch.tensor([0, 1]), torch.tensor([2, 3])]
    packed = []
    register_saved_tensor_hooks(y.grad_fn, "indices[1]", lambda tensor: packed.append(tensor) or tensor.clone(), same)
    assert packed[0].tolist() == [2, 3]
    y.sum().backward()
    assert x.grad.sum() == 2
    y = x[torch.tensor([0, 1]), torch.tensor([2, 3])]
    for name, words in [
        ("indices", r"write indices\[0\] to indices\[1\]"),
        ("indices[2]", r"saved 2 tensors"),
        ("none", "it saved: indices"),
        ("in dices", "it saved: indices"),
    ]:
        with pytest.raises(AttributeError, match=words):
            register_saved_tensor_hooks(y.grad_fn, name, same, same)
    with pytest.raises(AttributeError, match="saved one tensor"):
        register_saved_tensor_hooks(x.exp().grad_fn, "result[0]", same, same)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x, None)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        x, _ = ctx.saved_tensors
        return 2 * x * gradient


def test_tensors_of_a_custom_function_are_packed_too():
    x = torch.randn(5, requires_grad=True)
    y = Square.apply(x)
    register_saved_tensor_hooks(y.grad_fn, "tensors[0]", torch.clone, same)
    y.sum().backward()
    assert torch.equal(x.grad, 2 * x)
    with saved_tensor_hooks(torch.clone, same):
        y = Square.apply(x)
    y.sum().backward()
    assert torch.equal(x.grad, 4 * x)


KEEPERS = {
    "itself": (same, same),
    "detached": (lambda t: t.detach(), same),
    "data": (lambda t: t.data, same),
    "closure": (lambda t: lambda: t, lambda packed: packed()),
    "partial": (lambda t: functools.partial(torch.clone, t), lambda packed: packed()),
    "nest": (lambda t: {"a": [t.detach()]}, lambda packed: packed["a"][0]),
    "default": (lambda t: lambda held=t.data: held, lambda packed: packed()),
    "copied late": (lambda t: (t.detach(),), lambda packed: packed[0].clone()),
    "numpy": (lambda t: t.detach().numpy(), torch.from_numpy),
}


@pytest.mark.parametrize("name", KEEPERS)
@pytest.mark.parametrize("has_version", [False, True])
def test_tensor_kept_by_reference_raises_after_a_write_and_only_then(name, has_version):
    leaf = torch.randn(5, requires_grad=True)
    x = leaf + 0
    if has_version:
        x.add_(1)
    value = x.detach().clone()
    with saved_tensor_hooks(*KEEPERS[name]):
        y = (x * x).sum()
    y.backward(retain_graph=True)
    assert torch.equal(leaf.grad, 2 * value)
    with torch.no_grad():
        x.mul_(10)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


COPIERS = {
    "clone": (torch.clone, same),
    "bytes": (lambda t: t.numpy().tobytes(), lambda packed: torch.frombuffer(bytearray(packed), dtype=torch.float32)),
    "numpy": (lambda t: t.detach().numpy().copy(), torch.from_numpy),
    "list": (lambda t: t.tolist(), torch.tensor),
}


@pytest.mark.parametrize("name", COPIERS)
def test_copy_gives_the_gradient_of_the_saved_value(name):
    leaf = torch.randn(5, requires_grad=True)
    x = leaf + 0
    value = x.detach().clone()
    with torch.no_grad():
        pack, unpack = COPIERS[name]
    with saved_tensor_hooks(lambda t: pack(t.detach()), unpack):
        y = (x * x).sum()
    x.mul_(10)
    y.backward()
    assert torch.equal(leaf.grad, 2 * value)


@pytest.mark.parametrize(
    ("pack", "unpack"),
    [
        (torch.clone, lambda packed: packed.mul_(2)),
        (same, lambda packed: packed.mul_(2)),
        (lambda t: [t.clone()], lambda packed: packed[0].zero_()),
        (lambda t: functools.partial(same, t.clone()), lambda packed: packed().add_(1)),
    ],
)
def test_unpack_hook_that_writes_into_its_input_is_named(pack, unpack):
    leaf = torch.randn(5, requires_grad=True)
    with saved_tensor_hooks(pack, unpack):
        y = leaf + 0
        y = (y * y).sum()
    with pytest.raises(RuntimeError, match=r"<lambda> modified its input in place"):
        y.backward()
    assert leaf.grad is None


def test_hook_may_return_something_new_made_from_its_input():
    leaf = torch.randn(5, requires_grad=True)
    with saved_tensor_hooks(lambda t: t / 2, lambda packed: packed * 2):
        y = (leaf * leaf).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert torch.equal(leaf.grad, 4 * leaf)


@pytest.mark.parametrize("error", [KeyError("k"), StopIteration(), KeyboardInterrupt()])
def test_errors_of_hooks_pass_as_the_same_object(error):
    def fail(_):
        raise error

    x = torch.randn(5, requires_grad=True)
    with pytest.raises(type(error)) as caught, saved_tensor_hooks(fail, same):
        x.exp()
    assert caught.value is error
    with saved_tensor_hooks(same, fail):
        y = x.exp()
    with pytest.raises(type(error)) as caught:
        y.sum().backward()
    assert caught.value is error
    assert x.grad is None


def test_returning_the_tensor_itself_leaks_nothing():
    x = torch.randn(5, requires_grad=True)
    with saved_tensor_hooks(same, same):
        y = x.exp()
    alive = weakref.ref(y)
    del y
    gc.collect()
    assert alive() is None


def test_copy_does_not_keep_the_memory_of_the_original():
    x = torch.randn(5, requires_grad=True)
    with saved_tensor_hooks(torch.clone, same):
        y = (x * 2).exp().sum()
        h = x + 1
        z = (h * h).sum()
    alive = weakref.ref(h.untyped_storage())
    del h
    gc.collect()
    assert alive() is None
    (y + z).backward()
    assert torch.allclose(x.grad, 2 * (x * 2).exp() + 2 * (x + 1))


def test_hooks_belong_to_one_thread():
    x = torch.randn(5, requires_grad=True)
    count = Counter()
    with saved_tensor_hooks(count.pack, count.unpack):
        other = threading.Thread(target=lambda: x.exp())
        other.start()
        other.join()
        assert count.num_packed == 0
        x.exp()
        assert count.num_packed == 1


def test_only_the_innermost_pair_runs_and_leaving_restores_the_outer():
    x = torch.randn(5, requires_grad=True)
    outer, inner = Counter(), Counter()
    with saved_tensor_hooks(outer.pack, outer.unpack):
        with saved_tensor_hooks(inner.pack, inner.unpack):
            x.exp()
        assert (outer.num_packed, inner.num_packed) == (0, 1)
        with pytest.raises(ZeroDivisionError), saved_tensors_hooks(inner.pack, inner.unpack):
            1 / 0  # noqa: B018  # leaves by an error
        x.exp()
        assert (outer.num_packed, inner.num_packed) == (1, 1)
    x.exp()
    assert (outer.num_packed, inner.num_packed) == (1, 1)


def test_double_backward_under_the_pair():
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)

    def function(value):
        with saved_tensor_hooks(torch.clone, same):
            return (value.exp() * value).sin()

    assert torch.autograd.gradcheck(function, x)
    assert torch.autograd.gradgradcheck(function, x)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_inside_hands_its_inputs_only(use_reentrant):
    x = torch.randn(5, requires_grad=True)
    count = Counter()
    with saved_tensor_hooks(count.pack, count.unpack):
        y = checkpoint(lambda value: value.exp().sin().tanh(), x * 1.5, use_reentrant=use_reentrant)
    assert count.num_packed <= 1
    y.sum().backward()
    expected = torch.autograd.grad((x * 1.5).exp().sin().tanh().sum(), x)[0]
    assert torch.equal(x.grad, expected)


def test_transforms_keep_their_own_words():
    with pytest.raises(RuntimeError, match="don't yet support saved tensor hooks"), saved_tensor_hooks(same, same):
        torch.func.grad(lambda value: value.exp().sum())(torch.randn(3))
    with saved_tensor_hooks(torch.clone, same):
        x = torch.randn(2, 3, requires_grad=True)
        y = torch.func.vmap(torch.exp)(x)
    y.sum().backward()
    assert torch.equal(x.grad, x.exp())


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("make", [lambda x: x.to_sparse(), lambda x: x.to_sparse_csr()])
def test_sparse_tensors_are_guarded_too(make):
    weight = torch.randn(3, 4, requires_grad=True)
    matrix = make(torch.randn(2, 3))
    for pack in (same, torch.clone, lambda t: [t.detach()]):
        weight.grad = None
        with saved_tensor_hooks(pack, lambda packed: packed[0] if isinstance(packed, list) else packed):
            y = torch.mm(matrix, weight).sum()
        y.backward()
        assert torch.allclose(weight.grad, matrix.to_dense().T @ torch.ones(2, 4))


def test_module_with_in_place_activations_is_unchanged():
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 2, 3))
    x = torch.randn(2, 1, 8, 8)
    net(x).square().sum().backward()
    expected = [param.grad.clone() for param in net.parameters()]
    net.zero_grad()
    with saved_tensor_hooks(same, same):
        y = net(x).square().sum()
    y.backward()
    assert all(torch.equal(param.grad, one) for param, one in zip(net.parameters(), expected, strict=True))
