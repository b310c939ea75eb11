"""The page gates over nets that people draw: the default page, a column and a page of a paper, and top to bottom."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from figure_faults import faults_of, figure_of, layout_faults, text_faults

from neural_flow import pipeline
from neural_flow.drawing import Picture, Text
from neural_flow.options import POINTS_OF_DEFAULT_PAGE

STAGES = Path(__file__).parents[1] / "stages"


def load(name: str) -> ModuleType:
    """Import a file of the tests of stages, which are no package."""
    spec = importlib.util.spec_from_file_location(f"pages_{name}", STAGES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


NETS: dict[str, Any] = {
    name: net for file in ("nets_vision", "nets_sequence", "nets_other") for name, net in load(file).NETS.items()
}


@cache
def picture_of(name: str) -> Picture:
    torch.manual_seed(0)
    model, args = NETS[name]()
    return pipeline.render(model.eval(), args, capture=False).picture


@pytest.mark.parametrize("name", sorted(NETS))
def test_a_default_page_can_be_read_on_a_screen(name: str) -> None:
    found = figure_of(picture_of(name))
    assert faults_of(found) == []
    width, height = POINTS_OF_DEFAULT_PAGE
    assert found.scene.width <= width
    assert found.scene.height <= height


@pytest.mark.parametrize("width", [252.0, 516.0])
@pytest.mark.parametrize("name", sorted(NETS))
def test_a_given_width_is_kept(name: str, width: float) -> None:
    found = figure_of(picture_of(name), width=width)
    assert found.scene.width == pytest.approx(width, abs=0.01)
    assert min(mark.size for mark in found.scene.marks if isinstance(mark, Text)) >= 5.0
    assert [*layout_faults(found), *text_faults(found.scene)] == []


@pytest.mark.parametrize("name", sorted(NETS))
def test_from_top_to_bottom_a_page_is_about_as_large(name: str) -> None:
    """A repeat that is higher than the page makes it grow rather than being broken."""
    found = figure_of(picture_of(name), direction="tb")
    assert found.layout.direction == "tb"
    width, height = POINTS_OF_DEFAULT_PAGE
    assert max(found.scene.width / width, found.scene.height / height) <= 1.25
    assert [*layout_faults(found), *text_faults(found.scene)] == []
