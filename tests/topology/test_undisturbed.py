from __future__ import annotations

import pytest
import torch
from torch import nn

from neural_flow.topology import undisturbed as guard
from neural_flow.topology.undisturbed import undisturbed


class Untidy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("same", self.count)
        self.seen = "nothing"


def disturb(model: Untidy) -> None:
    count = model.count
    with undisturbed(model):
        assert model.count is model.same
        assert model.count is not count
        model.count.add_(1)
        model.layer.weight.data.zero_()
        model.seen, model.extra = "everything", 1
        model.layer = nn.Linear(3, 3)
        del model.same
        raise KeyError


def test_everything_is_given_back_also_after_an_error():
    model = Untidy()
    weight, count, layer = model.layer.weight, model.count, model.layer
    before = weight.clone()
    with pytest.raises(KeyError):
        disturb(model)
    assert model.layer is layer
    assert model.layer.weight is weight
    assert model.count is count is model.same
    assert torch.equal(weight, before)
    assert count.item() == 0
    assert model.seen == "nothing"
    assert not hasattr(model, "extra")


def test_large_parameters_are_not_copied(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(guard, "MAX_PARAM_NBYTES", 4)
    model = Untidy()
    weight, count = model.layer.weight, model.count
    with undisturbed(model):
        assert model.layer.weight is weight
        assert model.count is not count
