"""Offloading changes no gradient, keeps what must stay, and lets go of files as early as it can."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from neural_flow.saved_tensors import offload_saved_tensors


def clone_store(tensor):
    held = tensor.clone()
    return held.clone


PLACES = {"disk": "disk", "cpu": "cpu", "store": clone_store}


@pytest.mark.parametrize(("numel", "num_files"), [(999, 0), (1000, 1)])
def test_threshold_counts_elements(numel, num_files):
    x = torch.randn(numel, requires_grad=True)
    (expected,) = torch.autograd.grad(x.exp().sum(), x)
    with offload_saved_tensors(threshold=1000) as offload:
        y = x.exp().sum()
    assert (offload.num_files, offload.num_stored, offload.num_kept) == (num_files, num_files, 1 - num_files)
    y.backward()
    assert torch.equal(x.grad, expected)


def test_threshold_in_bytes():
    with offload_saved_tensors(threshold_nbytes=4000) as offload:
        one = torch.randn(999, requires_grad=True).exp()
        assert offload.num_files == 0
        other = torch.randn(500, dtype=torch.float64, requires_grad=True).exp()
        assert offload.num_files == 1
    assert offload.kept == {"small": 1}
    del one, other


def test_files_live_as_long_as_the_graph_needs_them():
    x = torch.randn(2000, requires_grad=True)
    with offload_saved_tensors() as offload:
        y = x.exp().sin().tanh().sum()
        assert offload.num_files == len(list(offload.folder.glob("*.pt"))) == 2
    y.backward()
    assert offload.num_files == len(list(offload.folder.glob("*.pt"))) == 0
    with offload:
        y = x.exp().sin().tanh().sum()
    assert offload.num_files == 2
    del y
    assert offload.num_files == len(list(offload.folder.glob("*.pt"))) == 0


def test_graph_kept_for_a_second_backward_keeps_its_files():
    x = torch.randn(2000, requires_grad=True)
    with offload_saved_tensors() as offload:
        y = x.exp().sum()
    y.backward(retain_graph=True)
    assert offload.num_files == 1
    y.backward()
    assert offload.num_files == 0
    assert torch.equal(x.grad, 2 * x.exp())


def make_resnet():
    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
            )

        def forward(self, x):
            return F.relu(x + self.body(x), inplace=True)

    stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2))
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    return nn.Sequential(stem, Block(8), Block(8), *head), torch.randn(4, 3, 32, 32)


def make_transformer():
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Linear(32, 7)), torch.randn(3, 20, 32)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(12, 24, num_layers=2, bidirectional=True, batch_first=True, dropout=0.2)
        self.head = nn.Linear(48, 5)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


NETS = {"resnet": make_resnet, "transformer": make_transformer, "lstm": lambda: (Tagger(), torch.randn(6, 30, 12))}


def gradients(net, x, context=None):
    net.zero_grad()
    x = x.clone().requires_grad_()
    torch.manual_seed(3)
    if context is None:
        loss = net(x).square().mean()
    else:
        with context:
            loss = net(x).square().mean()
            stored = context.num_stored
        assert stored > 0
    loss.backward()
    return [x.grad, *[param.grad for param in net.parameters()]]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("is_channels_last", [False, True])
def test_gradients_are_those_without_offload_bit_for_bit(name, place, is_channels_last):
    net, x = NETS[name]()
    if is_channels_last:
        if x.dim() != 4:
            x = x.transpose(0, 1).contiguous().transpose(0, 1)
        else:
            net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    expected = gradients(copy.deepcopy(net), x)
    offload = offload_saved_tensors(threshold=100, to=PLACES[place])
    found = gradients(copy.deepcopy(net), x, offload)
    assert len(expected) == len(found)
    for one, other in zip(expected, found, strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()
    assert offload.num_files == 0


def test_autocast_gradients_are_equal_too():
    net, x = make_transformer()
    with torch.autocast("cpu", torch.bfloat16):
        expected = gradients(net, x)
        expected = [one.clone() for one in expected]
        found = gradients(net, x, offload_saved_tensors(threshold=100))
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))


def test_parameters_buffers_leaves_and_their_views_stay():
    layer = nn.Linear(64, 64)
    frozen = nn.Linear(64, 64).requires_grad_(False)
    x = torch.randn(16, 64, requires_grad=True)
    with offload_saved_tensors(threshold=1000) as offload:
        y = frozen(layer(x)) * layer.weight.detach()[:16] * x[:, :]
    assert offload.kept == {"parameter": offload.num_kept}
    assert offload.num_kept >= 5
    stored = offload.num_stored
    assert stored == 1  # the product before the last factor
    y.sum().backward()
    norm = nn.BatchNorm1d(2000)
    x = torch.randn(2, 2000, requires_grad=True)
    with offload_saved_tensors(model=norm) as offload:
        y = norm(x)
    assert offload.num_stored == 2  # what it computed for backward
    with offload_saved_tensors() as offload:
        y = norm(x)
    assert offload.num_stored == 4
    del y


def test_one_file_for_one_content():
    x = torch.randn(2000, requires_grad=True) + 0
    with offload_saved_tensors() as offload:
        y = x * x + x.sin() + x.detach().mul(torch.ones(2000, requires_grad=True))
        assert offload.num_files == 1
        x.view(40, 50).transpose(0, 1).exp().sum().backward()
    del y


@pytest.mark.parametrize("write", [lambda x: x.mul_(3), lambda x: x.data.mul_(3)])
@pytest.mark.parametrize("place", PLACES)
def test_content_that_changed_between_two_saves_is_stored_twice(write, place):
    leaf = torch.randn(2000, requires_grad=True)
    x = leaf.detach().clone()
    first_value = x.clone()
    with offload_saved_tensors(to=PLACES[place]) as offload:
        one = leaf * x
        write(x)
        other = leaf * x
    assert offload.num_stored == 2
    (first,) = torch.autograd.grad(one.sum(), leaf)
    (second,) = torch.autograd.grad(other.sum(), leaf)
    assert torch.equal(first, first_value)
    assert torch.equal(second, first_value * 3)


def test_stored_tensor_keeps_the_value_that_was_saved_and_a_kept_one_raises():
    leaf = torch.randn(2000, requires_grad=True)
    with offload_saved_tensors() as offload:
        x = leaf + 0
        y = (x * x).sum()
    x.mul_(10)
    y.backward()
    assert torch.allclose(leaf.grad, 2 * leaf)
    with offload_saved_tensors(threshold=10_000) as offload:
        x = leaf + 0
        y = (x * x).sum()
    assert offload.num_files == 0
    x.mul_(10)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_parameter_changed_before_backward_raises():
    layer = nn.Linear(50, 50)
    x = torch.randn(2, 50, requires_grad=True)
    with offload_saved_tensors():
        y = layer(x).sum()
    with torch.no_grad():
        layer.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_small_view_of_large_memory_is_a_small_file():
    leaf = torch.randn(100_000, requires_grad=True)
    big = leaf + 0
    for view in (big[7:9], big[::50_000]):
        with offload_saved_tensors(threshold=1) as offload:
            y = view * torch.randn(2)
            y = (view * view).sum()
            (file,) = offload.folder.glob("*.pt")
            assert file.stat().st_size < 4096
        y.backward()
    assert leaf.grad.count_nonzero() == 4


def test_small_tensors_that_stay_leak_nothing():
    x = torch.randn(10, requires_grad=True)
    with offload_saved_tensors():
        y = x.exp()
    alive = weakref.ref(y)
    del y
    assert alive() is None


def test_memory_of_stored_tensors_is_let_go():
    x = torch.randn(5000, requires_grad=True)
    with offload_saved_tensors():
        h = x + 1
        y = (h * h).sum()
    alive = weakref.ref(h.untyped_storage())
    del h
    gc.collect()
    assert alive() is None
    y.backward()
    assert torch.equal(x.grad, 2 * (x + 1))


def test_only_this_thread_is_affected():
    x = torch.randn(2000, requires_grad=True)
    with offload_saved_tensors() as offload:
        other = threading.Thread(target=lambda: x.exp())
        other.start()
        other.join()
        assert offload.num_stored == 0
        y = x.exp()
        assert offload.num_stored == 1
    del y


def test_one_offload_entered_by_many_threads():
    offload = offload_saved_tensors()
    x = torch.randn(2000)
    grads, errors = [], []

    def work():
        try:
            for _ in range(10):
                leaf = x.clone().requires_grad_()
                with offload:
                    y = leaf.exp().sin().tanh().sum()
                y.backward()
                grads.append(leaf.grad)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(grads) == 40
    assert all(torch.equal(one, grads[0]) for one in grads)
    assert (offload.num_stored, offload.num_files) == (80, 0)


def test_nested_contexts_and_reentry():
    x = torch.randn(2000, requires_grad=True)
    outer, inner = offload_saved_tensors(), offload_saved_tensors(to="cpu")
    with outer:
        with inner:
            one = x.exp()
        with outer:
            two = x.exp()
        three = x.exp()
    assert (outer.num_stored, inner.num_stored) == (2, 1)
    del one, two, three


def test_as_decorator_in_a_module_that_is_copied_and_pickled():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.offload = offload_saved_tensors(threshold=10)
            self.layer = nn.Linear(10, 10)

        def forward(self, x):
            with self.offload:
                return self.layer(x.tanh())

    net = Net()
    other = copy.deepcopy(net)
    y = other(torch.randn(3, 10)).sum()
    assert (net.offload.num_stored, other.offload.num_stored) == (0, 1)
    y.backward()
    again = pickle.loads(pickle.dumps(offload_saved_tensors(threshold=7, to="cpu")))
    assert again.folder is None

    @offload_saved_tensors(threshold=10)
    def function(x):
        return x.exp()

    assert function(torch.randn(20, requires_grad=True)).grad_fn._raw_saved_result.unpack_hook is not None


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("is_inside", [False, True])
def test_checkpoint(use_reentrant, is_inside):
    x = torch.randn(2000, requires_grad=True)
    expected = torch.autograd.grad((x * 2).exp().sin().sum(), x)[0]
    offload = offload_saved_tensors()

    def body(value):
        if is_inside:
            with offload:
                return value.exp().sin()
        return value.exp().sin()

    h = x * 2
    if is_inside:
        y = checkpoint(body, h, use_reentrant=use_reentrant)
    else:
        with offload:
            y = checkpoint(body, h, use_reentrant=use_reentrant)
    y.sum().backward()
    assert torch.equal(x.grad, expected)
    assert offload.num_files == 0


def test_transforms():
    x = torch.randn(2000)
    with pytest.raises(RuntimeError, match="don't yet support saved tensor hooks"), offload_saved_tensors():
        torch.func.grad(lambda value: value.exp().sum())(x)
    leaf = torch.randn(3, 2000, requires_grad=True)
    with offload_saved_tensors() as offload:
        y = torch.func.vmap(lambda row: row.exp().sin())(leaf)
    y.sum().backward()
    assert torch.equal(leaf.grad, torch.autograd.grad(leaf.exp().sin().sum(), leaf)[0])
    assert offload.num_files == 0


def test_double_backward():
    x = torch.randn(6, dtype=torch.float64, requires_grad=True)

    def function(value):
        with offload_saved_tensors(threshold=1):
            return (value.exp() * value).sin()

    assert torch.autograd.gradgradcheck(function, x)


def test_double_backward_inside_is_offloaded_too():
    x = torch.randn(2000, requires_grad=True)
    with offload_saved_tensors() as offload:
        (gradient,) = torch.autograd.grad(x.exp().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(gradient.sum(), x)
    assert torch.equal(second, x.exp())
    assert offload.num_stored >= 1


@pytest.mark.parametrize(
    ("store", "error", "words"),
    [
        (lambda t: lambda: t[:5], RuntimeError, "returned shape, dtype and device"),
        (lambda t: lambda: t.clone()[:5], RuntimeError, "returned shape, dtype and device"),
        (lambda t: lambda: t.reshape(2, -1), RuntimeError, "returned shape, dtype and device"),
        (lambda t: lambda: t.half(), RuntimeError, "returned shape, dtype and device"),
        (lambda t: lambda: None, TypeError, "returned a NoneType, expected a Tensor"),
    ],
)
def test_store_that_gives_back_something_else_is_refused(store, error, words):
    x = torch.randn(2000, requires_grad=True)
    with offload_saved_tensors(to=store):
        y = x.exp().sum()
    with pytest.raises(error, match=words):
        y.backward()
    assert x.grad is None


def test_store_that_keeps_a_reference_is_guarded():
    leaf = torch.randn(2000, requires_grad=True)
    with offload_saved_tensors(to=lambda tensor: lambda: tensor):
        x = leaf + 0
        y = (x * x).sum()
    y.backward(retain_graph=True)
    x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_store_that_returns_no_function_is_refused():
    with (
        pytest.raises(TypeError, match="expected a function"),
        offload_saved_tensors(to=lambda tensor: tensor.tolist()),
    ):
        torch.randn(2000, requires_grad=True).exp()
    with pytest.raises(ValueError, match='"disk", "cpu" or a function'):
        offload_saved_tensors(to="gpu")


def test_error_inside_restores_the_hooks():
    with pytest.raises(ZeroDivisionError), offload_saved_tensors():
        1 / 0  # noqa: B018  # leaves by an error
    x = torch.ones(2000, requires_grad=True)
    assert x.exp().grad_fn._raw_saved_result.unpack_hook is None
