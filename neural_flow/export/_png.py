"""Small palette PNGs for tiles inside an SVG: written directly, because rows of an enlarged tile repeat."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from neural_flow.drawing import Image
from neural_flow.export._lowering import enlarged, rgba_of
from neural_flow.records import Array

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def tile_png(image: Image) -> bytes:
    """Return ``image`` as a PNG, enlarged by a whole factor; a palette PNG where 256 colours are enough."""
    if image.palette is not None:
        used, indices = np.unique(image.pixels, return_inverse=True)
        small = indices.reshape(image.pixels.shape).astype(np.uint8)
        return _encode(_repeat(small, image), 3, image.palette[used].astype(np.uint8).tobytes())
    rgba = rgba_of(image)
    if (rgba[..., 3] == 255).all():
        return _encode(_repeat(np.ascontiguousarray(rgba[..., :3]), image), 2, b"")
    return _encode(_repeat(rgba, image), 6, b"")


def _repeat(pixels: Array, image: Image) -> Array:
    return enlarged(Image(x=0, y=0, width=image.width, height=image.height, pixels=pixels))


def _encode(pixels: Array, color_type: int, palette: bytes) -> bytes:
    height, width = pixels.shape[:2]
    rows = np.ascontiguousarray(pixels).reshape(height, -1)
    # A row equal to the one above becomes filter "Up" with zeros only: the size of the unenlarged tile.
    is_repeat = np.zeros(height, bool)
    is_repeat[1:] = (rows[1:] == rows[:-1]).all(axis=1)
    lines = np.zeros((height, rows.shape[1] + 1), np.uint8)
    lines[is_repeat, 0] = 2
    lines[~is_repeat, 1:] = rows[~is_repeat]
    header = struct.pack(">IIBBBBB", width, height, 8, color_type, 0, 0, 0)
    chunks = [_chunk(b"IHDR", header)]
    if palette:
        chunks.append(_chunk(b"PLTE", palette))
    chunks += [_chunk(b"IDAT", zlib.compress(lines.tobytes(), 6)), _chunk(b"IEND", b"")]
    return _SIGNATURE + b"".join(chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
