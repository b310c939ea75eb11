"""DataParallel over several devices is refused by name; over one device it is none of our business."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from neural_flow.saved_tensors import offload_saved_tensors, record_saved_tensors


def replicated(net, num_devices):
    parallel = nn.DataParallel(net)
    parallel.device_ids = list(range(num_devices))
    return parallel


@pytest.mark.parametrize("is_nested", [False, True])
def test_two_devices_are_refused_with_the_fix(is_nested):
    net = replicated(nn.Linear(3, 3), 2)
    model = nn.Sequential(net) if is_nested else net
    for name, context in [
        ("record_saved_tensors", record_saved_tensors(model)),
        ("offload_saved_tensors", offload_saved_tensors()),
    ]:
        with pytest.raises(RuntimeError, match=f"{name}.*2 devices.*enter the context inside forward"), context:
            model(torch.randn(2, 3))


@pytest.mark.parametrize("num_devices", [0])
def test_fewer_devices_are_recorded(num_devices):
    model = replicated(nn.Tanh(), num_devices)
    with record_saved_tensors(model) as record:
        model(torch.randn(2, 3, requires_grad=True))
    assert [row.path for row in record.rows] == ["module"]


def test_other_threads_and_later_calls_are_left_alone(monkeypatch):
    calls = []
    monkeypatch.setattr(nn.DataParallel, "forward", lambda self, x: calls.append("reached torch"))
    model = replicated(nn.Linear(3, 3), 2)
    x = torch.randn(2, 3)
    with offload_saved_tensors(), offload_saved_tensors():
        thread = threading.Thread(target=lambda: model(x))
        thread.start()
        thread.join()
        with offload_saved_tensors():
            pass
        with pytest.raises(RuntimeError, match="offload_saved_tensors"):
            model(x)
    assert calls == ["reached torch"]
    model(x)
    assert calls == ["reached torch"] * 2


def test_context_inside_forward_works_in_the_threads_of_replicas():
    class Net(nn.Module):
        def forward(self, x):
            with offload_saved_tensors() as offload:
                y = x.exp()
            counts.append(offload.num_stored)
            return y

    counts: list[int] = []
    outputs: dict[int, torch.Tensor] = {}
    leaves = [torch.randn(2000, requires_grad=True) for _ in range(2)]
    net = Net()

    def run(index):
        outputs[index] = net(leaves[index])

    threads = [threading.Thread(target=run, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [1, 1]
    for index, leaf in enumerate(leaves):
        outputs[index].sum().backward()
        assert torch.equal(leaf.grad, leaf.exp())
