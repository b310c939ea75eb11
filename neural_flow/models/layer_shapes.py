"""What shapes a layer takes: read from its own sizes, the likeliest first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

_PICTURE_SIZES = (224, 64, 32, 28, 256, 128, 96, 299, 48, 16, 512, 384, 8, 4)
_GREY_SIZES = (128, 28, 32, 64, 224, 256, 96, 48, 16, 512, 8, 4)
_VOLUME_SIZES = (32, 64, 16, 96, 8, 4)
_SIGNAL_LENGTHS = (1024, 16000, 256, 128, 64, 32, 16, 8, 4, 3000)
_SEQUENCE_LENGTHS = (16, 8, 4, 32, 64, 128, 2, 1)
_HOLDERS = ("config", "cfg", "hparams", "default_cfg", "pretrained_cfg", "args")
_SIZE_NAMES = ("sample_size", "image_size", "img_size", "input_size", "resolution", "input_resolution", "crop_size")
_SMALLEST, _LARGEST = 4, 4096


@dataclass(frozen=True, slots=True)
class _Spoken:
    """A layer that a class's name speaks of: what takes the same input, and where the size of that stands."""

    make: Callable[[int], nn.Module]
    attribute: str
    axis: int


_SPOKEN: Mapping[str, _Spoken] = {
    "Linear": _Spoken(lambda size: nn.Linear(size, 1, device="meta"), "in_features", 1),
    "Conv1d": _Spoken(lambda size: nn.Conv1d(size, 1, 1, device="meta"), "in_channels", 1),
    "Conv2d": _Spoken(lambda size: nn.Conv2d(size, 1, 1, device="meta"), "in_channels", 1),
    "Conv3d": _Spoken(lambda size: nn.Conv3d(size, 1, 1, device="meta"), "in_channels", 1),
    "Embedding": _Spoken(lambda size: nn.Embedding(size, 1, device="meta"), "num_embeddings", 0),
}


def configured_sizes(model: nn.Module) -> tuple[int, ...]:
    """Return the spatial size that the configuration of ``model``, or of the first module with one, names; or nothing.

    One number stands for a square; the numbers of a longer list that come last are the spatial ones.
    """
    for module in model.modules():
        if type(module).__module__.startswith("torch.nn."):  # the input_size of an LSTM is no size of a picture
            continue
        for holder in (*(_attribute(module, name) for name in _HOLDERS), vars(module)):
            for name in _SIZE_NAMES:
                if sizes := _sizes_in(_entry(holder, name)):
                    return sizes
    return ()


def _attribute(module: nn.Module, name: str) -> Any:
    try:
        return getattr(module, name, None)
    except Exception:  # a property of the user's class may need what is not there; then it tells nothing
        return None


def _entry(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


def _sizes_in(value: Any) -> tuple[int, ...]:
    values: list[Any] = list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else [value]
    sizes = tuple(one for one in values if type(one) is int and _SMALLEST <= one <= _LARGEST)
    return sizes[-3:] if list(sizes) == values[len(values) - len(sizes) :] else ()


def shapes_of(module: nn.Module, sizes: tuple[int, ...] = ()) -> list[str]:
    """Return ``-i`` texts that ``module`` would take as its input, the likeliest first; empty if it says nothing.

    Args:
        module: a layer.
        sizes: spatial sizes that are known of the whole model, one for a square.
    """
    module = _as_layer(module)
    texts = [text + _kind_of(module) for text in _shapes_of(module)]
    if not sizes or not isinstance(module, nn.Conv2d | nn.Conv3d):
        return texts
    rank = 2 if isinstance(module, nn.Conv2d) else 3
    known = sizes * rank if len(sizes) == 1 else sizes[-rank:]
    if len(known) != rank:
        return texts
    first = f"1,{module.in_channels},{','.join(map(str, known))}{_kind_of(module)}"
    return list(dict.fromkeys([first, *texts]))


def _as_layer(module: nn.Module) -> nn.Module:
    """Return a layer of torch.nn with the sizes of ``module``, should that be scripted, quantised or of a library."""
    if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Embedding):
        return module
    name = str(getattr(module, "original_name", type(module).__name__))
    spoken = next((found for word, found in _SPOKEN.items() if word in name), None)
    if spoken is None:
        return module
    size, weight = getattr(module, spoken.attribute, None), getattr(module, "weight", None)
    if size is None and isinstance(weight, torch.Tensor) and weight.ndim > spoken.axis and not any(module.children()):
        size = weight.shape[spoken.axis]
    if type(size) is not int:
        return module
    layer = spoken.make(size)
    return layer.to(weight.dtype) if isinstance(weight, torch.Tensor) and weight.is_floating_point() else layer


def _kind_of(layer: nn.Module) -> str:
    """Return ``:bfloat16`` and the like, where the weights of a layer take no numbers of the usual kind."""
    weight = next(layer.parameters(recurse=False), None)
    is_usual = weight is None or weight.dtype == torch.float32 or isinstance(layer, nn.Embedding | nn.EmbeddingBag)
    is_number = weight is not None and (weight.is_floating_point() or weight.is_complex())
    return "" if is_usual or weight is None or not is_number else f":{str(weight.dtype).removeprefix('torch.')}"


def _shapes_of(module: nn.Module) -> list[str]:
    match module:
        case nn.Conv1d() | nn.ConvTranspose1d() | nn.BatchNorm1d():
            channels = module.num_features if isinstance(module, nn.BatchNorm1d) else module.in_channels
            flat = [f"1,{channels}"] if isinstance(module, nn.BatchNorm1d) else []
            return flat + [f"1,{channels},{length}" for length in _SIGNAL_LENGTHS]
        case nn.Conv2d() | nn.ConvTranspose2d():
            sizes = _GREY_SIZES if module.in_channels == 1 else _PICTURE_SIZES
            return [f"1,{module.in_channels},{size},{size}" for size in sizes]
        case nn.BatchNorm2d():
            return [f"1,{module.num_features},{size},{size}" for size in _PICTURE_SIZES]
        case nn.Conv3d() | nn.ConvTranspose3d():
            return [f"1,{module.in_channels},{size},{size},{size}" for size in _VOLUME_SIZES]
        case nn.Embedding() | nn.EmbeddingBag():
            kind = f":int64[0,{module.num_embeddings})"
            return [f"1,{length}{kind}" for length in _SEQUENCE_LENGTHS] + [f"16{kind}", f"1{kind}"]
        case nn.RNNBase():
            lengths = _SEQUENCE_LENGTHS[:3]
            return [
                f"1,{n},{module.input_size}" if module.batch_first else f"{n},1,{module.input_size}" for n in lengths
            ]
        case nn.RNNCellBase():
            return [f"1,{module.input_size}"]
        case nn.MultiheadAttention():
            shape = "1,16" if module.batch_first else "16,1"
            return [f"{shape},{module.embed_dim}"]
        case nn.LayerNorm() | nn.RMSNorm():
            shape = ",".join(str(size) for size in module.normalized_shape)
            return [f"1,16,{shape}", f"1,{shape}", *_patches(math.prod(module.normalized_shape))]
        case nn.Linear():
            wide = [f"1,16,{module.in_features}", f"16,{module.in_features}", f"1,4,{module.in_features}"]
            return [f"1,{module.in_features}", *wide, *_patches(module.in_features)]
        case nn.Bilinear():
            return [f"1,{module.in1_features}"]
        case _:
            return []


def _patches(num_features: int) -> list[str]:
    """Return pictures that cut into square patches of ``num_features`` values, or that flatten to as many."""
    texts: list[str] = []
    for channels in (3, 1):
        side = math.isqrt(num_features // channels)
        if num_features % channels == 0 and side * side * channels == num_features and side > 1:
            texts += [
                f"1,{channels},{size},{size}" for size in (224, 256, 32, 64, 28) if size % side == 0 and size > side
            ]
            texts += [f"1,{channels},{side},{side}"]
    return texts
