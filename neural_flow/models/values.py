"""Make tensors of asked shapes from a seed."""

from __future__ import annotations

import torch

from neural_flow.errors import UsageError
from neural_flow.models.input_text import InputText, Range

_DEFAULT_HIGH = 10  # ids that no embedding bounds stay small
_SMALLEST_PICTURE = 16


def draw_values(spec: InputText, random: torch.Generator, *, num_ids: int | None = None) -> torch.Tensor:
    """Return a tensor of ``spec``'s shape and dtype, on the CPU.

    Floats without a range are standard normal; those shaped like pictures (``[N, C, H, W]`` and more, 16 or wider) are
    smooth in space as photographs are, with the same mean and variance, so that feature maps have something to show.
    Integers without a range lie below ``num_ids``, or below 10.

    Args:
        spec: what was asked.
        random: a CPU generator; it advances.
        num_ids: the size of the embedding that the values index, if known.

    Raises:
        UsageError: the range does not fit the dtype.
    """
    shape = spec.shape or ()
    dtype = spec.dtype or torch.float32
    if dtype == torch.bool:
        return torch.rand(shape, generator=random) < 0.5
    if dtype.is_floating_point:
        return _floats(shape, spec.value_range, random).to(dtype)
    if dtype.is_complex:
        if spec.value_range is not None:
            raise _unfit(spec, "complex numbers have no order")
        return torch.complex(torch.randn(shape, generator=random), torch.randn(shape, generator=random)).to(dtype)
    return _integers(spec, shape, dtype, random, num_ids)


def _floats(shape: tuple[int, ...], wanted: Range | None, random: torch.Generator) -> torch.Tensor:
    is_picture = len(shape) >= 4 and 0 not in shape and min(shape[-2:]) >= _SMALLEST_PICTURE
    if wanted is None:
        return smooth_noise(shape, random) if is_picture else torch.randn(shape, generator=random)
    if is_picture:
        unit = torch.special.ndtr(smooth_noise(shape, random))  # normal values become uniform ones, as smooth as before
    else:
        unit = torch.rand(shape, generator=random)
    return wanted.low + unit * (wanted.high - wanted.low)


def smooth_noise(shape: tuple[int, ...], random: torch.Generator) -> torch.Tensor:
    """Return normal noise with as much power in every octave of frequency, along the sizes after the first two."""
    axes = tuple(range(2, len(shape)))
    frequencies = torch.zeros(())
    for axis in axes:
        length = shape[axis]
        along = torch.fft.rfftfreq(length) if axis == axes[-1] else torch.fft.fftfreq(length)
        frequencies = frequencies[..., None] + along.square() if axis != axes[0] else along.square()
    lowest = 1 / max(shape[axis] for axis in axes)
    amplitude = frequencies.sqrt().clamp(min=lowest).pow(-len(axes) / 2)
    noise = torch.fft.rfftn(torch.randn(shape, generator=random), dim=axes) * amplitude
    values = torch.fft.irfftn(noise, s=[shape[axis] for axis in axes], dim=axes)
    mean = values.mean(dim=axes, keepdim=True)
    return (values - mean) / values.std(dim=axes, keepdim=True).clamp(min=1e-12)


def _integers(
    spec: InputText, shape: tuple[int, ...], dtype: torch.dtype, random: torch.Generator, num_ids: int | None
) -> torch.Tensor:
    limits = torch.iinfo(dtype)
    if spec.value_range is None:
        high = num_ids if num_ids is not None else 256 if dtype == torch.uint8 else _DEFAULT_HIGH
        return torch.randint(0, max(high, 1), shape, generator=random).to(dtype)
    low, high = spec.value_range.low, spec.value_range.high
    if low != int(low) or high != int(high):
        raise _unfit(spec, "its ends are no whole numbers")
    last = int(high) - spec.value_range.is_open
    if low < limits.min or last > limits.max:
        raise _unfit(spec, f"{str(dtype).removeprefix('torch.')} holds {limits.min} to {limits.max}")
    return torch.randint(int(low), last + 1, shape, generator=random).to(dtype)


def _unfit(spec: InputText, found: str) -> UsageError:
    return UsageError(f"cannot draw the input {spec.text!r}\nthe range does not fit: {found}", hint="change the range")
