"""Options that name something unknown are refused before the model runs; names that fit nothing are said."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from neural_flow.checks import MAX_NAMES, shortened
from neural_flow.errors import (
    CaptureSkippedWarning,
    ForwardError,
    SelectionError,
    TopologyFallbackWarning,
    UnusedOptionWarning,
    UsageError,
)
from neural_flow.options import Options
from neural_flow.pipeline import draw, render


class Never(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("the model ran")


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.last = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.attention(x, x, x)[0])


UNKNOWN: list[dict[str, Any]] = [
    {"theme": "pink"},
    {"layout": "spiral"},
    {"cmap": "jet2"},
    {"width": "wide"},
    {"font": "no such file.ttf"},
    {"topology": "guess"},
    {"color_by": "taste"},
    {"heads": "all of them"},
    {"batch_dim": "x"},
    {"batch_dim": -1},
    {"sample": -1},
    {"detail": "fine"},
    {"direction": "rl"},
    {"norm": "loud"},
    {"tracer": "pencil"},
    {"max_stages": 0},
    {"depth": -1},
    {"seed": -1},
    {"dpi": 0},
    {"width": -3},
    {"width": float("nan")},
    {"labels": "conv=Stem"},
    {"detial": "op"},
    {"capture_device": "cuda:99"},
    {"capture_device": "toaster"},
    {"depth": "2"},
    {"dpi": "300"},
    {"fold": "no"},
    {"legend": 1},
    {"max_stages": True},
    {"title": 3},
    {"labels": {"conv": 3}},
]


@pytest.mark.parametrize("options", UNKNOWN, ids=str)
def test_nothing_runs_where_an_option_is_unknown(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        render(Never(), torch.rand(1, 2), **options)
    assert caught.value.hint


@pytest.mark.parametrize("options", [{"sample": 2}, {"sample": 5, "batch_dim": 1}, {"batch_dim": 3}], ids=str)
def test_an_example_that_is_not_there_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"there is no example|no input has a dimension 3"):
        render(Attending(), torch.rand(2, 5, 8), **options)


@pytest.mark.parametrize("options", [{"sample": 1}, {"sample": 4, "batch_dim": 1}, {"batch_dim": "none"}], ids=str)
def test_an_example_that_is_there_is_not(options: dict[str, Any]) -> None:
    assert not render(Attending(), torch.rand(2, 5, 8), **options).picture.capture.skipped


def test_an_option_that_is_not_there_gets_its_nearest_name() -> None:
    with pytest.raises(UsageError, match="unknown option 'detial'") as caught:
        render(Never(), torch.rand(1, 2), detial="op")
    assert caught.value.hint == "did you mean 'detail'?"


def test_names_of_the_command_line_are_taken_too() -> None:
    drawing = render(Attending(), torch.rand(2, 5, 8), type="Linear", label={"last": "Head"})
    assert [stage.name for stage in drawing.topology.stages if stage.kind == "module"] == ["last"]
    assert ">Head<" in drawing.to_bytes(".svg").decode()


def test_a_number_of_another_library_is_a_number() -> None:
    drawing = render(Attending(), torch.rand(2, 5, 8), depth=np.int64(1), width=np.float64(400.0), fold=True)
    assert drawing.topology.stages


def test_what_auto_stands_beside_is_listed() -> None:
    for option in ("topology", "layout"):
        with pytest.raises(UsageError, match="known: auto, "):
            render(Never(), torch.rand(1, 2), **{option: "guess"})


def test_keyword_arguments_have_names() -> None:
    with pytest.raises(UsageError, match="kwargs is a Tensor"):
        render(Never(), (), torch.rand(1, 2))


@pytest.mark.parametrize(
    ("args", "hint"),
    [((), "forward takes (x)"), ((1, 2), "forward takes"), ([torch.rand(2, 5, 8)], "given a list")],
    ids=["none", "many", "a list"],
)
def test_arguments_that_do_not_fit_get_a_hint_that_a_traceback_shows(args: Any, hint: str) -> None:
    with pytest.raises(ForwardError) as caught:
        render(Attending(), args)
    assert hint in caught.value.hint
    assert any(hint in note for note in caught.value.__notes__)


@pytest.mark.parametrize("model", [Never, torch.relu, None], ids=["class", "function", "nothing"])
def test_what_is_no_model_is_refused(model: Any) -> None:
    with pytest.raises(UsageError, match=r"is a class, not a model|the model is a "):
        render(model, torch.rand(1, 2))


def test_the_hint_for_colours_knows_parameters() -> None:
    with pytest.raises(UsageError, match="flops, gradient, memory, params"):
        render(Never(), torch.rand(1, 2), color_by="taste")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"labels": {"first": "First"}}, "--label first=... fits no stage; there are x, attention, last, output"),
        ({"highlight": "first"}, "--highlight first fits no stage"),
        ({"highlight": ["last", "fir*"]}, r"--highlight fir\* fits no stage"),
        ({"heads": "last:0"}, "--heads last:0 fits no module whose attention weights were seen; there are attention"),
        ({"heads": "attention:1,2"}, "--heads attention:1,2 asks for heads that attention has not; it has 2"),
    ],
)
def test_names_that_fit_nothing_are_said(options: dict[str, Any], said: str) -> None:
    with pytest.warns(UnusedOptionWarning, match=said):
        render(Attending(), torch.rand(2, 5, 8), **options)


def test_names_that_fit_are_not() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawing = render(
            Attending(), torch.rand(2, 5, 8), labels={"last": "Head", "x": "Image"}, highlight="l*", heads="attention:1"
        )
        draw(drawing.picture.topology, options=Options(heads="attention:1", labels={"last": "Head"}))
    with pytest.warns(UnusedOptionWarning, match="--label first"):
        draw(drawing.picture.topology, options=Options(labels={"first": "Head"}))


def test_stages_without_picture_are_said_in_one_line_for_each_reason() -> None:
    model = nn.Sequential(*[nn.Linear(width, width + 1) for width in range(3, 13)]).to("meta")
    with pytest.warns(CaptureSkippedWarning) as caught:
        render(model, torch.rand(2, 3, device="meta"), fold=False)
    assert len(caught) == 1
    assert str(caught[0].message).startswith("no picture of input, 0, 1, 2, 3, 4 and 6 more: the tensor has no values")


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x) if bool(x.sum() > 0) else x


def test_strict_refuses_the_fallback_from_a_named_topology_too() -> None:
    with pytest.warns(TopologyFallbackWarning):
        assert render(Branching(), torch.ones(1, 2), topology="fx").topology.record.source == "sequential"
    with pytest.warns(TopologyFallbackWarning), pytest.raises(SelectionError, match="--strict refused the fallback"):
        render(Branching(), torch.ones(1, 2), topology="fx", strict=True)
    assert render(Branching(), torch.ones(1, 2), topology="sequential", strict=True)


def test_heads_are_not_missed_where_nothing_was_captured() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        render(Attending(), torch.rand(2, 5, 8), heads="attention:1", capture=False)
        render(Attending(), torch.rand(2, 5, 8), heads="attention:1", fake=True)


def test_lists_of_names_are_cut() -> None:
    assert shortened("abc") == "a, b, c"
    assert shortened(["a", "b", "a"]) == "a, b"
    assert shortened(f"{number}" for number in range(MAX_NAMES + 2)) == "0, 1, 2, 3, 4, 5 and 2 more"
    assert shortened([]) == ""
