from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from neural_flow.errors import SampleInputError
from neural_flow.models.image_file import read_image, undo_normalisation
from neural_flow.models.input_text import parse_input


def read(file: Path, rest: str = "") -> torch.Tensor:
    return read_image(file, parse_input(f"x=@{file}{rest}"))


def save(folder: Path, levels: np.ndarray, name: str = "a.png") -> Path:
    Image.fromarray(levels).save(folder / name)
    return folder / name


def test_without_a_shape_the_file_decides(tmp_path: Path) -> None:
    levels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    values = read(save(tmp_path, levels))
    assert values.shape == (1, 3, 5, 7)
    assert torch.allclose(values[0], torch.from_numpy(levels).permute(2, 0, 1) / 255.0)
    assert read(save(tmp_path, levels[..., 0])).shape == (1, 1, 5, 7)


def test_shapes_channels_and_ranges(tmp_path: Path) -> None:
    file = save(tmp_path, np.full((6, 6, 3), 255, dtype=np.uint8))
    assert read(file, ":1,1,6,6[0,1]").unique().item() == pytest.approx(1)
    assert read(file, ":3,12,10[-1,1]").shape == (3, 12, 10)
    assert read(file, ":4,3,6,6").shape == (4, 3, 6, 6)
    assert read(file, ":1,8,8,3").shape == (1, 8, 8, 3)
    assert read(file, ":9,9").shape == (9, 9)
    assert read(file, ":1,3,6,6:uint8").unique().item() == 255
    assert read(file, ":1,3,6,6:float64[0,255]").dtype == torch.float64


def test_grey_and_colour_change_into_each_other(tmp_path: Path) -> None:
    colour = np.zeros((2, 2, 3), dtype=np.uint8)
    colour[..., 1] = 255
    assert read(save(tmp_path, colour), ":1,1,2,2").unique().item() == pytest.approx(0.587)
    grey = read(save(tmp_path, np.full((2, 2), 51, dtype=np.uint8)), ":1,3,2,2")
    assert grey.shape == (1, 3, 2, 2)
    assert grey.unique().item() == pytest.approx(0.2)


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_sixteen_bits_keep_their_levels(tmp_path: Path, name: str) -> None:
    levels = np.arange(256 * 256, dtype=np.uint16).reshape(256, 256)
    values = read(save(tmp_path, levels, name))
    assert values.unique().numel() == 256 * 256
    assert values.max().item() == 1
    assert torch.equal(
        read(save(tmp_path, levels, name), ":1,1,256,256:int32")[0, 0], torch.from_numpy(levels.astype("i4"))
    )


def test_resizing_keeps_the_mean(tmp_path: Path) -> None:
    levels = np.random.default_rng(1).integers(0, 256, (64, 64), dtype=np.uint8)
    assert abs(read(save(tmp_path, levels), ":1,1,16,16").mean().item() - levels.mean() / 255) < 0.01


def test_normalisation_is_undone_exactly_enough(tmp_path: Path) -> None:
    file = save(tmp_path, np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8))
    spec = parse_input(f"@{file}:1,3,8,8[0,1]~imagenet")
    normalised = read_image(file, spec)
    assert spec.normalisation is not None
    assert torch.allclose(undo_normalisation(normalised, spec.normalisation), read(file, ":1,3,8,8[0,1]"), atol=1e-6)
    assert normalised.min() < -1
    assert read(file, "~0,2").max() <= 0.5


def test_palettes_transparency_and_bits(tmp_path: Path) -> None:
    Image.new("RGBA", (3, 3), (255, 0, 0, 0)).save(tmp_path / "a.png")
    assert read(tmp_path / "a.png").shape == (1, 4, 3, 3)
    assert read(tmp_path / "a.png", ":1,3,3,3")[0, :, 0, 0].tolist() == [1, 0, 0]
    Image.new("RGB", (3, 3), (0, 0, 255)).convert("P").save(tmp_path / "p.png")
    assert read(tmp_path / "p.png")[0, :, 0, 0].tolist() == [0, 0, 1]
    Image.new("1", (3, 3), 1).save(tmp_path / "b.png")
    assert read(tmp_path / "b.png").unique().item() == 1


@pytest.mark.parametrize(
    ("rest", "found"),
    [(":1,5,8,8", "no place for"), (":7", "no place for"), (":1,2,3,4,5,6", "no place for"), ("~1,2,3,4", "2 means")],
)
def test_what_no_image_can_give_is_refused(tmp_path: Path, rest: str, found: str) -> None:
    file = save(tmp_path, np.zeros((4, 4), dtype=np.uint8))
    with pytest.raises(SampleInputError, match=found):
        read(file, rest)


def test_absent_and_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(SampleInputError, match="does not hold it"):
        read(tmp_path / "absent.png")
    (tmp_path / "bad.png").write_bytes(b"\x89PNG nonsense")
    with pytest.raises(SampleInputError, match="UnidentifiedImageError"):
        read(tmp_path / "bad.png")
