from __future__ import annotations

import numpy as np
import pytest

from neural_flow.errors import UnknownNameError
from neural_flow.summaries._colormaps import colormap, colormap_names


@pytest.mark.parametrize("name", sorted(set(colormap_names()) - {"okabe_ito", "magma", "gray", "phase"}))
def test_tables_equal_those_of_the_plotting_library(name: str) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    expected = matplotlib.colormaps[name](np.linspace(0, 1, 256), bytes=True)[:, :3]
    assert np.array_equal(colormap(name), expected)


def test_magma_leaves_its_ends_out() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    expected = np.rint(matplotlib.colormaps["magma"](np.linspace(0.02, 0.98, 256))[:, :3] * 255)
    assert np.abs(colormap("magma").astype(int) - expected).max() <= 3


def test_every_map_is_a_read_only_table() -> None:
    for name in colormap_names():
        table = colormap(name)
        assert table.shape == (256, 3)
        assert table.dtype == np.uint8
        assert not table.flags.writeable
    assert [tuple(color) for color in colormap("okabe_ito")[:9:8]] == [(230, 159, 0)] * 2
    with pytest.raises(UnknownNameError, match="magmma") as caught:
        colormap("magmma")
    assert "magma" in caught.value.hint


def test_lightness_of_sequential_maps_only_rises() -> None:
    for name in ("magma", "inferno", "viridis", "cividis", "gray"):
        red, green, blue = colormap(name).astype(float).T
        lightness = 0.2126 * red + 0.7152 * green + 0.0722 * blue
        assert (np.diff(np.convolve(lightness, np.ones(9) / 9, "valid")) >= 0).all(), name


@pytest.mark.parametrize("name", ["phase", "twilight"])
def test_cyclic_maps_end_where_they_start(name: str) -> None:
    table = colormap(name).astype(int)
    assert np.abs(table[0] - table[-1]).max() <= 8
    assert np.abs(table[0] - table[128]).max() > 100


def test_no_phase_is_dark() -> None:
    red, green, blue = colormap("phase").astype(float).T
    lightness = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    assert lightness.min() > 130
    assert lightness.max() < 200
