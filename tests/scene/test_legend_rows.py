"""The legend explains what is in the figure, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from neural_flow.drawing import Text
from neural_flow.records import Measurements, Summary
from neural_flow.summaries._pixels import MAX_INDEX

EXPLAINED = {"dead channel", "constant channel", "true, false", "NaN", "+∞, −∞", "holds NaN or ∞"}


def texts(scene):
    return {mark.text for mark in scene.marks if isinstance(mark, Text)}


def with_summary(unet, stage_id, summary):
    summaries = {**unet.capture.summaries, stage_id: summary}
    return replace(unet, capture=replace(unet.capture, summaries=MappingProxyType(summaries)))


def with_facts(unet, stage_id, **facts):
    known = unet.capture.summaries[stage_id]
    return with_summary(unet, stage_id, replace(known, facts={**known.facts, **facts}))


def test_nothing_is_explained_that_is_not_there(unet):
    found = texts(unet.scene())
    assert not EXPLAINED & found
    assert {"trunk", "skip", "concat"} <= found


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"dead": (True, False, False)}, {"dead channel"}),
        ({"num_nan": 2}, {"NaN", "holds NaN or ∞"}),
        ({"num_inf": 1}, {"+∞, −∞", "holds NaN or ∞"}),
    ],
)
def test_marks_in_pictures_are_explained(unet, facts, words):
    assert texts(with_facts(unet, 1, **facts).scene()) & EXPLAINED == words


def test_constant_channels_are_explained(unet):
    known = unet.capture.summaries[1]
    planes = known.arrays["planes"].copy()
    planes[0] = MAX_INDEX // 2
    flat = replace(known, arrays=MappingProxyType({"planes": planes}))
    assert texts(with_summary(unet, 1, flat).scene()) & EXPLAINED == {"constant channel"}


def test_masks_are_explained(unet):
    known = unet.capture.summaries[4]
    mask = Summary(
        stage_id=4, kind="mask", tensor=known.tensor, arrays=MappingProxyType({"cells": np.zeros((4, 4), np.uint8)}),
        facts={"map_hw": (4, 4)},
    )  # fmt: skip
    assert texts(with_summary(unet, 4, mask).scene()) & EXPLAINED == {"true, false"}


def test_painted_classes_are_named_as_far_as_they_fit(unet):
    def shown(present, names):
        known = unet.capture.summaries[0]
        painted = Summary(
            stage_id=8, kind="segmentation", tensor=known.tensor,
            arrays=MappingProxyType({"classes": np.zeros((8, 8), np.uint8), "picture": np.zeros((8, 8), np.uint8)}),
            facts={"map_hw": (8, 8), "present": present, "names": names},
        )  # fmt: skip
        return texts(with_summary(unet, 8, painted).scene())

    assert {"cell", "class 3"} <= shown((1, 3), ("cell",))
    assert {"class 6", "and 2 more classes"} <= shown(tuple(range(1, 9)), ())
    assert "class 7" not in shown(tuple(range(1, 9)), ())


def test_bars_are_titled_with_words_and_the_loss_is_named(unet):
    norms = Measurements(
        name="gradient", unit="", by_stage={1: 3.0, 4: 4.0}, caption="gradient norm", detail="of my_loss"
    )
    coloured = texts(unet.scene(measurements=(norms,), color_by="gradient"))
    assert {"gradient norm", "gradient norm of my_loss", "gradient 3", "gradient 4"} <= coloured
    assert "gradient norm of my_loss" in texts(unet.scene(measurements=(norms,), numbers=("gradient",)))
    assert "gradient norm of my_loss" not in texts(unet.scene(measurements=(norms,)))


def test_no_flop_is_not_worth_a_word(unet):
    counts = Measurements(name="flops", unit="FLOP", by_stage={1: 0.0, 4: 2e9}, caption="FLOPs")
    scene = unet.scene(measurements=(counts,), color_by="flops")
    assert {"2 GFLOP", "FLOPs"} <= texts(scene)
    assert "0 FLOP" not in texts(scene)
    assert not any("0 FLOP" in group.title.splitlines() for group in scene.groups)
