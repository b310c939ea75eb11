"""The sample models and their inputs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

SAMPLES = Path(__file__).parents[2] / "sample_models"
sys.path.insert(0, str(SAMPLES))


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
