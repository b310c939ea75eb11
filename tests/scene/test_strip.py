"""Film strips of folded cards, on small models that fold."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from neural_flow.drawing import Image, Scene
from neural_flow.pipeline import Drawing, render


def folded(count: int, width: int = 8, side: int = 24) -> Drawing:
    """Return the figure of a list of equal convolutions, which is one folded card."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Conv2d(width, width, 3, padding=1) for _ in range(count)), nn.Conv2d(width, 3, 1))
        return render(model, torch.rand(1, width, side, side))


def tiles_of(scene: Scene) -> list[Image]:
    return [mark for mark in scene.marks if isinstance(mark, Image) and mark.height == 8.5]


@pytest.mark.parametrize("count", [3, 4])
def test_each_repeat_has_a_tile_where_there_is_room(count: int) -> None:
    drawing = folded(count)
    tiles = tiles_of(drawing.picture.scenes[0])
    assert len(tiles) == count
    assert all(first.x + first.width < second.x for first, second in itertools.pairwise(tiles))
    folded_stages = [stage for stage in drawing.picture.topology.stages if stage.class_name == "Conv2d"][:count]
    for tile, stage in zip(tiles, folded_stages, strict=True):
        assert np.array_equal(tile.pixels, drawing.picture.capture.summaries[stage.stage_id].arrays["planes"][0])


def test_of_many_repeats_the_first_and_the_last_are_shown() -> None:
    drawing = folded(20)
    tiles = tiles_of(drawing.picture.scenes[0])
    stages = [stage for stage in drawing.picture.topology.stages if stage.class_name == "Conv2d"][:20]
    pictures = [
        drawing.picture.capture.summaries[stage.stage_id].arrays["planes"][0] for stage in (stages[0], stages[-1])
    ]
    assert [np.array_equal(tile.pixels, pixels) for tile, pixels in zip(tiles, pictures, strict=True)] == [True, True]
    summaries = drawing.picture.capture.summaries
    drawn = [stage for stage in stages if stage.stage_id in summaries and summaries[stage.stage_id].arrays]
    assert len(drawn) <= 3  # the representative and both ends: no more than is drawn


def test_nothing_to_show_is_no_strip() -> None:
    with torch.random.fork_rng(devices=[]):
        vectors = render(nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)), nn.Linear(8, 2)), torch.rand(1, 8))
        structure = render(
            nn.Sequential(*(nn.Conv2d(4, 4, 1) for _ in range(4))), torch.rand(1, 4, 9, 9), capture=False
        )
    assert not tiles_of(vectors.picture.scenes[0])
    assert not tiles_of(structure.picture.scenes[0])
