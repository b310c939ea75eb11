from __future__ import annotations

from math import isclose, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neural_flow.capture._statistics import num_not_finite, tensor_stats
from neural_flow.records import TensorStats


def exact(tensor: torch.Tensor) -> TensorStats:
    """The definition, in extended precision."""
    values = tensor.detach().to(torch.complex128).abs() if tensor.is_complex() else tensor.detach().to(torch.float64)
    array = values.numpy().reshape(-1).astype(np.longdouble)
    finite = array[np.isfinite(array)]
    zero = float((array == 0).mean()) if array.size else 0.0
    num_nan, num_inf = int(np.isnan(array).sum()), int(np.isinf(array).sum())
    if not finite.size:
        return TensorStats(
            mean=None, std=None, min=None, max=None, zero_fraction=zero, num_nan=num_nan, num_inf=num_inf
        )
    return TensorStats(
        mean=float(finite.mean()),
        std=float(finite.std()),
        min=float(finite.min()),
        max=float(finite.max()),
        zero_fraction=zero,
        num_nan=num_nan,
        num_inf=num_inf,
    )


def assert_equal(found: TensorStats | None, expected: TensorStats) -> None:
    assert found is not None
    assert (found.num_nan, found.num_inf) == (expected.num_nan, expected.num_inf)
    assert isclose(found.zero_fraction, expected.zero_fraction, abs_tol=1e-12)
    if expected.mean is None:
        assert (found.mean, found.std, found.min, found.max) == (None, None, None, None)
        return
    assert found.mean is not None
    assert found.std is not None
    assert expected.std is not None
    assert (found.min, found.max) == (expected.min, expected.max)
    assert isclose(found.std, expected.std, rel_tol=5e-6, abs_tol=1e-300)
    # the mean of values that cancel is as exact as float32 sums can be
    scale = max(abs(expected.mean), expected.std)
    assert isclose(found.mean, expected.mean, rel_tol=2e-6, abs_tol=2e-6 * scale)


@settings(deadline=None, max_examples=80)
@given(
    shape=st.lists(st.sampled_from([1, 2, 3, 7, 30]), max_size=4),
    dtype=st.sampled_from(
        [
            torch.float32,
            torch.float64,
            torch.float16,
            torch.bfloat16,
            torch.int8,
            torch.int64,
            torch.bool,
            torch.complex64,
        ]
    ),
    shift=st.sampled_from([0.0, 1.0, 1e4, -3e6]),
    scale=st.sampled_from([0.0, 1e-20, 1.0, 1e3]),
    is_rectified=st.booleans(),
    bad=st.lists(st.sampled_from([float("nan"), float("inf"), -float("inf")]), max_size=3),
    layout=st.sampled_from(["plain", "transposed", "strided", "expanded"]),
)
def test_statistics_are_what_they_are_defined_as(
    shape: list[int],
    dtype: torch.dtype,
    shift: float,
    scale: float,
    is_rectified: bool,
    bad: list[float],
    layout: str,
) -> None:
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))) * scale + shift
    tensor = tensor.relu() if is_rectified else tensor
    if dtype.is_floating_point or dtype.is_complex:
        for index, value in enumerate(bad[: tensor.numel()]):
            tensor.view(-1)[index] = value
    elif dtype == torch.int8:
        tensor = tensor.clamp(-100, 100)
    tensor = tensor.to(dtype)
    if layout == "transposed" and tensor.dim() > 1:
        tensor = tensor.transpose(0, -1)
    elif layout == "strided" and tensor.dim():
        tensor = tensor[::2]
    elif layout == "expanded":
        tensor = tensor.expand(3, *tensor.shape)
    before, version = tensor.clone(), tensor._version
    assert_equal(tensor_stats(tensor), exact(tensor))
    assert num_not_finite(tensor) == (exact(tensor).num_nan, exact(tensor).num_inf)
    assert tensor._version == version
    torch.testing.assert_close(tensor, before, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_large_tensors_are_read_in_chunks(memory_format: torch.memory_format) -> None:
    tensor = torch.randn(2, 64, 70, 61, generator=torch.Generator().manual_seed(1)).relu()
    tensor = tensor.to(memory_format=memory_format)
    assert_equal(tensor_stats(tensor), exact(tensor))
    assert_equal(tensor_stats(tensor[:, ::3]), exact(tensor[:, ::3]))
    assert_equal(tensor_stats(tensor[:, :1].expand(2, 64, 70, 61)), exact(tensor[:, :1].expand(2, 64, 70, 61)))


@pytest.mark.parametrize(
    "values",
    [[3e38] * 5, [3e38, -3e38], [1e-30, 3e-30], [1e20, 1e20 + 1e14], [0.0, -0.0], [1e-45, 0.0], [5.0], [-2.0] * 9],
)
def test_sums_that_overflow_vanish_or_cancel_are_taken_exactly(values: list[float]) -> None:
    assert_equal(tensor_stats(torch.tensor(values)), exact(torch.tensor(values)))
    wide = torch.tensor(values, dtype=torch.float64) * 1e250
    found, expected = tensor_stats(wide), exact(wide)
    assert found is not None
    assert found.std == pytest.approx(expected.std, rel=1e-6, abs=1e-300)


def test_sparse_nested_and_packed_values() -> None:
    dense = torch.tensor([[0.0, 2.0], [0.0, -1.0]])
    assert_equal(tensor_stats(dense.to_sparse()), exact(dense))
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.zeros(4, 3)], layout=torch.jagged)
    stats = tensor_stats(nested)
    assert stats is not None
    assert stats.mean == pytest.approx(1 / 3)
    assert stats.zero_fraction == pytest.approx(2 / 3)
    truth = tensor_stats(torch.tensor([True, False, False, False]))
    assert truth is not None
    assert (truth.mean, truth.std, truth.zero_fraction) == (0.25, pytest.approx(sqrt(3) / 4), 0.75)


def test_nothing_to_count() -> None:
    assert tensor_stats(torch.empty(3, device="meta")) is None
    empty = tensor_stats(torch.empty(0, 4))
    assert empty == TensorStats(mean=None, std=None, min=None, max=None, zero_fraction=0.0)
    assert num_not_finite(torch.empty(3, device="meta")) == (0, 0)
