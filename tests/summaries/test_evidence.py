"""What an output is taken for, and that nothing is claimed of values without evidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from neural_flow.summaries._base import SummaryContext, choose
from neural_flow.summaries._evidence import are_shares, meaning_of, words_of
from neural_flow.summaries._summarise import summarise

OUTPUT = SummaryContext(role="output")
RGB = replace(OUTPUT, input_hw=(16, 16), input_picture=np.zeros((16, 16, 3), np.uint8), input_range=(0.0, 1.0))
GREY = replace(OUTPUT, input_hw=(16, 16), input_picture=np.zeros((16, 16), np.uint8), input_range=(0.0, 1.0))


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def colours(scale: float = 0.1, middle: float = 0.5) -> torch.Tensor:
    """Return three channels that move together, as red, green and blue do."""
    return middle + scale * (random(1, 16, 16) + 0.2 * random(3, 16, 16, seed=1)).clamp(-3, 3)


def test_words_of_names():
    assert words_of("pred_logits") == ["pred", "logit"]
    assert words_of("AutoEncoderKL") == ["auto", "encoder", "kl"]
    assert words_of("hidden_states[0]") == ["hidden", "state"]
    assert words_of("class2") == ["class"]
    assert words_of("boxes_of_classes") == ["box", "of", "class"]


@pytest.mark.parametrize(
    ("name", "makers", "meaning"),
    [
        ("logits", ("fc", "Net"), "classes"),
        ("output", ("class_embed", "Net"), "classes"),
        ("output", ("box_head", "classifier"), "values"),
        ("text_embeds", ("proj", "logits"), "values"),
        ("sample", ("conv_out", "UNet2DModel"), "picture"),
        ("output", ("up_sample", "conv", "UNet"), None),
        ("output", ("decoder", "AutoEncoder"), "picture"),
        ("output", ("last", "DepthNet"), "values"),
        ("output", ("fc", "ResNet"), None),
        ("log_var", ("fc", "Net"), "values"),
    ],
)
def test_the_nearest_name_decides(name, makers, meaning):
    assert meaning_of(replace(OUTPUT, name=name, makers=makers)) == meaning


def test_shares_sum_to_one_or_are_logarithms_of_such():
    assert are_shares(random(7).softmax(0))
    assert are_shares(random(7).log_softmax(0))
    assert are_shares(random(7, 4, 4).softmax(0))
    assert not are_shares(random(7))
    assert not are_shares(torch.full((7,), 0.2))


@pytest.mark.parametrize(
    ("values", "context", "kind"),
    [
        # nothing says that these are classes
        (random(4), OUTPUT, "vector"),
        (random(10), OUTPUT, "vector"),
        (random(10), replace(OUTPUT, makers=("decoder", "Net")), "vector"),
        (random(4), replace(OUTPUT, makers=("head", "Net")), "vector"),
        (random(32), replace(OUTPUT, name="embedding", makers=("fc", "Net")), "vector"),
        (random(32).relu(), replace(OUTPUT, makers=("fc", "Net"), ops=("relu", "linear")), "vector"),
        (random(32) / random(32).norm(), replace(OUTPUT, makers=("fc", "Net")), "vector"),
        (random(300).abs(), replace(OUTPUT, makers=("cls", "Net"), ops=("max", "softmax", "conv2d")), "vector"),
        (random(40, 1), replace(OUTPUT, makers=("fc", "Forecast"), ops=("linear",)), "signal"),
        # something does
        (random(4), replace(OUTPUT, name="class_scores"), "class_logits"),
        (random(4), replace(OUTPUT, makers=("classifier", "Net")), "class_logits"),
        (random(4), replace(OUTPUT, labels=tuple("abcd")), "class_logits"),
        (random(4).softmax(0), OUTPUT, "class_logits"),
        (random(4).log_softmax(0), OUTPUT, "class_logits"),
        (random(1000), replace(OUTPUT, makers=("fc", "ResNet"), ops=("linear",)), "class_logits"),
    ],
)
def test_numbers_are_classes_only_where_something_says_so(values, context, kind):
    assert choose(values, context) == kind


@pytest.mark.parametrize(
    ("name", "ops", "kind"),
    [
        ("logits", ("linear",), "class_logits"),
        ("output", ("linear",), "class_logits"),
        ("output", ("layer_norm",), "token_map"),
        ("last_hidden_state", ("linear",), "token_map"),
    ],
)
def test_states_of_tokens_are_no_next_token(name, ops, kind):
    context = replace(OUTPUT, has_token_input=True, name=name, ops=ops)
    assert choose(random(9, 512), context) == kind


@pytest.mark.parametrize(
    ("maps", "context", "kind"),
    [
        (colours(), RGB, "image"),
        (colours(0.3, 0.0), RGB, "segmentation"),
        (colours(9.0), RGB, "segmentation"),
        (colours(), replace(RGB, name="depth"), "feature_maps"),
        (colours(0.3, 0.0), replace(RGB, name="reconstruction"), "image"),
        (colours(0.3, 0.0), OUTPUT, "feature_maps"),
        (colours(0.3, 0.0), replace(OUTPUT, ops=("tanh",)), "image"),
        (random(3, 16, 16).softmax(0), replace(RGB, ops=("softmax",)), "segmentation"),
        (random(1, 16, 16), GREY, "feature_maps"),
        (random(1, 16, 16), replace(GREY, makers=("head", "AttentionUNet")), "segmentation"),
        (random(1, 16, 16), replace(GREY, name="mask"), "segmentation"),
        (colours()[:1], replace(GREY, ops=("sigmoid", "conv2d")), "segmentation"),
        (colours()[:1], replace(GREY, name="recon"), "image"),
        (random(1, 16, 16), replace(GREY, makers=("out", "DepthNet")), "feature_maps"),
        (random(8, 16, 16).relu(), replace(GREY, ops=("relu", "conv2d")), "feature_maps"),
        (random(2, 16, 16), replace(GREY, name="flow"), "feature_maps"),
        (random(2, 16, 16), replace(GREY, ops=("conv2d",)), "segmentation"),
    ],
)
def test_maps_are_pictures_classes_or_what_they_are(maps, context, kind):
    assert choose(maps, context) == kind


def test_a_score_for_each_token_is_named_by_the_token():
    context = replace(OUTPUT, name="start_logits", has_token_input=True, num_tokens=6)
    scores = random(6) * 5
    first = int(scores.argmax())
    assert summarise(scores, context)[2]["names"][0] == f"token {first}"
    words = tuple("abcdef")
    assert summarise(scores, replace(context, tokens=words))[2]["names"][0] == words[first]
    assert summarise(scores, replace(context, num_tokens=7))[2]["names"][0] == f"class {first}"


def test_a_map_without_channel_is_a_map():
    assert choose(random(16, 16), replace(RGB, name="predicted_depth")) == "feature_maps"
    assert choose(random(16, 8), replace(RGB, name="predicted_depth")) == "token_map"
    assert summarise(random(16, 16), RGB)[2]["map_hw"] == (16, 16)


def test_independent_probabilities_are_shown_as_they_are():
    values = torch.tensor([0.9, 0.8, 0.1])
    kind, arrays, facts = summarise(values, replace(OUTPUT, name="labels", ops=("sigmoid", "linear")))
    assert kind == "class_logits"
    assert arrays["shares"] == pytest.approx([0.9, 0.8, 0.1])
    assert "independent" in facts["caption"]
    _, arrays, _ = summarise(values, replace(OUTPUT, name="labels", ops=("linear",)))
    assert arrays["shares"] == pytest.approx(values.softmax(0).sort(descending=True).values)
