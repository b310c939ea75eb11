"""On every sample model the traced edges are what interventions show."""

from __future__ import annotations

import pytest
from samples import inputs_of, load

# Edges that values cannot show, and why.
UNSHOWN: dict[str, set[tuple[str, str]]] = {
    # other lengths than those of the packed batch are refused, so they cannot be asked
    "rnn": {("in:1", "lstm")},
}


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
def test_edges_equal_what_interventions_show(name, compare_with_oracle):
    module = load(name)
    args, kwargs = inputs_of(module)
    missing, extra = compare_with_oracle(module.neural_flow_model(), args, kwargs, detail="layer")
    assert missing == set()
    assert extra == UNSHOWN.get(name, set())
