"""What shapes a layer takes: read from its own sizes, the likeliest first."""

from __future__ import annotations

import math

from torch import nn

_PICTURE_SIZES = (224, 64, 32, 28, 256, 128, 96, 299, 48, 16, 512, 384, 8, 4)
_GREY_SIZES = (128, 28, 32, 64, 224, 256, 96, 48, 16, 512, 8, 4)
_VOLUME_SIZES = (32, 64, 16, 96, 8, 4)
_SIGNAL_LENGTHS = (1024, 16000, 256, 128, 64, 32, 16, 8, 4, 3000)
_SEQUENCE_LENGTHS = (16, 8, 4, 32, 64, 128, 2, 1)


def shapes_of(module: nn.Module) -> list[str]:
    """Return ``-i`` texts that ``module`` would take as its input, the likeliest first; empty if it says nothing."""
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
