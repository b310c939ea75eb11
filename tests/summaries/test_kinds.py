"""What single kinds promise beyond the contract of all kinds."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch

from neural_flow.drawing import Box, Image, Path, Rect, Text
from neural_flow.records import Summary, TensorMeta
from neural_flow.summaries._base import SUMMARIES, DrawStyle, SummaryContext, choose, read_only
from neural_flow.summaries._pixels import MAX_INDEX
from neural_flow.summaries._planes import flatness
from neural_flow.summaries._summarise import summarise
from neural_flow.summaries.class_logits import percent
from neural_flow.summaries.scalar import number_text
from neural_flow.summaries.segmentation import overlay
from neural_flow.text_metrics import text_width

PLAIN = SummaryContext()
INPUT, OUTPUT = replace(PLAIN, role="input"), replace(PLAIN, role="output")


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def summary_of(tensor: torch.Tensor, context: SummaryContext) -> Summary:
    kind, arrays, facts = summarise(tensor, context)
    meta = TensorMeta(shape=tuple(tensor.shape), dtype="float32")
    return Summary(stage_id=0, kind=kind, tensor=meta, arrays=MappingProxyType(read_only(arrays)), facts=facts)


def marks_of(summary: Summary, width: float | None = None) -> tuple[Any, ...]:
    size = SUMMARIES.get(summary.kind).size(summary, PLAIN)
    box = Box(x=0.0, y=0.0, width=width or size[0], height=size[1])
    return SUMMARIES.get(summary.kind).draw(summary, box, DrawStyle())


# -- which kind ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tensor", "context", "kind"),
    [
        (random(8, 4, 4), PLAIN, "feature_maps"),
        (random(8, 4, 4, 4), PLAIN, "volume"),
        (random(8, 3, 4, 4), replace(PLAIN, has_volumes=False), "feature_maps"),
        (random(8, 3, 4, 4), replace(INPUT, has_volumes=False), "volume"),
        (random(7, 7, 96), replace(PLAIN, input_hw=(224, 224)), "feature_maps"),
        (random(3, 8, 8), OUTPUT, "feature_maps"),
        (random(3, 8, 8), replace(OUTPUT, name="rgb"), "image"),
        (random(64), OUTPUT, "vector"),
        (random(64), replace(OUTPUT, name="logits"), "class_logits"),
        (random(512), OUTPUT, "vector"),
        (torch.nn.functional.normalize(random(10), dim=0), OUTPUT, "vector"),
        (random(512), replace(OUTPUT, labels=tuple("x" * 512)), "class_logits"),
        (random(10), PLAIN, "vector"),
        (random(9, 300), OUTPUT, "token_map"),
        (random(1, 16000), INPUT, "signal"),
        (random(60, 1), PLAIN, "signal"),
        (random(9, 1), PLAIN, "vector"),
        (random(60, 1) > 0, PLAIN, "mask"),
        (random(16000), INPUT, "signal"),
        (random(96, 7), INPUT, "token_map"),
        (torch.tensor([1, 1, 0]), INPUT, "mask"),
        (torch.tensor([1, 1, 0]), PLAIN, "tokens"),
        (torch.arange(6).reshape(2, 3), PLAIN, "token_map"),
        (torch.tensor([[True]]), PLAIN, "scalar"),
        (torch.zeros(3, 0), INPUT, "histogram"),
    ],
)
def test_the_kind_follows_from_shape_role_and_context(tensor: torch.Tensor, context: SummaryContext, kind: str) -> None:
    assert choose(tensor, context) == kind


def test_class_scores_of_three_channels_are_no_picture() -> None:
    base = random(1, 20, 20)
    colours = torch.cat([base, base * 0.9 + 0.1, base * 0.8]) + 0.05 * random(3, 20, 20, seed=1)
    assert choose(colours, replace(OUTPUT, ops=("tanh", "conv2d"))) == "image"
    grey = replace(OUTPUT, input_hw=(20, 20), input_picture=np.zeros((20, 20), np.uint8))
    assert choose(colours, grey) == "segmentation"
    scores = torch.cat([base, -base, 0.1 * random(1, 20, 20, seed=2)])
    picture = np.zeros((20, 20), np.uint8)
    assert choose(scores, replace(OUTPUT, input_hw=(20, 20), input_picture=picture)) == "segmentation"


# -- feature maps --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_channels_are_ranked_by_spatial_variance(offset: float) -> None:
    maps = random(64, 12, 12) * torch.linspace(0.1, 2.0, 64)[torch.randperm(64)][:, None, None] + offset
    expected = maps.double().flatten(1).var(dim=1).argsort(descending=True)[:5].tolist()
    for layout in (maps, maps.permute(1, 2, 0).contiguous().permute(2, 0, 1)):
        assert list(summary_of(layout, PLAIN).facts["channels"]) == expected


def test_channels_last_maps_are_turned() -> None:
    maps = random(24, 7, 7)
    turned = summary_of(maps.permute(1, 2, 0).contiguous(), replace(PLAIN, input_hw=(56, 56)))
    plain = summary_of(maps, replace(PLAIN, input_hw=(56, 56)))
    assert turned.facts["channels"] == plain.facts["channels"]
    assert np.array_equal(turned.arrays["planes"], plain.arrays["planes"])


@pytest.mark.parametrize("shape", [(6, 20), (40,)])
def test_matrices_and_strips_of_one_value_are_drawn_as_such(shape: tuple[int, ...]) -> None:
    zero, one = (summary_of(torch.full(shape, value), PLAIN) for value in (0.0, 1.0))
    assert not any(isinstance(mark, Image) for mark in marks_of(zero))
    assert [flatness(summary) for summary in (zero, one)] == ["dead", "constant"]
    assert sum(isinstance(mark, Path) for mark in marks_of(one)) == 1
    nearly = torch.zeros(shape)
    nearly[..., -1] = 1.0
    assert flatness(summary_of(nearly, PLAIN)) == ""
    assert flatness(summary_of(torch.full(shape, torch.nan), PLAIN)) == ""


def test_dead_channels_are_counted_and_constant_ones_are_not_dead() -> None:
    maps = torch.zeros(8, 6, 6)
    maps[2], maps[5] = random(6, 6).relu(), 1e-30
    summary = summary_of(maps, PLAIN)
    assert summary.facts["num_dead"] == 6
    assert summary.facts["channels"] == (2, 5)
    assert summary.facts["dead"] == (False, False)
    assert sum(isinstance(mark, Image) for mark in marks_of(summary)) == 2
    assert sum(isinstance(mark, Path) for mark in marks_of(summary)) == 1  # the hatch of channel 5
    dead = summary_of(torch.zeros(4, 6, 6), PLAIN)
    assert dead.facts["dead"] == (True, True)
    assert not any(isinstance(mark, Image) for mark in marks_of(dead))


def test_maps_are_kept_at_their_own_resolution_up_to_the_cap() -> None:
    assert summary_of(random(2, 100, 160), PLAIN).arrays["planes"].shape == (2, 100, 160)
    assert summary_of(random(2, 320, 320), PLAIN).arrays["planes"].shape == (2, 160, 160)
    many = summary_of(random(256, 200, 40), replace(PLAIN, max_channels=64, max_side=512))
    assert many.arrays["planes"].shape == (64, 200, 40)
    assert len(many.facts["channels"]) == 64
    assert sum(isinstance(mark, Image) for mark in marks_of(many)) == many.facts["num_planes"] == 6


# -- pictures ------------------------------------------------------------------------------------------------------


def test_pictures_keep_plain_ranges_and_stretch_others() -> None:
    plain = torch.linspace(0, 0.9, 64).reshape(1, 8, 8)
    assert summary_of(plain, INPUT).arrays["pixels"].max() == round(0.9 * 255)
    other = plain * 10 - 3
    pixels = summary_of(other, INPUT).arrays["pixels"]
    assert (pixels.min(), pixels.max()) == (0, 255)
    bytes_ = (plain * 100).to(torch.uint8)
    assert np.array_equal(summary_of(bytes_, INPUT).arrays["pixels"], bytes_[0].numpy())


def test_normalisation_is_undone_where_it_is_known() -> None:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    colours = torch.rand(3, 10, 12, generator=torch.Generator().manual_seed(0))
    normalised = (colours - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    summary = summary_of(normalised, replace(INPUT, image_mean=mean, image_std=std))
    expected = (colours * 255).round().permute(1, 2, 0).numpy()
    assert np.abs(summary.arrays["pixels"].astype(int) - expected).max() <= 1


def test_a_broken_pixel_of_a_picture_is_green() -> None:
    image = torch.rand(1, 8, 8)
    image[0, 2, 3] = torch.nan
    pixels = summary_of(image, INPUT).arrays["pixels"]
    assert pixels.shape == (8, 8, 3)
    assert tuple(pixels[2, 3]) == (0x39, 0xFF, 0x14)


# -- classes -------------------------------------------------------------------------------------------------------


def test_bars_show_the_most_probable_classes() -> None:
    scores = random(20) * 4
    summary = summary_of(scores, replace(OUTPUT, labels=tuple(f"class {k}" for k in range(20))))
    best = scores.softmax(0).topk(5)
    assert summary.facts["classes"] == tuple(best.indices.tolist())
    bars = [mark for mark in marks_of(summary) if isinstance(mark, Rect)]
    widths = [bar.width for bar in bars]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] / widths[1] == pytest.approx(float(best.values[0] / best.values[1]), rel=1e-4)
    texts = [mark.text for mark in marks_of(summary) if isinstance(mark, Text)]
    assert f"class {best.indices[0]}" in texts
    assert percent(float(best.values[0])) in texts


@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
def test_class_scores_are_as_wide_as_what_is_drawn_of_them(scale: float) -> None:
    """A label beside them stands near, and the lengths of bars stay the same in a wider box."""
    for num_classes, labels in ((3, ("cat", "dog", "a name of many words")), (20, ()), (1000, ())):
        summary = summary_of(random(num_classes) * scale, replace(OUTPUT, name="logits", labels=labels))
        width, _ = SUMMARIES.get(summary.kind).size(summary, PLAIN)
        ends = [mark.x + mark.width for mark in marks_of(summary) if isinstance(mark, Rect)]
        ends += [
            mark.x + text_width(mark.text, mark.size)
            for mark in marks_of(summary)
            if isinstance(mark, Text) and mark.anchor == "start"
        ]
        assert max(ends) == pytest.approx(width)
        assert width <= 72.0
        bars, wide = ([m.width for m in marks_of(summary, to) if isinstance(m, Rect)] for to in (None, 72.0))
        assert bars == pytest.approx(wide)


def test_probabilities_are_not_squashed_twice() -> None:
    shares = torch.tensor([0.7, 0.2, 0.1])
    assert summary_of(shares, OUTPUT).arrays["shares"] == pytest.approx([0.7, 0.2, 0.1])
    assert summary_of(shares.log(), OUTPUT).arrays["shares"] == pytest.approx([0.7, 0.2, 0.1])
    assert [percent(share) for share in (0.0, 1e-9, 0.004, 0.126, 1.0)] == [
        "0 %", "<1 %", "<1 %", "13 %", "100 %",
    ]  # fmt: skip


@pytest.mark.parametrize(("scores", "cut"), [(random(1, 12, 12), 0.0), (torch.rand(1, 12, 12), 0.5)])
def test_one_channel_is_cut_where_its_range_says(scores: torch.Tensor, cut: float) -> None:
    context = replace(OUTPUT, name="mask", input_hw=(12, 12), input_picture=np.zeros((12, 12), np.uint8))
    assert np.array_equal(summary_of(scores, context).arrays["classes"], (scores[0] > cut).numpy())


def test_the_overlay_paints_objects_and_their_outline_and_leaves_the_rest() -> None:
    picture = np.full((120, 120), 100, np.uint8)
    classes = np.zeros((120, 120), np.uint8)
    classes[40:80, 40:80] = 1
    colors = np.zeros((256, 3), np.uint8)
    colors[1] = (200, 0, 50)
    pixels = overlay(picture, classes, colors)
    assert pixels.shape == (120, 120, 3)
    assert tuple(pixels[10, 10]) == (100, 100, 100)
    assert tuple(pixels[60, 60]) == ((62 + 76), 62, (62 + 19))
    assert tuple(pixels[60, 40]) == tuple(pixels[60, 39]) == (200, 0, 50)
    assert tuple(pixels[60, 38]) == (100, 100, 100)
    assert tuple(pixels[60, 41]) == (138, 62, 81)
    assert overlay(picture[:20, :20], classes[30:50, 30:50], colors).shape == (100, 100, 3)


# -- the others ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.123456, "0.123"),
        (-12345.0, "−1.23e+04"),
        (7, "7"),
        (-7, "−7"),
        (True, "true"),
        (float("nan"), "NaN"),
        (float("inf"), "∞"),
        (-float("inf"), "−∞"),
        (1 - 2j, "1−2i"),
    ],
)
def test_numbers_have_three_digits(value: complex, text: str) -> None:
    assert number_text(value) == text
    assert summary_of(torch.tensor(value), PLAIN).facts["text"] == text


def test_equal_tokens_have_equal_colours_and_ids_are_written_where_they_fit() -> None:
    summary = summary_of(torch.tensor([3, 5, 3]), INPUT)
    (image,) = [mark for mark in marks_of(summary) if isinstance(mark, Image)]
    assert image.palette is not None
    first, second, third = (tuple(image.palette[cell]) for cell in image.pixels[0])
    assert first == third != second
    assert [mark.text for mark in marks_of(summary) if isinstance(mark, Text)] == ["3", "5", "3"]
    wide = summary_of(torch.tensor([30000, 50000] * 6), INPUT)
    assert not any(isinstance(mark, Text) for mark in marks_of(wide))


def test_known_words_are_set_in_lines_on_grounds_of_their_ids() -> None:
    words = ("the", " quick", " fox", " and", " the", " lazy", " unbelievably_long_word_of_one_piece", "\n")
    summary = summary_of(torch.tensor([7, 1, 2, 3, 7, 4, 5, 6]), replace(INPUT, tokens=words))
    marks = marks_of(summary)
    texts = [mark for mark in marks if isinstance(mark, Text)]
    grounds = [mark for mark in marks if isinstance(mark, Rect)]
    assert [text.text for text in texts][:4] == ["the", "quick", "fox", "and"]
    assert texts[-1].text == "⏎"
    assert grounds[0].fill == grounds[4].fill != grounds[1].fill
    for text, ground in zip(texts, grounds, strict=True):
        assert text_width(text.text, text.size) <= ground.width
    assert len({ground.y for ground in grounds}) > 1
    many = summary_of(torch.arange(100), replace(INPUT, tokens=("word",) * 100))
    assert not any(isinstance(mark, Text) for mark in marks_of(many))


def test_named_classes_of_tokens_are_written_and_coloured_as_tokens_are() -> None:
    named = replace(OUTPUT, labels=("noun", "verb", "dot"))
    scores = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 0.5], [0.0, torch.nan, 3.0], [5.0, 0.0, 0.0]])
    summary = summary_of(scores, named)
    assert summary.kind == "token_classes"
    texts = [mark.text for mark in marks_of(summary) if isinstance(mark, Text)]
    assert texts == ["noun", "verb", "dot", "noun", "!"]
    tokens = summary_of(torch.tensor([0, 1, 2, 0]), replace(INPUT, tokens=("noun", "verb", "dot", "noun")))
    fills = [[mark.fill for mark in marks_of(found) if isinstance(mark, Rect)][:4] for found in (summary, tokens)]
    assert fills[0] == fills[1]
    assert choose(random(4, 5), named) == "token_map"
    assert choose(random(200, 3), named) == "token_map"


def test_bars_of_a_vector_stand_on_zero() -> None:
    summary = summary_of(torch.tensor([1.0, -1.0, 0.5, 0.0]), PLAIN)
    bars = [mark for mark in marks_of(summary) if isinstance(mark, Rect)]
    (line,) = [mark for mark in marks_of(summary) if isinstance(mark, Path)]
    zero = line.commands[0][2]
    assert bars[0].y + bars[0].height == pytest.approx(zero)
    assert bars[1].y == pytest.approx(zero)
    assert bars[0].height == pytest.approx(bars[1].height)
    assert bars[2].height == pytest.approx(bars[0].height / 2, rel=0.02)


def test_wide_sequences_keep_the_features_that_vary() -> None:
    tokens = random(12, 400) * 0.01
    tokens[:, 7:400:9] += random(12, 44, seed=3)
    summary = summary_of(tokens, PLAIN)
    assert summary.arrays["cells"].shape == (12, 96)
    assert set(range(7, 400, 9)) <= set(summary.facts["columns"])
    assert list(summary.facts["columns"]) == sorted(summary.facts["columns"])


def test_the_future_under_a_causal_mask_is_blank() -> None:
    weights = random(4, 8, 8).masked_fill(~torch.ones(8, 8).tril().bool(), -torch.inf).softmax(-1)
    summary = summary_of(weights, replace(PLAIN, role="attention"))
    blank = summary.arrays["heads"] == 253
    assert np.array_equal(blank[0], np.triu(np.ones((8, 8), bool), 1))
    image = next(mark for mark in marks_of(summary) if isinstance(mark, Image))
    assert image.palette is not None
    assert tuple(image.palette[253]) == (255, 255, 255)


def test_of_many_heads_sixteen_are_spread_over_their_entropy() -> None:
    sharpness = torch.linspace(0.1, 8, 48)[torch.randperm(48, generator=torch.Generator().manual_seed(0))]
    weights = (random(48, 20, 20) * sharpness[:, None, None]).softmax(-1)
    summary = summary_of(weights, replace(PLAIN, role="attention"))
    heads = list(summary.facts["heads"])
    assert len(set(heads)) == 16
    assert heads == sorted(heads)
    ranks = sharpness.argsort().argsort()[heads].sort().values
    assert int(ranks[0]) <= 2
    assert int(ranks[-1]) >= 45
    assert int(ranks.diff().max()) <= 9


def test_a_signal_is_drawn_between_its_extremes() -> None:
    time = torch.linspace(0, 50, 4000)
    summary = summary_of(torch.stack([time.sin(), time.cos() * 3]), INPUT)
    assert summary.arrays["low"].shape == (2, 160)
    assert summary.arrays["high"].max() == pytest.approx(3.0, abs=1e-3)
    assert summary.arrays["low"].min() == pytest.approx(-3.0, abs=1e-3)
    gap = torch.ones(1, 160)
    gap[0, 40:60] = torch.nan
    curve = next(mark for mark in marks_of(summary_of(gap, INPUT)) if isinstance(mark, Path) and mark.layer > 3)
    assert [command[0] for command in curve.commands].count("M") == 2


def test_a_volume_shows_its_middle_slices() -> None:
    volume = torch.zeros(3, 8, 10, 12)
    volume[1] = random(8, 10, 12)
    summary = summary_of(volume, PLAIN)
    assert summary.facts["channel"] == 1
    assert [summary.arrays[axis].shape for axis in "zyx"] == [(10, 12), (8, 12), (8, 10)]
    top = float(summary.facts["high"][0])
    expected = ((volume[1, 4].clamp(-top, top) + top) / (2 * top) * 252).round()
    assert np.abs(summary.arrays["z"].astype(int) - expected.numpy()).max() <= 1


def test_hue_is_phase_and_lightness_magnitude() -> None:
    phase = torch.linspace(-3, 3, 40)
    values = torch.polar(torch.linspace(0, 1, 40), phase)
    summary = summary_of(values, PLAIN)
    assert np.abs(summary.arrays["phase"][0] / 255 * 2 * np.pi - np.pi - phase.numpy())[1:].max() < 0.02
    assert (np.diff(summary.arrays["magnitude"][0].astype(int)) >= 0).all()


def test_histograms_count_every_finite_value() -> None:
    values = torch.cat([random(2, 3, 4, 5, 6).reshape(-1), torch.tensor([torch.nan, torch.inf])]).reshape(
        2, 1, 19, 19, 1
    )
    counts, _ = SUMMARIES.get("histogram").reduce(values, PLAIN)
    assert int(counts["counts"].sum()) == 720
    expected = np.histogram(values[torch.isfinite(values)].numpy(), 24)[0]
    assert np.abs(counts["counts"].numpy() - expected).max() <= 1


def test_the_density_of_a_sparse_matrix() -> None:
    matrix = torch.zeros(400, 300)
    matrix[5, 7] = matrix[399, 299] = 1.0
    summary = summary_of(matrix.to_sparse(), PLAIN)
    assert summary.facts["density"] == 2 / 120000
    assert np.argwhere(summary.arrays["cells"]).tolist() == [[2, 3], [159, 159]]


def test_infinite_values_of_a_vector_are_flags_and_no_bars() -> None:
    for values in ([1.0, torch.inf, -torch.inf, 0.5], [1.0, torch.inf, -torch.inf, *[0.5] * 30]):
        marks = marks_of(summary_of(torch.tensor(values), PLAIN))
        flags = [mark for mark in marks if isinstance(mark, Path) and len(mark.commands) == 4]
        assert len(flags) == 2
        (up, down) = flags
        assert up.commands[2][2] < up.commands[0][2]
        assert down.commands[2][2] > down.commands[0][2]
        assert up.commands[2][1] < down.commands[2][1]


def test_a_head_that_looks_everywhere_is_not_as_bright_as_one_that_looks_at_something() -> None:
    weights = torch.full((2, 8, 8), 1 / 8)
    weights[1] = torch.eye(8)
    summary = summary_of(weights, replace(PLAIN, role="attention"))
    even, sharp = summary.arrays["heads"]
    assert summary.facts["high"] == pytest.approx((0.25, 1.0))
    assert summary.facts["is_even"]
    assert set(even.flatten().tolist()) == {MAX_INDEX // 2}
    assert set(sharp.flatten().tolist()) == {0, MAX_INDEX}
    sharper = summary_of(weights[1:], replace(PLAIN, role="attention"))
    assert not sharper.facts["is_even"]


def test_a_series_is_one_line_from_left_to_right() -> None:
    values = random(40, 1)
    summary = summary_of(values, PLAIN)
    assert summary.facts["num_channels"] == 1
    assert summary.arrays["low"].shape == (1, 40)
    assert np.allclose(summary.arrays["high"][0], values[:, 0].numpy())
