from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from neural_flow.models.target import load_target
from neural_flow.models.untrained import is_untrained
from neural_flow.pipeline import render

SAMPLES = Path(__file__).parents[2] / "sample_models"


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))


def without_bias() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, bias=False), nn.Flatten(), nn.Linear(4 * 36, 3, bias=False))


def normalised() -> nn.Module:
    return nn.Sequential(nn.Embedding(9, 8), nn.LayerNorm(8), nn.Linear(8, 3))


def convolutional() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))


def as_libraries_initialise() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6), nn.Linear(6, 3))
    for module in model:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=3.0)
            nn.init.zeros_(module.bias)
    return model


INPUTS: list[tuple[Callable[[], nn.Module], tuple[int, ...]]] = [
    (linear, (4, 8)),
    (without_bias, (4, 2, 8, 8)),
    (normalised, (4,)),
    (convolutional, (4, 2, 8, 8)),
    (as_libraries_initialise, (4, 8)),
]


@pytest.fixture(autouse=True)
def random_state_of_its_own():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.mark.parametrize(("make", "shape"), INPUTS)
def test_a_few_steps_of_training_show(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    model = make()
    inputs = torch.arange(4) if shape == (4,) else torch.randn(shape)
    before = [value.clone() for value in model.state_dict().values()]
    assert is_untrained(model)
    assert all(torch.equal(*pair) for pair in zip(before, model.state_dict().values(), strict=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(10):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), torch.arange(4) % 3).backward()
        optimizer.step()
    assert not is_untrained(model)


def test_what_cannot_tell_is_not_called_untrained() -> None:
    assert not is_untrained(nn.ReLU())
    assert not is_untrained(nn.Embedding(4, 3))
    with torch.device("meta"):
        assert not is_untrained(linear())


@pytest.mark.parametrize("name", ["unet", "digits", "reverse"])
def test_trained_samples_are_known_as_trained(name: str) -> None:
    assert not is_untrained(load_target(str(SAMPLES / f"{name}.py")).model)


def test_parameters_that_are_not_made_yet_are_untrained() -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(3))
    assert is_untrained(model)
    drawing = render(model, torch.rand(2, 5))
    assert "untrained" in drawing.picture.capture.notes
    assert isinstance(model[0].weight, nn.UninitializedParameter)
    trained = nn.Sequential(nn.LazyLinear(4), nn.LayerNorm(4))
    nn.init.normal_(trained[1].weight)
    assert not is_untrained(trained)
