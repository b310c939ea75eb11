from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neural_flow.errors import UsageError
from neural_flow.models.input_text import InputText, Normalisation, Range, parse_input

DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "bool", "uint8", "int32", "int64")
SHAPES = st.lists(st.integers(0, 10_000), min_size=1, max_size=6)
NAMES = st.none() | st.sampled_from(["x", "tokens", "edge_index", "extra.emb", "_m1"])
RANGES = st.none() | st.tuples(st.integers(-5, 5), st.integers(6, 99), st.sampled_from([")", "]"]))


@given(NAMES, SHAPES, st.none() | st.sampled_from(DTYPES), RANGES, st.sampled_from([",", "x", " , "]))
def test_what_is_written_is_read(
    name: str | None, shape: list[int], dtype: str | None, limits: tuple[int, int, str] | None, separator: str
) -> None:
    text = f"{name}=" if name else ""
    text += separator.join(str(size) for size in shape)
    text += f":{dtype}" if dtype else ""
    text += f"[{limits[0]},{limits[1]}{limits[2]}" if limits else ""
    value_range = Range(low=limits[0], high=limits[1], is_open=limits[2] == ")") if limits else None
    assert parse_input(text) == InputText(
        text=text,
        name=name,
        shape=tuple(shape),
        dtype=getattr(torch, dtype) if dtype else None,
        value_range=value_range,
    )


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    refusal: UsageError | None = None
    try:
        parse_input(text)
    except UsageError as error:
        refusal = error
    assert refusal is None or (refusal.hint and repr(text) in str(refusal))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t=:int64", {"name": "t", "shape": (), "dtype": torch.int64}),
        (":bool", {"shape": (), "dtype": torch.bool}),
        ("(1, 3, 8, 8)", {"shape": (1, 3, 8, 8)}),
        ("2,16:long[0,1e3)", {"dtype": torch.int64, "value_range": Range(low=0, high=1000, is_open=True)}),
        ("1,8[0,1]", {"shape": (1, 8), "dtype": None, "value_range": Range(low=0, high=1)}),
        ("1,8[-1.5,.5]:half", {"dtype": torch.float16, "value_range": Range(low=-1.5, high=0.5)}),
        ("x=@a/b.npz", {"name": "x", "file": "a/b.npz", "shape": None}),
        ("x=@b.npz:first.part", {"file": "b.npz", "key": "first.part"}),
        ("@b.npy:float32", {"file": "b.npy", "dtype": torch.float32}),
        ("@b.npy:1,4:half", {"file": "b.npy", "dtype": torch.float16, "shape": (1, 4)}),
        ("@c.png:1,1,256,256[0,1]", {"file": "c.png", "shape": (1, 1, 256, 256), "value_range": Range(low=0, high=1)}),
        ("@c.png~0.5,0.25", {"file": "c.png", "normalisation": Normalisation(mean=(0.5,), std=(0.25,))}),
        ("@c.png[0,255]~1,2,3,4,5,6", {"normalisation": Normalisation(mean=(1, 2, 3), std=(4, 5, 6))}),
        ("@~/pictures/c.png", {"file": "~/pictures/c.png", "normalisation": None}),
        (r"@C:\data\x.npy", {"file": r"C:\data\x.npy", "key": ""}),
    ],
)
def test_the_forms_of_the_contract(text: str, expected: dict[str, object]) -> None:
    read = parse_input(text)
    assert {key: getattr(read, key) for key in expected} == expected


def test_imagenet_is_three_channels() -> None:
    normalisation = parse_input("@c.png:1,3,8,8~imagenet").normalisation
    assert normalisation == Normalisation(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


@pytest.mark.parametrize(
    ("text", "found", "hint"),
    [
        ("", "empty", "for example"),
        ("1,3,a", "'a' is no size", ""),
        ("1,,3", "a size is missing", ""),
        ("1,-3", "'-3' is no size", ""),
        ("1,3:flot32", "'flot32' is no dtype", "float32"),
        ("1,3[2,1]", "empty", "[1,2]"),
        ("1,3[2,2)", "empty", ""),
        ("1,3[0,1", "no size", ""),
        ("cells.png", "no shape", "-i @cells.png"),
        ("1,3~imagenet", "this is none", "@FILE"),
        ("@", "no file", ""),
        ("@a.png~1", "no mean", "~MEAN,STD"),
        ("@a.png~1,0", "no mean", "~MEAN,STD"),
        ("1,3[0,1]8", "follows the range", "last"),
    ],
)
def test_a_malformed_part_is_named(text: str, found: str, hint: str) -> None:
    with pytest.raises(UsageError, match=found) as raised:
        parse_input(text)
    assert hint in raised.value.hint
    assert raised.value.exit_code == 2
