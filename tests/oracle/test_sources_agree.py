"""Dataflow, fx and export give the same edges wherever all of them answer."""

from __future__ import annotations

import warnings

import pytest
import torch
from programs import PROGRAMS, Program
from samples import inputs_of, load

import neural_flow as nf
from neural_flow.errors import TopologyFallbackWarning
from neural_flow.records import Topology


def edges(topology: Topology) -> set[tuple[str, str]]:
    names = {stage.stage_id: stage.name for stage in topology.stages}
    return {(names[edge.source], names[edge.target]) for edge in topology.edges if not edge.inferred}


def compare(model, args, kwargs, source, **options) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Return which edges another source says more and less; skip where it cannot answer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopologyFallbackWarning)
        seen = nf.trace(model, args, kwargs, **options).record
        told = nf.trace(model, args, kwargs, topology=source, **options).record
    if told.source != source:
        pytest.skip(f"{source} cannot trace this")
    return edges(told) - edges(seen), edges(seen) - edges(told)


# Which part of a cat or of a stack a view shows depends on sizes: fx has none, export follows slices of plain cats.
COARSE = {
    "fx": {"unpicked_part_is_no_edge", "parts_of_a_stack", "one_part_of_three", "part_of_a_part",
           "part_overwritten_with_another", "parts_moved_and_read"},
    "export": {"parts_of_a_stack", "one_part_of_three", "part_of_a_part", "part_overwritten_with_another",
               "parts_moved_and_read"},
}  # fmt: skip


EXPORTED = {"residual", "write_into_slice", "overwritten_value_is_gone", "unpicked_part_is_no_edge", "part_of_a_part"}


@pytest.mark.parametrize(
    ("name", "source"),
    [
        pytest.param(name, source, marks=() if source == "fx" or name in EXPORTED else pytest.mark.slow)
        for name in PROGRAMS
        for source in ("fx", "export")
    ],
)
def test_on_programs(name, source):
    torch.manual_seed(0)
    more, less = compare(Program(PROGRAMS[name]), (torch.randn(6, 4),), {}, source, select="*")
    assert less == set()
    assert bool(more) == (name in COARSE[source]), more


SAMPLES = ["unet", "multimodal", "shared_module", "rnn", "mlp"]
SLOW_SAMPLES = ["volume_unet", "gpt2", "vit", "resnet50"]


@pytest.mark.parametrize("source", ["fx", pytest.param("export", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [*SAMPLES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_SAMPLES)])
def test_on_samples(name, source):
    module = load(name)
    args, kwargs = inputs_of(module)
    assert compare(module.neural_flow_model(), args, kwargs, source, detail="layer") == (set(), set())
