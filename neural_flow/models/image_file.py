"""Read an image file as a tensor: channels, size and range from what the user wrote, else as the file has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError

from neural_flow.errors import SampleInputError
from neural_flow.models._base import describe_error, short_path
from neural_flow.models.input_text import InputText, Normalisation, Range

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm", ".pnm")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_GREY = (0.299, 0.587, 0.114)


def read_image(file: Path, spec: InputText) -> torch.Tensor:
    """Return the image in ``file`` as ``spec`` asks for it.

    Args:
        file: any image that pillow reads. 16-bit ones keep all their levels.
        spec: a shape of 2 to 5 sizes (``[H, W]``, ``[C, H, W]``, ``[N, C, H, W]``, channels last where only that
            fits); None gives ``[1, C, H, W]`` as in the file. The range maps the darkest and brightest value that the
            file's kind can hold; without one, floats go to 0-1 and integers stay as stored.

    Raises:
        SampleInputError: no such file, no image, or a shape that no image has.
    """
    levels, top = _read_levels(file)  # [H, W, C] float64, and the largest value of the file's kind
    shape = spec.shape if spec.shape is not None else (1, levels.shape[2], *levels.shape[:2])
    layout = _layout(shape, spec)
    channels, height, width = (shape[layout.index(axis)] if axis in layout else 1 for axis in "CHW")
    planes = _resize(_to_channels(levels, channels, spec), height, width)  # [C, H, W]
    dtype = spec.dtype or torch.float32
    values = _to_range(planes, top, spec.value_range, is_float=dtype.is_floating_point)
    if spec.normalisation is not None:
        values = _normalise(values, spec.normalisation, spec)
    tensor = torch.from_numpy(values if dtype.is_floating_point else np.rint(values)).to(dtype)
    present = [axis for axis in layout if axis in "CHW"]
    picture = tensor if "C" in present else tensor[0]
    if present and present[-1] == "C":
        picture = picture.permute(1, 2, 0)
    return picture.expand(shape).contiguous()


def undo_normalisation(values: torch.Tensor, normalisation: Normalisation) -> torch.Tensor:
    """Return ``[..., C, H, W]`` values as they were before normalisation, for the picture."""
    mean = torch.tensor(normalisation.mean, dtype=values.dtype)[:, None, None]
    std = torch.tensor(normalisation.std, dtype=values.dtype)[:, None, None]
    return values * std + mean


def _read_levels(file: Path) -> tuple[np.ndarray[Any, Any], float]:
    try:
        with Image.open(file) as opened:
            image = ImageOps.exif_transpose(opened)
            if image.mode in {"P", "PA"}:
                image = image.convert("RGBA" if "transparency" in image.info or image.mode == "PA" else "RGB")
            elif image.mode in {"1", "CMYK", "YCbCr", "LAB", "HSV"}:
                image = image.convert("L" if image.mode == "1" else "RGB")
            levels = np.asarray(image)
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, ValueError) as error:
        found = f"the folder {short_path(file.parent)} does not hold it" if not file.exists() else describe_error(error)
        raise SampleInputError(f"cannot read the image {short_path(file)}\n{found}", hint="check the path") from error
    top = 255.0
    if levels.dtype == np.uint16 or image.mode.startswith("I"):
        top = 65535.0  # pillow widens 16-bit greys to 32 bits in some formats
    elif levels.dtype.kind == "f":
        top = float(np.nanmax(np.abs(levels))) or 1.0
    return np.atleast_3d(levels).astype(np.float64), top


def _layout(shape: tuple[int, ...], spec: InputText) -> str:
    """Return the meaning of each size: a text of N, C, H, W."""
    layouts = {2: ("HW",), 3: ("CHW", "HWC"), 4: ("NCHW", "NHWC"), 5: ("NNCHW",)}.get(len(shape), ())
    for layout in layouts:
        if "C" not in layout or shape[layout.index("C")] in (1, 2, 3, 4):
            return layout
    raise SampleInputError(
        f"cannot give {spec.text!r} from an image\n{list(shape)} has no place for 1, 3 or 4 channels",
        hint="write a shape such as 1,3,224,224",
    )


def _to_channels(levels: np.ndarray[Any, Any], channels: int, spec: InputText) -> np.ndarray[Any, Any]:
    found = levels.shape[2]
    if found == channels:
        return levels
    colours = found - 1 if found in (2, 4) else found  # the last channel of two or four is opacity
    if channels == 1:
        if colours == 1:
            return levels[..., :1]
        return (levels[..., :3] * np.array(_GREY)).sum(axis=2, keepdims=True)
    if channels == 3:
        return levels[..., :3] if colours == 3 else np.repeat(levels[..., :1], 3, axis=2)
    raise SampleInputError(
        f"cannot give {channels} channels for {spec.text!r}\nthe file has {found}",
        hint=f"ask for {', '.join(str(number) for number in sorted({1, 3, found}))}",
    )


def _resize(levels: np.ndarray[Any, Any], height: int, width: int) -> np.ndarray[Any, Any]:
    planes = np.moveaxis(levels, 2, 0)
    if planes.shape[1:] == (height, width):
        return np.ascontiguousarray(planes)
    resized = torch.nn.functional.interpolate(
        torch.from_numpy(np.ascontiguousarray(planes))[None], (height, width), mode="bilinear", antialias=True
    )
    return resized[0].numpy()


def _to_range(
    planes: np.ndarray[Any, Any], top: float, wanted: Range | None, *, is_float: bool
) -> np.ndarray[Any, Any]:
    if wanted is None:
        return planes / top if is_float else planes
    return wanted.low + planes / top * (wanted.high - wanted.low)


def _normalise(values: np.ndarray[Any, Any], normalisation: Normalisation, spec: InputText) -> np.ndarray[Any, Any]:
    if len(normalisation.mean) not in (1, values.shape[0]):
        raise SampleInputError(
            f"cannot normalise {spec.text!r}\n{len(normalisation.mean)} means for {values.shape[0]} channels",
            hint="write ~MEAN,STD with one number each, or ask for three channels",
        )
    mean, std = (np.array(numbers)[:, None, None] for numbers in (normalisation.mean, normalisation.std))
    return (values - mean) / std
