"""The default figure of every sample, with and without activations, is one that can be read and published."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from figure_faults import Figure, faults_of, figure_of, layout_faults, text_faults

from neural_flow import pipeline
from neural_flow.drawing import Text
from neural_flow.export.text import scene_text
from neural_flow.models.conventions import class_names, token_words
from neural_flow.models.inputs import make_inputs
from neural_flow.models.target import load_target, sample_names


@cache
def figure(name: str, has_capture: bool) -> Figure:
    loaded = load_target(f"sample:{name}")
    inputs = make_inputs(loaded)
    with loaded.scope:
        drawing = pipeline.render(
            loaded.model,
            inputs.args,
            dict(inputs.kwargs),
            capture=has_capture,
            tokens=token_words(loaded),
            class_labels=class_names(loaded),
            seed=0,
        )
    return figure_of(drawing.picture)


@pytest.mark.parametrize("has_capture", [True, False], ids=["activations", "structure"])
@pytest.mark.parametrize("name", sample_names())
def test_no_sample_has_a_figure_with_faults(name: str, has_capture: bool) -> None:
    assert faults_of(figure(name, has_capture)) == []


@pytest.mark.parametrize("width", [252.0, 516.0, 960.0])
@pytest.mark.parametrize("name", sample_names())
def test_a_page_is_as_wide_as_asked_and_has_no_faults(name: str, width: float) -> None:
    found = figure_of(figure(name, True).picture, width=width)
    assert found.scene.width == pytest.approx(width, abs=0.01)
    assert min(mark.size for mark in found.scene.marks if isinstance(mark, Text)) >= 5.0
    assert [*layout_faults(found), *text_faults(found.scene)] == []


@pytest.mark.parametrize("name", ["mlp", "rnn", "unet"])
def test_the_marks_of_a_figure_of_the_structure(name: str, check_golden: Callable[[str, str], None]) -> None:
    check_golden(f"scenes/{name}.txt", scene_text(figure(name, False).scene))
