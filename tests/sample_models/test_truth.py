"""The edges of four samples against lists written by hand from their forward methods."""

from __future__ import annotations

import pytest

import neural_flow as nf
from neural_flow.models.inputs import make_inputs
from neural_flow.models.target import load_target

# source, target, kind, via, shape of what flows. The image is the deepest way into the trunk of MULTIMODAL, so all
# else merges there; the words and the sentence's end meet where the sequence is packed.
UNET = """
image        encoder.down0  primary  -    1x1x128x128
encoder.down0 encoder.down1 primary  -    1x16x128x128
encoder.down1 encoder.down2 primary  -    1x32x64x64
encoder.down2 mid           primary  -    1x64x32x32
encoder.down2 decoder.up2   skip     cat  1x64x32x32
mid          decoder.up2    primary  cat  1x128x16x16
encoder.down1 decoder.up1   skip     cat  1x32x64x64
decoder.up2  decoder.up1    primary  cat  1x64x32x32
encoder.down0 decoder.up0   skip     cat  1x16x128x128
decoder.up1  decoder.up0    primary  cat  1x32x64x64
decoder.up0  head           primary  -    1x16x128x128
head         output         primary  -    1x2x128x128
"""
MULTIMODAL = """
image               image_tower.conv1   primary  -    1x1x96x96
image_tower.conv1   image_tower.conv2   primary  -    1x16x48x48
image_tower.conv2   image_tower.conv3   primary  -    1x32x24x24
table               table_tower.widen   primary  -    1x6
table_tower.widen   table_tower.mix     primary  -    1x64
words               text_tower.embed    primary  -    1x8
text_tower.embed    text_tower.attend   primary  -    1x8x64
text_tower.embed    trunk               merge    add  1x8x64
text_tower.attend   trunk               merge    add  1x8x64
image_tower.conv3   trunk               primary  cat  1x64x12x12
table_tower.mix     trunk               merge    cat  1x64
trunk               diagnosis           primary  -    1x128
trunk               risk                primary  -    1x128
diagnosis           diagnosis           primary  -    1x5
risk                risk                primary  -    1x1
"""
SHARED = """
left             encoder.conv1    primary  -    1x1x96x96
encoder.conv1    encoder.conv2    primary  -    1x16x48x48
encoder.conv2    encoder.conv3    primary  -    1x32x24x24
right            encoder.conv1#1  primary  -    1x1x96x96
encoder.conv1#1  encoder.conv2#1  primary  -    1x16x48x48
encoder.conv2#1  encoder.conv3#1  primary  -    1x32x24x24
encoder.conv3    compare          primary  sub  1x64x12x12
encoder.conv3#1  compare          merge    sub  1x64x12x12
compare          judge            primary  -    1x32
judge            output           primary  -    1x1
"""
RNN = """
words    embed   primary  -  3x10
embed    lstm    primary  _pack_padded_sequence  3x10x48
lengths  lstm    merge    _pack_padded_sequence  3
lstm     tag     primary  -  3x10x96
tag      output  primary  -  3x10x5
"""


def edges_of(name: str, **options: object) -> set[tuple[str, str, str, str]]:
    loaded = load_target(f"sample:{name}")
    inputs = make_inputs(loaded)
    with loaded.scope:
        record = nf.trace(loaded.model, inputs.args, inputs.kwargs, **options).record
    names = [stage.name for stage in record.stages]
    return {(names[edge.source], names[edge.target], edge.kind, "+".join(edge.via) or "-") for edge in record.edges}


def truth(text: str) -> set[tuple[str, str, str, str]]:
    return {tuple(line.split()[:4]) for line in text.strip().splitlines()}  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "text"), [("unet", UNET), ("multimodal", MULTIMODAL), ("shared_module", SHARED), ("rnn", RNN)]
)
def test_edges_are_those_of_the_forward_method(name, text):
    assert edges_of(name) == truth(text)


def test_values_are_those_that_the_sources_made():
    for name, text in (("unet", UNET), ("multimodal", MULTIMODAL), ("shared_module", SHARED)):
        loaded = load_target(f"sample:{name}")
        inputs = make_inputs(loaded)
        with loaded.scope:
            record = nf.trace(loaded.model, inputs.args, inputs.kwargs).record
        names = [stage.name for stage in record.stages]
        found = {
            (names[edge.source], names[edge.target]): ["x".join(map(str, meta.shape)) for meta in edge.tensors]
            for edge in record.edges
        }
        for source, target, _, _, shape in (line.split() for line in text.strip().splitlines()):
            assert found[source, target] == [shape], (source, target)


def test_other_sources_agree_on_the_unet():
    by_source = {source: edges_of("unet", topology=source) for source in ("dataflow", "fx", "export")}
    pairs = {name: {(source, target, kind) for source, target, kind, _ in found} for name, found in by_source.items()}
    assert pairs["fx"] == pairs["export"] == pairs["dataflow"]
