from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neural_flow.drawing import Box, Image, Mark, Path, Rect, Text
from neural_flow.records import Summary, TensorMeta
from neural_flow.summaries._base import (
    SUMMARIES,
    DrawStyle,
    NoPicture,
    SummaryContext,
    choose,
    front_size,
    read_only,
    style_of,
)
from neural_flow.summaries._planes import badge_marks
from neural_flow.summaries._summarise import summarise, take_sample
from neural_flow.text_metrics import text_width
from neural_flow.theme import THEMES

PLAIN = SummaryContext()
IMAGE = np.linspace(0, 255, 24 * 32).reshape(24, 32).astype(np.uint8)
INPUT, OUTPUT = replace(PLAIN, role="input"), replace(PLAIN, role="output")
OVERLAY = replace(OUTPUT, input_hw=(24, 32), input_picture=IMAGE)
VOLUME = replace(OUTPUT, input_dhw=(8, 24, 32), input_slices=(IMAGE, IMAGE[:8], IMAGE[:8, :24]))
ATTENTION = replace(PLAIN, role="attention")


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


# what each kind is made for; a kind without an entry fails the first test below
TENSORS: dict[str, list[tuple[torch.Tensor, SummaryContext]]] = {
    "attention": [
        (random(12, 9, 9).softmax(-1), ATTENTION),
        (random(40, 5, 300).softmax(-1), ATTENTION),
        (random(3, 4, 4).softmax(-1), replace(ATTENTION, heads=(2, 0))),
    ],
    "class_logits": [
        (random(10) * 9, replace(OUTPUT, name="logits")),
        (random(900), replace(OUTPUT, name="logits")),
        (random(10).sigmoid(), replace(OUTPUT, name="classes", ops=("sigmoid", "linear"))),
        (random(3), replace(OUTPUT, labels=("a very long name of a class", "b", "c"))),
        (random(7, 500), replace(OUTPUT, has_token_input=True)),
        (random(10).softmax(0), OUTPUT),
    ],
    "complex": [(torch.fft.rfft2(random(3, 16, 16)), PLAIN), (torch.fft.fft(random(40)), PLAIN)],
    "feature_maps": [
        (random(16, 12, 20), PLAIN),
        (random(64, 4, 4).relu(), replace(PLAIN, input_hw=(32, 32))),
        (random(1, 9, 3), PLAIN),
        (torch.zeros(8, 5, 5), PLAIN),
        (torch.ones(8, 5, 5), PLAIN),
        (random(2, 300, 200), PLAIN),
    ],
    "histogram": [
        (random(2, 3, 4, 5, 6), PLAIN),
        (torch.zeros(0, 4), PLAIN),
        (torch.full((2, 1, 1, 2, 1), 3.0), PLAIN),
    ],
    "image": [
        (random(3, 20, 30), INPUT),
        (random(1, 9, 9), INPUT),
        (random(32, 32).abs(), INPUT),
        ((random(3, 16, 16) * 50 + 100).to(torch.uint8), INPUT),
        (random(32, 32, 3), INPUT),
    ],
    "mask": [(torch.ones(9, 9).tril().bool(), PLAIN), (random(30) > 0, PLAIN), (random(2, 3, 4, 5) > 0, PLAIN)],
    "scalar": [(torch.tensor(0.5), PLAIN), (torch.tensor([[7]]), PLAIN), (torch.tensor(1 + 2j), PLAIN)],
    "segmentation": [
        (random(5, 24, 32), OVERLAY),
        (random(1, 24, 32), replace(OVERLAY, name="mask")),
        (random(24, 32).abs().long(), OVERLAY),
    ],
    "signal": [
        (random(3, 500), INPUT),
        (random(40, 200), replace(PLAIN, class_name="Conv1d")),
        (torch.zeros(2, 20), replace(PLAIN, has_conv1d=True)),
    ],
    "sparse": [((random(40, 30) > 1).float().to_sparse(), PLAIN)],
    "token_map": [(random(12, 8), PLAIN), (random(500, 300), PLAIN)],
    "token_classes": [(random(7, 3), replace(OUTPUT, labels=("noun", "verb", "a very long name of a class")))],
    "tokens": [
        (torch.arange(5), INPUT),
        (torch.arange(1000), INPUT),
        (torch.tensor([3, -1, 2**40]), replace(INPUT, tokens=("the", "cat", "sat"))),
    ],
    "vector": [(random(9), PLAIN), (random(500), PLAIN), (random(64, 1, 1), PLAIN), (random(6).abs() + 5, PLAIN)],
    "volume_segmentation": [(random(3, 8, 24, 32), VOLUME), (random(1, 8, 24, 32), replace(VOLUME, name="mask"))],
    "volume": [(random(4, 6, 8, 10), PLAIN), (random(1, 5, 5, 5).abs(), INPUT), (torch.zeros(2, 3, 3, 3), PLAIN)],
}
CASES = [(name, index) for name, tensors in TENSORS.items() for index in range(len(tensors))]


def summary_of(tensor: torch.Tensor, context: SummaryContext, kind: str | None = None) -> Summary:
    if kind is None:
        kind, arrays, facts = summarise(tensor, context)
    else:
        arrays, facts = SUMMARIES.get(kind).reduce(tensor, context)
    facts["num_nan"] = int((~torch.isfinite(tensor.to_dense())).sum())
    meta = TensorMeta(shape=tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))
    return Summary(stage_id=0, kind=kind, tensor=meta, arrays=MappingProxyType(read_only(arrays)), facts=facts)


def extent(mark: Mark) -> tuple[float, float, float, float]:
    if isinstance(mark, Rect | Image):
        return mark.x, mark.y, mark.x + mark.width, mark.y + mark.height
    if isinstance(mark, Path):
        numbers = [number for command in mark.commands for number in command[1:]]
        return min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]), max(numbers[1::2])
    width = text_width(mark.text, mark.size, mark.weight)
    left = mark.x - {"start": 0.0, "middle": width / 2, "end": width}[mark.anchor]
    return left, mark.y - 0.76 * mark.size, left + width, mark.y + 0.24 * mark.size


def check_drawing(summary: Summary, context: SummaryContext, style: DrawStyle) -> tuple[Mark, ...]:
    width, height = SUMMARIES.get(summary.kind).size(summary, context)
    assert 4 <= width <= 120
    assert 4 <= height <= 120
    front = front_size(summary, context, style)
    assert 0 < front[0] <= width
    assert 0 < front[1] <= height
    box = Box(x=100.0, y=50.0, width=width, height=height)
    marks = SUMMARIES.get(summary.kind).draw(summary, box, style)
    badge = badge_marks(summary, box, style)
    assert bool(badge) == bool(summary.facts.get("num_nan") or summary.facts.get("num_inf"))
    slack = 0.05
    for mark in marks:
        if mark in badge:
            continue
        left, top, right, bottom = extent(mark)
        assert box.x - slack <= left <= right <= box.x + box.width + slack, mark
        assert box.y - slack <= top <= bottom <= box.y + box.height + slack, mark
        if isinstance(mark, Text):
            assert mark.size >= 5
        if isinstance(mark, Image):
            assert mark.pixels.dtype == np.uint8
            assert mark.pixels.shape[2:] in ((), (4,))
            assert (mark.palette is None) == (mark.pixels.ndim == 3)
    assert marks
    return marks


def test_every_registered_kind_is_tested_here() -> None:
    assert set(TENSORS) == set(SUMMARIES.names())


@pytest.mark.parametrize(("kind", "index"), CASES)
def test_a_kind_is_chosen_for_what_it_is_made_for(kind: str, index: int) -> None:
    tensor, context = TENSORS[kind][index]
    assert choose(tensor, context) == kind


@pytest.mark.parametrize("theme", sorted(THEMES))
@pytest.mark.parametrize(("kind", "index"), CASES)
def test_reduced_sized_and_drawn_inside_its_box(kind: str, index: int, theme: str) -> None:
    tensor, context = TENSORS[kind][index]
    summary = summary_of(tensor, context)
    assert summary.kind == kind
    assert sum(array.nbytes for array in summary.arrays.values()) <= 160 * 160 * 7
    for array in summary.arrays.values():
        assert not array.flags.writeable
    check_drawing(summary, context, style_of(THEMES[theme]))


@pytest.mark.parametrize(("kind", "index"), CASES)
def test_drawing_needs_no_context_and_is_the_same_twice(kind: str, index: int) -> None:
    tensor, context = TENSORS[kind][index]
    first, second = (summary_of(tensor, context) for _ in range(2))
    assert {name: array.tobytes() for name, array in first.arrays.items()} == {
        name: array.tobytes() for name, array in second.arrays.items()
    }
    assert first.facts == second.facts
    check_drawing(first, SummaryContext(), DrawStyle())


def poison(tensor: torch.Tensor, value: float) -> torch.Tensor:
    poisoned = tensor.clone().reshape(-1)
    poisoned[:: max(poisoned.numel() // 5, 1)] = value
    return poisoned.reshape(tensor.shape)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(("kind", "index"), CASES)
def test_what_is_not_finite_never_breaks_a_picture(kind: str, index: int, value: float) -> None:
    tensor, context = TENSORS[kind][index]
    if tensor.layout != torch.strided or not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
        return
    for bad in (poison(tensor, value), torch.full_like(tensor, value)):
        check_drawing(summary_of(bad, context, kind), context, DrawStyle())


DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16,
    torch.complex64, torch.complex128,
]  # fmt: skip


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    shape = draw(st.lists(st.sampled_from([0, 1, 2, 3, 5, 8, 17, 33]), max_size=5))
    while len(shape) > 3 and int(np.prod(shape)) > 20000:
        shape.pop()
    dtype = draw(st.sampled_from(DTYPES))
    scale = draw(st.sampled_from([0.0, 1.0, 1e-30, 1e4, 1e36]))
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 9)))) * scale
    if draw(st.booleans()):
        tensor = tensor.relu()
    if not (dtype.is_floating_point or dtype.is_complex):
        tensor = tensor.nan_to_num().clamp(-100, 100)
        tensor = tensor.abs() if dtype in (torch.uint8, torch.uint16) else tensor
    elif tensor.numel() and draw(st.booleans()):
        bad = draw(st.sampled_from([float("nan"), float("inf"), -float("inf")]))
        tensor = poison(tensor, bad)
    tensor = tensor.to(dtype)
    if tensor.dim() > 1 and draw(st.booleans()):
        tensor = tensor.transpose(0, -1)
    return tensor


@settings(deadline=None, max_examples=150)
@given(
    tensor=tensors(),
    role=st.sampled_from(["input", "module", "output"]),
    batch_dim=st.sampled_from([None, 0, 1]),
    batch_size=st.sampled_from([1, 2]),
    sample=st.integers(0, 3),
    norm=st.sampled_from(["channel", "stage", "global"]),
    has_picture=st.booleans(),
)
def test_any_tensor_becomes_a_picture_and_stays_as_it_is(
    tensor: torch.Tensor, role: Any, batch_dim: int | None, batch_size: int, sample: int, norm: Any, has_picture: bool
) -> None:
    context = replace(
        PLAIN,
        role=role,
        batch_dim=batch_dim,
        batch_size=batch_size,
        sample=sample,
        norm=norm,
        has_token_input=tensor.dim() % 2 == 0,
        input_hw=(33, 17) if has_picture else None,
        input_picture=np.zeros((33, 17, 3), np.uint8) if has_picture else None,
    )
    before, version, state = tensor.clone(), tensor._version, torch.get_rng_state()
    kind, arrays, facts = summarise(tensor, context)
    assert torch.equal(torch.get_rng_state(), state)
    assert tensor._version == version
    torch.testing.assert_close(tensor, before, equal_nan=True, rtol=0, atol=0)
    for array in arrays.values():
        same_storage = array.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
        assert not same_storage or not array.numel()
    shape = tuple(tensor.shape)
    meta = TensorMeta(shape=shape, dtype=str(tensor.dtype).removeprefix("torch."))
    summary = Summary(stage_id=0, kind=kind, tensor=meta, arrays=MappingProxyType(read_only(arrays)), facts=facts)
    check_drawing(summary, context, DrawStyle())


@pytest.mark.parametrize("tensor", [torch.empty(2, 3, device="meta"), torch.empty(0, 3, 4, device="meta")])
def test_a_tensor_without_values_has_no_picture(tensor: torch.Tensor) -> None:
    with pytest.raises(NoPicture, match="no values"):
        summarise(tensor, PLAIN)


def test_nested_quantised_and_sparse_tensors_are_laid_open() -> None:
    nested = torch.nested.nested_tensor([random(3, 8), random(5, 8)], layout=torch.jagged)
    context = replace(PLAIN, batch_dim=0, batch_size=2, sample=1)
    assert take_sample(nested, context).shape == (5, 8)
    assert summarise(nested, context)[0] == "token_map"
    sparse = random(2, 8, 4, 4).relu().to_sparse()
    assert summarise(sparse, replace(context, sample=0))[0] == "feature_maps"
    assert summarise(random(4, 5).to_mkldnn(), PLAIN)[0] == "token_map"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_compressed_sparse_rows_are_drawn_as_any_sparse_matrix() -> None:
    summary = summary_of(torch.eye(5).to_sparse_csr(), PLAIN)
    assert summary.kind == "sparse"
    assert summary.facts["density"] == 0.2
    check_drawing(summary, PLAIN, DrawStyle())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_quantised_values_are_shown_as_what_they_mean() -> None:
    quantised = torch.quantize_per_tensor(random(4, 6), 0.1, 0, torch.qint8)
    assert summarise(quantised, PLAIN)[0] == "token_map"
