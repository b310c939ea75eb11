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
        used = np.flatnonzero(np.bincount(image.pixels.ravel(), minlength=256))
        rank = np.zeros(256, np.uint8)
        rank[used] = np.arange(len(used))
        return _encode(_repeat(rank[image.pixels], image), 3, image.palette[used].astype(np.uint8).tobytes())
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
    chunks += [_chunk(b"IDAT", _deflated(lines.tobytes(), is_repeat)), _chunk(b"IEND", b"")]
    return _SIGNATURE + b"".join(chunks)


def _deflated(data: bytes, is_repeat: Array) -> bytes:
    # Where most rows repeat, so do pixels: runs alone compress better and three times as fast as a search for matches.
    strategy = zlib.Z_RLE if is_repeat.mean() > 0.7 else zlib.Z_DEFAULT_STRATEGY
    packer = zlib.compressobj(6, zlib.DEFLATED, 15, 9, strategy)
    return packer.compress(data) + packer.flush()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
