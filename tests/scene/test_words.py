from __future__ import annotations

import fnmatch
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neural_flow.records import ModelInfo, Stage, TensorMeta, Topology
from neural_flow.scene.words import (
    batch_size,
    count_text,
    family,
    main_tensor,
    matches,
    resolution,
    sample_shape,
    shape_text,
    value_text,
)


def meta(*shape: int, dtype: str = "float32") -> TensorMeta:
    return TensorMeta(shape=shape, dtype=dtype)


def topology(*metas: TensorMeta) -> Topology:
    stages = tuple(
        Stage(stage_id=index, kind="input", name="x", label="x", outputs=(found,)) for index, found in enumerate(metas)
    )
    return Topology(model=ModelInfo(name="m", class_name="m"), stages=stages, edges=())


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((16, 128, 128), "16×128²"),
        ((3, 224, 192), "3×224×192"),
        ((32, 16, 16, 16), "32×16³"),
        ((4, 8, 16, 16), "4×8×16×16"),
        ((197, 768), "197×768"),
        ((64, 64), "64×64"),
        ((10,), "10"),
        ((512, 1, 1), "512×1×1"),
        ((), ""),
    ],
)
def test_shape_text(shape, expected):
    assert shape_text(shape) == expected


@given(st.lists(st.integers(1, 300), max_size=5))
def test_shape_text_can_be_read_back(sizes):
    powers = {"²": 2, "³": 3}
    found = []
    for part in shape_text(tuple(sizes)).split("×") if sizes else []:
        found += [int(part[:-1])] * powers[part[-1]] if part[-1] in powers else [int(part)]
    assert found == sizes


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0"), (148, "148"), (999, "999"), (2464, "2.5 k"), (14_000, "14 k"), (482_000, "0.48 M"),
        (25_557_032, "25.6 M"), (124_439_808, "124 M"), (1_500_000_000, "1.5 B"),
    ],
)  # fmt: skip
def test_count_text(count, expected):
    assert count_text(count) == expected


@given(st.integers(0, 10**12))
def test_counts_are_right_to_two_digits(count):
    text = count_text(count)
    number, _, unit = text.partition(" ")
    value = float(number) * {"": 1, "k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}[unit]
    assert value == pytest.approx(count, rel=0.06)
    assert len(text) <= 7


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (1.5e9, "FLOP", "1.5 GFLOP"), (2048, "bytes", "2.05 kB"), (12, "B", "12 B"), (0.0023, "s", "2.3 ms"),
        (4.2e-5, "s", "42 µs"), (2.5, "s", "2.5 s"), (0.0314, "", "0.0314"), (482_000, "parameters", "0.48 M"),
    ],
)  # fmt: skip
def test_value_text(value, unit, expected):
    assert value_text(value, unit) == expected


def test_batch_is_what_all_floating_inputs_share():
    assert batch_size(topology(meta(2, 3, 8, 8), meta(2, 5))) == 2
    assert batch_size(topology(meta(2, 3), meta(3, 5))) is None
    assert batch_size(topology(meta(2, 3), meta(9, dtype="int64"))) == 2
    assert batch_size(topology(meta(4, 16, dtype="int64"), meta(4, 16, dtype="bool"))) == 4
    assert batch_size(topology(meta())) is None


def test_nodes_of_a_graph_are_no_batch():
    assert batch_size(topology(meta(34, 24), meta(34, 34))) is None
    assert batch_size(topology(meta(34, 24), meta(34, 30))) == 34
    assert batch_size(topology(meta(2, 24), meta(2, 2))) == 2  # two elements, not a graph of two nodes


def test_the_batch_leaves_a_shape_where_it_divides():
    assert sample_shape(meta(2, 3, 8, 8), 2) == (3, 8, 8)
    assert sample_shape(meta(8, 3, 4), 2) == (3, 4)  # windows: a multiple of the batch
    assert sample_shape(meta(5, 3), 2) == (5, 3)
    assert sample_shape(meta(2), 2) == (2,)
    assert sample_shape(meta(2, 3), None) == (2, 3)


def test_a_batch_of_one_divides_everything_and_so_is_looked_for():
    assert sample_shape(meta(1, 3, 8, 8), 1) == (3, 8, 8)
    assert sample_shape(meta(10, 192), 1) == (10, 192)  # positions
    assert sample_shape(meta(10, 1, 192), 1) == (10, 192)  # sequence first
    assert sample_shape(meta(64, 49, 96), 1) == (49, 96)  # windows of one image
    assert sample_shape(meta(1, 10), 1) == (10,)
    assert sample_shape(meta(5), 1) == (5,)


def test_the_main_tensor_is_the_largest_floating_one():
    stage = Stage(stage_id=0, kind="module", name="a", label="a")
    several = replace(stage, outputs=(meta(9, 9, dtype="int64"), meta(2), meta(3)))
    assert main_tensor(several) == meta(3)
    assert main_tensor(replace(stage, outputs=(meta(9, dtype="int64"),))) == meta(9, dtype="int64")
    assert main_tensor(stage) is None
    received = replace(stage, inputs=(meta(4),))
    assert main_tensor(received) is None
    assert main_tensor(replace(received, kind="output")) == meta(4)


def test_resolution_is_of_maps_alone():
    assert resolution((16, 128, 128)) == 128
    assert resolution((16, 64, 256)) == 128
    assert resolution((8, 4, 32, 32)) == 32
    assert resolution((197, 768)) == 0
    assert resolution(()) == 0


@given(
    st.from_regex(r"[a-c]{1,3}(\.[a-c0-2]{1,2}){0,3}", fullmatch=True), st.from_regex(r"[a-c*?]{1,4}", fullmatch=True)
)
def test_globs_agree_with_fnmatch_inside_one_segment(path, glob):
    if "**" not in glob:
        expected = "." not in path and fnmatch.fnmatchcase(path, glob)
        assert matches(path, [glob]) == expected


def test_two_stars_cross_dots():
    assert matches("encoder.layers.0.attn", ["**.attn"])
    assert not matches("encoder.layers.0.attn", ["*.attn"])
    assert matches("encoder.0", ["decoder.*", "encoder.*"])
    assert not matches("encoderx0", ["encoder.*"])


@pytest.mark.parametrize(
    ("class_name", "expected"),
    [
        ("Conv2d", "convolution"), ("DoubleConv", "convolution"), ("LayerNorm", "normalisation"),
        ("LlamaRMSNorm", "normalisation"), ("MultiheadAttention", "attention"), ("BertAttention", "attention"),
        ("TransformerEncoderLayer", "attention"), ("Embedding", "embedding"), ("LSTM", "recurrent"),
        ("Linear", "linear"), ("GPT2MLP", "linear"), ("Thing", "other"),
    ],
)  # fmt: skip
def test_family_of_a_class(class_name, expected):
    assert family(Stage(stage_id=0, kind="module", name="a", label="a", class_name=class_name)) == expected


def test_family_of_what_is_no_module():
    assert family(Stage(stage_id=0, kind="input", name="conv", label="x")) == "data"
    assert family(Stage(stage_id=0, kind="op", name="linear", label="x")) == "linear"


@pytest.mark.parametrize(
    ("class_name", "worked", "expected"),
    [
        ("DenseBlock", "convolution", "convolution"),
        ("ConvNormAct", "convolution", "convolution"),
        ("Stage", "attention", "attention"),
        ("PatchEmbed", "convolution", "embedding"),
        ("AttentionGate", "convolution", "attention"),
        ("Head", "normalisation", "normalisation"),
    ],
)
def test_what_ran_says_more_than_the_name_of_a_class(class_name, worked, expected):
    stage = Stage(stage_id=0, kind="module", name="a", label="a", class_name=class_name, family=worked)
    assert family(stage) == expected
