"""On every sample model the traced edges are what interventions show."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[2] / "sample_models"

# Edges that values cannot show, and why.
UNSHOWN: dict[str, set[tuple[str, str]]] = {
    # other lengths than those of the packed batch are refused, so they cannot be asked
    "rnn": {("in:1", "lstm")},
}


def load(name: str):
    spec = importlib.util.spec_from_file_location(f"sample_{name}", SAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inputs_of(module) -> tuple[tuple, dict]:
    given = module.neural_flow_inputs()
    if isinstance(given, dict):
        return (), given
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], tuple) and isinstance(given[1], dict):
        return given
    return given if isinstance(given, tuple) else (given,), {}


@pytest.mark.parametrize(
    "name",
    [
        "unet",
        "multimodal",
        "shared_module",
        "rnn",
        "dynamic_control_flow",
        "mlp",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("volume_unet", "gpt2", "vit", "resnet50")),
    ],
)
def test_edges_equal_what_interventions_show(name, compare_with_oracle, monkeypatch):
    monkeypatch.syspath_prepend(str(SAMPLES))
    module = load(name)
    args, kwargs = inputs_of(module)
    missing, extra = compare_with_oracle(module.neural_flow_model(), args, kwargs, detail="layer")
    assert missing == set()
    assert extra == UNSHOWN.get(name, set())
