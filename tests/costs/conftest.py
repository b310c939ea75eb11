from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

SAMPLES = Path(__file__).parents[2] / "sample_models"


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    assert torch.is_grad_enabled()
    x = torch.ones(2, requires_grad=True)
    assert x.exp().grad_fn._raw_saved_result.unpack_hook is None


@pytest.fixture
def sample(monkeypatch):
    """Return a function that returns (model, arguments) of a sample model."""
    monkeypatch.syspath_prepend(str(SAMPLES))
    before = set(sys.modules)

    def load(name):
        module = importlib.import_module(name)
        inputs = module.neural_flow_inputs()
        return module.neural_flow_model(), inputs if isinstance(inputs, tuple) else (inputs,)

    yield load
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(SAMPLES)):
            del sys.modules[name]
