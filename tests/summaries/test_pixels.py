from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neural_flow.summaries._pixels import (
    MAX_INDEX,
    NEGATIVE_INFINITY,
    NOT_A_NUMBER,
    POSITIVE_INFINITY,
    as_real,
    is_signed,
    largest,
    quantise,
    shrink,
    to_indices,
    value_range,
)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@settings(deadline=None, max_examples=60)
@given(
    planes=st.integers(1, 4),
    side=st.integers(1, 90),
    scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e30]),
    is_rectified=st.booleans(),
)
def test_an_index_is_within_half_a_step_of_its_value(planes: int, side: int, scale: float, is_rectified: bool) -> None:
    values = random(planes, side, side, seed=side) * scale
    values = values.relu() if is_rectified else values
    indices, facts = to_indices(values, "channel")
    low, high = (torch.tensor(facts[end], dtype=torch.float64)[:, None, None] for end in ("low", "high"))
    back = low + indices.double() / MAX_INDEX * (high - low)
    clipped = torch.maximum(torch.minimum(values.double(), high), low)
    wide = high > low
    assert bool((((back - clipped).abs() <= 0.501 * (high - low) / MAX_INDEX + 1e-38) | ~wide).all())
    few = bool((values < 0).double().mean() < 0.02)
    assert not (few and facts["is_signed"])


def test_the_range_is_the_first_and_last_percentile_of_each_plane() -> None:
    values = random(3, 80, 80).abs() * torch.tensor([1.0, 10.0, 100.0])[:, None, None]
    low, high = value_range(values, False, "channel")
    for plane, least, most in zip(values, low, high, strict=True):
        assert float(least) == pytest.approx(np.percentile(plane, 1), rel=1e-2)
        assert float(most) == pytest.approx(np.percentile(plane, 99), rel=1e-2)
    signed_low, signed_high = value_range(values - 20, True, "stage")
    assert torch.equal(signed_low, -signed_high)
    assert float(signed_high[0]) == pytest.approx(np.percentile((values - 20).abs(), 99), rel=1e-2)
    assert len(set(signed_high.tolist())) == 1


def test_percentiles_of_large_planes_are_read_from_a_part_of_them() -> None:
    values = random(1, 400, 512).abs()
    low, high = value_range(values, False, "channel")
    assert abs(float((values <= low).double().mean()) - 0.01) < 0.004
    assert abs(float((values <= high).double().mean()) - 0.99) < 0.004


def test_rare_bright_spots_on_zero_stay_visible() -> None:
    values = torch.zeros(1, 50, 50)
    values[0, 3, 4] = 2.0
    indices, facts = to_indices(values, "channel")
    assert facts["high"] == (2.0,)
    assert indices[0, 3, 4] == MAX_INDEX
    assert indices.sum() == MAX_INDEX


def test_zero_of_a_signed_plane_is_the_middle_of_the_map() -> None:
    values = random(1, 20, 20)
    values[0, 0, 0] = 0.0
    indices, facts = to_indices(values, "channel")
    assert facts["is_signed"]
    assert indices[0, 0, 0] == MAX_INDEX // 2


def test_what_is_not_finite_keeps_indices_of_its_own() -> None:
    values = torch.tensor([[[float("nan"), float("inf"), -float("inf"), 1.0, 2.0]]])
    indices, facts = to_indices(values, "channel")
    assert indices[0, 0].tolist()[:3] == [NOT_A_NUMBER, POSITIVE_INFINITY, NEGATIVE_INFINITY]
    assert facts["high"][0] == 2.0
    only = quantise(torch.full((1, 2, 2), torch.inf), torch.zeros(1), torch.zeros(1))
    assert only.unique().tolist() == [POSITIVE_INFINITY]
    wide = torch.tensor([[[3e38, -3e38, 0.0]]])
    assert quantise(wide, wide.amin().reshape(1), wide.amax().reshape(1))[0, 0].tolist() == [252, 0, 126]


@pytest.mark.parametrize("seldom", [0.0, 0.01, 0.03])
def test_a_few_negative_values_do_not_make_a_signed_map(seldom: float) -> None:
    values = torch.ones(1000)
    values[: round(seldom * 1000)] = -1
    assert is_signed(values) == (seldom >= 0.02)
    assert not is_signed(torch.where(values < 0, -1e-9, values))
    assert not is_signed(torch.zeros(0))
    assert is_signed(torch.tensor([float("nan"), -1.0, 1.0]))


@pytest.mark.parametrize(("activation", "signed"), [(torch.nn.LeakyReLU(0.01), False), (torch.nn.Tanh(), True)])
def test_what_leaks_a_little_below_zero_is_no_signed_map_but_loses_nothing(
    activation: torch.nn.Module, signed: bool
) -> None:
    values = activation(random(2, 40, 40) * 2)
    indices, facts = to_indices(values, "channel")
    assert facts["is_signed"] == signed
    assert facts["low"][0] < 0
    assert len(indices[values < 0].unique()) > 1


@settings(deadline=None, max_examples=40)
@given(height=st.integers(1, 400), width=st.integers(1, 400), most=st.sampled_from([8, 40, 160]))
def test_shrinking_keeps_the_mean_and_the_proportions(height: int, width: int, most: int) -> None:
    values = torch.ones(1, height, width) * 3
    small = shrink(values, most)
    rows, columns = small.shape[1:]
    assert max(rows, columns) <= most
    torch.testing.assert_close(small, torch.full_like(small, 3.0))
    if max(height, width) <= most:
        assert small is values
    elif 0.5 < height / width < 2 and min(rows, columns) > 5:
        assert rows / columns == pytest.approx(height / width, rel=0.15)


def test_shrinking_by_a_whole_factor_is_a_box_filter() -> None:
    values = random(2, 64, 96)
    expected = values.unflatten(1, (32, 2)).unflatten(3, (48, 2)).mean(dim=(2, 4))
    torch.testing.assert_close(shrink(values, 48), expected)


def test_a_single_nan_survives_shrinking() -> None:
    values = random(1, 300, 300)
    values[0, 7, 250] = torch.nan
    indices, _ = to_indices(shrink(values, 100), "channel")
    assert int((indices == NOT_A_NUMBER).sum()) == 1


def test_every_dtype_becomes_real_arithmetic() -> None:
    assert as_real(torch.ones(2, dtype=torch.bfloat16)).dtype == torch.float32
    assert as_real(torch.tensor([2**31 - 1])).dtype == torch.float64
    assert as_real(torch.tensor([3 + 4j])).tolist() == [5.0]
    assert as_real(torch.tensor([True])).tolist() == [1.0]


@settings(deadline=None, max_examples=60)
@given(size=st.integers(1, 3000), count=st.integers(1, 100), levels=st.integers(1, 400), has_infinity=st.booleans())
def test_the_largest_values_come_first_and_ties_by_index(
    size: int, count: int, levels: int, has_infinity: bool
) -> None:
    values = torch.randint(0, levels, (size,), generator=torch.Generator().manual_seed(size)).float()
    if has_infinity:
        values[size // 2] = torch.inf
    ranked = sorted(range(size), key=lambda index: (-float(values[index]), index))
    assert largest(values, count).tolist() == ranked[:count]
