"""What a look at a model must not change; the whole of it is in the tests of isolation."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import neural_flow as nf
from neural_flow.errors import ForwardError


def norms() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 2))


@pytest.mark.parametrize("train", [True, False])
def test_predictions_after_a_look_are_those_before(train):
    model, x = norms(), torch.rand(6, 4)
    model.train()
    nf.render(model, x, train=train)
    assert model[1].num_batches_tracked == 0
    assert torch.equal(model[1].running_mean, torch.zeros(4))
    assert model.training


@pytest.mark.parametrize("train", [True, False])
def test_flags_of_single_modules_stay(train):
    model = norms().train()
    model[3].eval()
    nf.render(model, torch.rand(6, 4), train=train)
    assert [module.training for module in model] == [True, True, True, False, True]


def test_functions_of_torch_stay_what_they_are():
    before = {name: id(value) for name, value in vars(torch).items() if callable(value)}
    nf.render(norms(), torch.rand(6, 4))
    assert {name: id(value) for name, value in vars(torch).items() if name in before and callable(value)} == before
    assert torch.tensor([torch.tensor(1.0)]).tolist() == [1.0]


class Fails(nn.Module):
    def forward(self, x):
        raise ValueError("no")


def test_tries_that_fail_leave_no_hooks():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Fails())
    for _ in range(3):
        with pytest.raises(ForwardError, match="no"):
            nf.render(model, torch.rand(1, 4))
        for module in model.modules():
            assert not module._forward_hooks
            assert not module._forward_pre_hooks
            assert not module._backward_hooks


def test_gradients_that_are_there_stay():
    model, x = norms(), torch.rand(6, 4, requires_grad=True)
    for number, param in enumerate(model.parameters()):
        param.grad = None if number % 2 else torch.full_like(param, 3.0)
    kept = [param.grad for param in model.parameters()]
    nf.render(model, x, gradients=True)
    assert x.grad is None
    for param, grad in zip(model.parameters(), kept, strict=True):
        assert param.grad is grad
        assert grad is None or torch.equal(grad, torch.full_like(param, 3.0))


def test_looking_twice_and_inside_another_look():
    model, x = norms().eval(), torch.rand(6, 4)
    with nf.AttentionTracer(model), nf.DataflowTracer(model) as outer:
        model(x)
        again = nf.trace(model, x, detail="layer").record
    assert [call.path for call in outer.trace.calls][:6] == ["", "0", "1", "2", "3", "4"]
    assert again.edges == nf.trace(model, x, detail="layer").record.edges


def test_dropout_is_the_same_in_both_passes():
    torch.manual_seed(5)
    model, x = norms().train(), torch.ones(64, 4)
    first = nf.render(model, x, train=True, select="*").capture.stats("2")
    second = nf.render(model, x, train=True, select="*").capture.stats("2")
    assert first == second
    state = torch.get_rng_state()
    expected = (model[:3](x) == 0).float().mean().item()
    torch.set_rng_state(state)
    assert first.zero_fraction == pytest.approx(expected)
