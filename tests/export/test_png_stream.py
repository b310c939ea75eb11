from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neural_flow.export._png import stream_png


def streamed(pixels: np.ndarray, num_rows: int, has_alpha: bool, description: str = "") -> bytes:
    """Pack ``pixels`` in bands that all lie in the same memory, as those of a renderer do."""
    memory = np.empty((num_rows, *pixels.shape[1:]), np.uint8)

    def bands():
        for top in range(0, len(pixels), num_rows):
            part = pixels[top : top + num_rows]
            memory[: len(part)] = part
            yield memory[: len(part)]

    size = (pixels.shape[1], pixels.shape[0])
    return stream_png(size, bands(), has_alpha=has_alpha, dpi=150, description=description)


@given(
    seed=st.integers(0, 2**32 - 1),
    height=st.integers(1, 24),
    width=st.integers(1, 9),
    num_rows=st.integers(1, 25),
    has_alpha=st.booleans(),
)
def test_a_reader_gets_back_every_pixel(seed, height, width, num_rows, has_alpha):
    random = np.random.default_rng(seed)
    pixels = random.integers(0, 3, (height, width, 4)).astype(np.uint8)
    pixels = pixels[np.sort(random.integers(0, height, height))]  # rows that repeat, also across bands
    read = PIL.Image.open(io.BytesIO(streamed(pixels, num_rows, has_alpha)))
    assert read.mode == ("RGBA" if has_alpha else "RGB")
    np.testing.assert_array_equal(np.asarray(read), pixels if has_alpha else pixels[..., :3])


def test_chunks_stand_in_the_order_of_the_standard():
    data = streamed(np.zeros((5, 3, 4), np.uint8), 2, has_alpha=False, description="Größe 中")
    position, names = 8, []
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    while position < len(data):
        (length,) = struct.unpack(">I", data[position : position + 4])
        body = data[position + 4 : position + 8 + length]
        assert struct.unpack(">I", data[position + 8 + length : position + 12 + length])[0] == zlib.crc32(body)
        names.append(body[:4].decode())
        position += 12 + length
    assert names[:3] == ["IHDR", "pHYs", "iTXt"]
    assert set(names[3:-1]) == {"IDAT"}
    assert names[-1] == "IEND"
    read = PIL.Image.open(io.BytesIO(data))
    assert read.info["dpi"] == pytest.approx((150, 150), abs=0.1)
    assert read.info["Description"] == "Größe 中"


def test_an_empty_page_costs_next_to_nothing():
    blank = np.full((2000, 2000, 4), 255, np.uint8)
    assert len(streamed(blank, 300, has_alpha=False)) < 60_000
