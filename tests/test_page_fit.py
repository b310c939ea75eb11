from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import neural_flow as nf
from neural_flow import page_fit
from neural_flow.drawing import Image, Picture, Text
from neural_flow.errors import NeuralFlowWarning
from neural_flow.options import POINTS_OF_DEFAULT_PAGE, Options
from neural_flow.page_fit import FittedPage, fit_page


class Towers(nn.Module):
    """Many stages side by side: no page is as narrow as one of them."""

    def __init__(self, num_towers: int) -> None:
        super().__init__()
        self.towers = nn.ModuleList(nn.Linear(8, 8) for _ in range(num_towers))
        self.ends = nn.ModuleList(nn.Linear(8, 8) for _ in range(num_towers))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        found = [tower(x) for tower in self.towers]
        return [end(one) for end, one in zip(self.ends, reversed(found), strict=True)]


@cache
def chain(num_layers: int, *, is_convolution: bool = False) -> Picture:
    """A chain of layers that nothing folds."""
    torch.manual_seed(0)
    if is_convolution:
        layers = [nn.Conv2d(3 if not index else 8, 8, 3, padding=1) for index in range(num_layers)]
        return nf.render(nn.Sequential(*layers), torch.randn(1, 3, 32, 32), fold=False, max_stages=1000).picture
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(num_layers)))
    return nf.render(model, torch.randn(1, 8), fold=False, max_stages=1000).picture


def fitted(picture: Picture, **options: Any) -> FittedPage:
    return fit_page(picture.topology, picture.capture, picture.measurements, Options(**options))


def scale_of(page: FittedPage) -> float:
    return page.look.picture_scale


def smallest_text(page: FittedPage) -> float:
    return min(mark.size for mark in page.scene.marks if isinstance(mark, Text))


def largest_picture(page: FittedPage) -> float:
    return max(mark.width for mark in page.scene.marks if isinstance(mark, Image) and (mark.group or "") > "stage")


def test_a_short_row_has_large_pictures_and_text_of_the_usual_size():
    page, usual = fitted(chain(3)), fitted(chain(12))
    assert scale_of(page) > scale_of(usual) == 1.0
    assert page.layout.style == "layered"
    assert smallest_text(page) == smallest_text(usual)


@pytest.mark.parametrize("num_layers", [1, 2, 4, 6, 10, 24, 60])
def test_what_can_fit_the_default_page_does(num_layers: int):
    page = fitted(chain(num_layers, is_convolution=True))
    width, height = POINTS_OF_DEFAULT_PAGE
    assert page.scene.width <= width
    assert page.scene.height <= height


def test_what_is_a_little_too_large_gets_smaller_pictures_before_the_page_grows():
    width, height = POINTS_OF_DEFAULT_PAGE
    page = fitted(chain(68, is_convolution=True))
    assert scale_of(page) < 1.0
    assert page.scene.width <= width
    assert page.scene.height <= height
    assert smallest_text(page) >= 5.0


def test_a_huge_diagram_is_laid_out_once(monkeypatch: pytest.MonkeyPatch):
    calls: list[int] = []
    lay_out = page_fit.lay_out

    def counted(*args: Any) -> Any:
        calls.append(1)
        return lay_out(*args)

    picture = chain(300)
    monkeypatch.setattr(page_fit, "lay_out", counted)
    page = fitted(picture)
    assert len(calls) == 1
    assert scale_of(page) == 1.0
    assert 1 / 3 <= page.scene.width / page.scene.height <= 3


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([1, 3, 8, 30]), st.floats(130.0, 1400.0), st.booleans())
def test_a_page_is_as_wide_as_asked(num_layers: int, width: float, is_convolution: bool):
    page = fitted(chain(num_layers, is_convolution=is_convolution), width=width)
    assert page.scene.width == pytest.approx(width, abs=0.01)
    assert smallest_text(page) >= 5.0
    for mark in page.scene.marks:
        if isinstance(mark, Text | Image):
            assert -0.5 <= mark.x <= width + 0.5


def test_pictures_grow_with_the_width():
    narrow, wide = (largest_picture(fitted(chain(3, is_convolution=True), width=width)) for width in (200, 960))
    assert wide > 1.5 * narrow


def test_a_figure_that_cannot_be_so_narrow_says_how_wide_it_is():
    model = Towers(12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = nf.render(model, torch.randn(1, 8), fold=False).picture
    with pytest.warns(NeuralFlowWarning, match=r"as narrow as 130 pt: it is (\d+) pt wide") as caught:
        page = fitted(picture, width=130)
    words = str(caught[0].message)
    least = int(words.split("it is ")[1].split(" pt")[0])
    assert page.scene.width <= least < page.scene.width + 1
    again = fitted(picture, width=least)
    assert again.scene.width == pytest.approx(least, abs=0.01)


def test_the_same_page_comes_out_again():
    for options in ({}, {"width": "column"}, {"width": "slide"}):
        one, other = (fitted(chain(12, is_convolution=True), **options) for _ in range(2))
        assert one.layout == other.layout
        assert [repr(mark) for mark in one.scene.marks] == [repr(mark) for mark in other.scene.marks]
