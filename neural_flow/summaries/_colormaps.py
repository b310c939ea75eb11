"""Colour maps as tables of 256 colours, so that drawing needs no plotting library.

The tables equal matplotlib's to the last bit, at 256 places from end to end. Each is stored as the differences between
neighbouring colours, compressed; the differences are small, so a table takes about 200 characters.
"""

from __future__ import annotations

import base64
import zlib
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from neural_flow.errors import UnknownNameError
from neural_flow.records import Array

_TABLES = MappingProxyType(
    {
        "magma": (
            "eNptUgkOwCAIg/n/NzPlriKlNC4gDomID/igr89Jsa0QzkCT6AGLDLKlqzmcrDtt082hbgSiL5m1ZE6angOnVEW50pl6VsWQWYZp"
            "sFvmCOiagg3AfpC6UYvPDoSHQS5uZfZayetgRfAt6yG6q1u0UUwjkAruEqQWdKAOwj5aQp4A42pv1jxeLb7c+/p7/ddMLbc="
        ),
        "inferno": (
            "eNqNUtEWhSAIA/H+/x9bB8YIfLo4RqYuwEREHeoIW/DFsW5v6PT3iwo5vsBvhzOXSkzgQkLijvBpDzzAARJBvSG/MEu50lUoagpR"
            "TXi6bdOL7jDnWq1mx3t1o+714WrnuBBQhfHU7dvmYLPVQtNizZKMZFzBSSSF5Kv9d/Mf8nNdAMmRlNzsjHgGnR5q4oJ5pfm7rirD"
            "S7Bws43h9ts02y8Lhmuf"
        ),
        "viridis": (
            "eNqNUgkOxCAIxPq1fUL//xTpgoMD1mSXOUATqaZ8RJrTxSSiTFMqk4FUVuRU7FWC62O4QDMYEZfRYXRFdKpXHJnNz7TV2kEeVZ35"
            "j5Af631DDqXQl0FBWEHYiXc8uz58uwi7p4acmn10XoscupecsDo7CjO6piHG8mGEfRE2asIB1Xm5+O8PghSICQ=="
        ),
        "cividis": (
            "eNqVUgcOgCAMbKsv8T/+/zdURqULYjxu4YixCrDGeR4VVIGNfTWKmVTAqoNPF7C7+ydov6dYaDq197z6c8GwCrT60/HCz83ywL4m"
            "+RJt4TnTZMEO5x7fd0gc5R/gac5j7cBUUR1VI9D0DHbJXoZic70mFLMowtJYuA7gAQ1yRBw="
        ),
        "RdBu_r": (
            "eNp1ktEZwyAIhA9t9+lK2X+GQKOAArU/yJ0PySfimxatuPYv++JVXPNoPcf48BwAfCFuSCAoaSrCIl6DfeqIUobwrbgu+NOMXnRC"
            "XuLSckJv7rAaiDSzPJ3u02cnNyuuy8w2NLNw6JGT9d9CCrjCNLvN0JT0mMZ2P+yHU7vbsgZbLKwp4WLk1J25QNrMiYfhz+ucAvHn"
            "kwNfYclElg=="
        ),
        "PuOr_r": (
            "eNp1kcsBAyEIREHrSSXpv5sgQVkRVngoM9z4fLDF8FbLltgcrEOwFCoAwPUgWmQoYGEw38JD4NfXVALl/K1XrFl7kvYWnOxCaZes"
            "aYA3zs3OZ1xi0Et1WPeOLVf2Xa33JM2mn9vFZJJeOWeeNMYjLN0TDYtjf0Ty0n8kOJr70zCjNoDe/wHpcCXS"
        ),
        "berlin": (
            "eNptUoENwzAIC83/L+yFXdhkItgOJANjUFup2OIz3iGAcjpWzEhGIzUiWttPlMAOc9gVD+lxgJTPKkUXqTHKd8fLfgzfFruhtHQI"
            "9IByx6rd0GehmdqUbTRvGyjDiilRHMInpsGzcMhVGrRaUm1/TKiGFP1poUGm4hD1jnHfRBoKVLobDNu5cAIUP3UjriNJvuhiWjoT"
            "HAXE9fMsUBdAHH6/i01o"
        ),
        "managua": (
            "eNp9UYENwzAIo3l25+6iQZUEgyHRjG2IVFVYmJpZ139rAnU19UmbRdHPFmRLULK0beKBE48qRv1Ofnx14jfXDBjMVXNEjGgX9pSc"
            "0ykcDJsFxtaAHXV7wgYa5pGt4eNbMQ8rQ16qDMLRLC9o7YhxHc6Zi5c1nzJtZfJkyJ3G1o6PXg/xLHU="
        ),
        "twilight": (
            "eNplUlGWwyAIBE3vf739ba9RhWUGNOYVkDFKFEbeHmIWZtMm7CE2fUzzERETww0qhr9cYCJ0IuULax0xFKtbfB2CpThHmqo2bSUdqhch"
            "LTQdR0OoEkqV/6dIDlrqgto8oqgif8pkWUwmtZWkOOu2qn/huDHdTP4SCRPr+IwZz0G9IC2pCYmbIxHfvHHhSPzOmJWuysNvNnKiV7t5"
            "In97ukJ6O0Q6jsQFIp8s3e9nWpIb6xkfJn68r2SsV1OY8H2TIDIxoo9i2HcAJr9jPfZxXdGgv8IE0+TRYIuszVZTtpEe/LB7ers6/KsH"
            "XlQg+otx2uQfYhA2qg=="
        ),
        "YlOrRd": (
            "eNqlkgEOgCAMA/H/X/NNq06GtAuCCQXWHiRAFJS5UPaE3XWgjV6YzK2XzBZ6g+a6hzc15bHXGAfZMNCVpBLYQvDrgl2m5LsM4krn"
            "s0eU7A2iZ/6cZSg/2vwX+BsR43DroC4QPNUF7x+rtg=="
        ),
    }
)

# The ends of magma are too close to black and white to be told from ink and paper.
_RANGES = MappingProxyType({"magma": (0.02, 0.98)})

_CATEGORIES = "#E69F00 #56B4E9 #009E73 #F0E442 #0072B2 #D55E00 #CC79A7 #000000"

_TO_RGB = np.array([
    [4.0767416621, -3.3077115913, 0.2309699292],
    [-1.2684380046, 2.6097574011, -0.3413193965],
    [-0.0041960863, -0.7034186147, 1.7076147010],
])  # fmt: skip


def colormap(name: str) -> Array:
    """Return the colour map called ``name`` as read-only uint8 ``[256, 3]``.

    ``magma`` is its part from .02 to .98; ``okabe_ito`` repeats its eight colours; ``gray`` runs from black to white;
    ``phase`` goes once round the hues, all of one lightness, so that black is left to small magnitudes.

    Raises:
        UnknownNameError: no such map; lists the choices.
    """
    if name not in colormap_names():
        raise UnknownNameError("colour map", name, colormap_names())
    return _table(name)


def colormap_names() -> tuple[str, ...]:
    """Return the names of all colour maps, sorted."""
    return tuple(sorted([*_TABLES, "gray", "okabe_ito", "phase"]))


@lru_cache(maxsize=32)
def _table(name: str) -> Array:
    if name == "gray":
        table = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, axis=1)
    elif name == "phase":
        table = _hues()
    elif name == "okabe_ito":
        colors = [[int(color[k : k + 2], 16) for k in (1, 3, 5)] for color in _CATEGORIES.split()]
        table = np.resize(np.asarray(colors, dtype=np.uint8), (256, 3))
    else:
        steps = np.frombuffer(zlib.decompress(base64.b64decode(_TABLES[name])), np.uint8).reshape(3, 256).T
        table = np.cumsum(steps, axis=0, dtype=np.uint8)  # wraps round at 256, as the differences did
        low, high = _RANGES.get(name, (0.0, 1.0))
        if (low, high) != (0.0, 1.0):
            places = np.linspace(low * 255, high * 255, 256)
            channels = [np.interp(places, np.arange(256), table[:, channel]) for channel in range(3)]
            table = np.rint(np.stack(channels, axis=1)).astype(np.uint8)
    table.flags.writeable = False
    return table


def _hues() -> Array:
    """Return 256 hues of one lightness and chroma in OKLab (Ottosson, 2020), the middle one red."""
    angle = 2 * np.pi * (np.arange(256) - 128) / 256 + np.radians(30)
    lightness, a, b = np.full(256, 0.72), 0.125 * np.cos(angle), 0.125 * np.sin(angle)
    cones = np.stack([
        lightness + 0.3963377774 * a + 0.2158037573 * b,
        lightness - 0.1055613458 * a - 0.0638541728 * b,
        lightness - 0.0894841775 * a - 1.2914855480 * b,
    ])  # fmt: skip
    linear = _TO_RGB @ cones**3
    shown = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * np.maximum(linear, 0.0) ** (1 / 2.4) - 0.055)
    return np.rint(np.clip(shown, 0, 1).T * 255).astype(np.uint8)
