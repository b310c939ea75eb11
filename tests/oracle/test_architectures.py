"""Architectures of libraries: the traced edges are those that interventions show, and each further one is explained."""

from __future__ import annotations

import warnings

import pytest
from zoo import ARCHITECTURES

pytestmark = pytest.mark.slow

# Edges that are true and that values cannot show, each with the reason.
UNSHOWN: dict[str, set[tuple[str, str]]] = {
    # token types are gathered at positions that come from the ids; all of them are zero
    "transformers roberta": {("in:0", "embeddings.token_type_embeddings")},
    # positions are counted round the padding id, which no nudge happens to be
    "transformers mpnet": {("in:0", "embeddings.position_embeddings")},
    # rows of two streams share one attention: it mixes keys and values, but each row keeps its own query
    "diffusers SD3Transformer2DModel": {
        ("transformer_blocks.0.attn.add_q_proj", "transformer_blocks.0.attn.to_out.0"),
        ("transformer_blocks.0.attn.to_q", "transformer_blocks.0.attn.to_add_out"),
        ("transformer_blocks.1.attn.add_q_proj", "transformer_blocks.1.attn.to_out.0"),
    },
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_edges_equal_what_interventions_show(name, compare_with_oracle, record_property):
    pytest.importorskip(name.split()[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, inputs = ARCHITECTURES[name]()
        missing, extra = compare_with_oracle(model, (), inputs, detail="layer")
    record_property("architecture", name if extra else f"{name} =")
    assert missing == set()
    assert extra == UNSHOWN.get(name, set())


def test_there_are_enough():
    assert len(ARCHITECTURES) >= 60
