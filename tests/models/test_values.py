from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neural_flow.errors import UsageError
from neural_flow.models.input_text import parse_input
from neural_flow.models.values import draw_values


def drawn(text: str, seed: int = 0, **options: int) -> torch.Tensor:
    return draw_values(parse_input(text), torch.Generator().manual_seed(seed), **options)


@settings(deadline=None)
@given(st.lists(st.integers(0, 17), min_size=1, max_size=4), st.integers(-50, 50), st.integers(1, 50), st.booleans())
def test_values_lie_in_their_range(shape: list[int], low: int, span: int, is_open: bool) -> None:
    sizes, high = ",".join(str(size) for size in shape), low + span
    end = ")" if is_open else "]"
    for dtype in ("float32", "float64", "int64", "int8"):
        values = drawn(f"{sizes}:{dtype}[{low},{high}{end}")
        assert list(values.shape) == shape
        assert values.dtype == getattr(torch, dtype)
        if values.numel():
            assert low <= values.min()
            assert values.max() <= high - (is_open and not values.is_floating_point())


def test_every_value_of_an_integer_range_comes_up() -> None:
    assert drawn("1000:int64[3,6)").unique().tolist() == [3, 4, 5]
    assert drawn("1000:int64[3,6]").unique().tolist() == [3, 4, 5, 6]
    assert drawn("1000:uint8").max() > 200
    assert drawn("4000:int64", num_ids=3).unique().tolist() == [0, 1, 2]


def test_the_seed_decides() -> None:
    for text in ("2,3", "1,3,32,32", "4:int64", "4:bool", "3:complex64", "1,2,16,16[0,1]"):
        assert torch.equal(drawn(text, 1), drawn(text, 1))
        assert text == "4:bool" or not torch.equal(drawn(text, 1), drawn(text, 2))


@pytest.mark.parametrize("text", ["1,3,64,64", "2,1,16,16,16", "1,1,33,47"])
def test_pictures_are_smooth_and_of_unit_variance(text: str) -> None:
    values = drawn(text)
    assert values.mean().abs() < 1e-5
    assert abs(values.std().item() - 1) < 0.05
    neighbours = (values[..., 1:] - values[..., :-1]).std()
    assert neighbours < 1.0  # independent values differ by the square root of two


def test_a_scalar_and_special_dtypes() -> None:
    assert drawn(":int64").shape == ()
    assert drawn("2,2:bfloat16").dtype == torch.bfloat16
    assert drawn("9:bool").dtype == torch.bool
    assert drawn("9:complex128").dtype == torch.complex128


@pytest.mark.parametrize("text", ["2:uint8[0,256]", "2:int8[-129,0]", "2:int64[0.5,3]", "2:complex64[0,1]"])
def test_a_range_that_the_dtype_cannot_hold_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="range does not fit"):
        drawn(text)
