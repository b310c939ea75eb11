"""Outlines that several marks share, as path commands. Lengths are points."""

from __future__ import annotations

from typing import Any

Commands = tuple[tuple[Any, ...], ...]
_KAPPA = 0.5522847498  # handles of a cubic that draws a quarter of a unit circle


def circle(x: float, y: float, radius: float) -> Commands:
    """Return a circle round (x, y)."""
    handle = radius * _KAPPA
    return (
        ("M", x + radius, y),
        ("C", x + radius, y + handle, x + handle, y + radius, x, y + radius),
        ("C", x - handle, y + radius, x - radius, y + handle, x - radius, y),
        ("C", x - radius, y - handle, x - handle, y - radius, x, y - radius),
        ("C", x + handle, y - radius, x + radius, y - handle, x + radius, y),
        ("Z",),
    )


def cross(x: float, y: float, size: float) -> Commands:
    """Return an upright cross with arms of ``size`` from end to end."""
    half = size / 2
    return ("M", x - half, y), ("L", x + half, y), ("M", x, y - half), ("L", x, y + half)


def saltire(x: float, y: float, size: float) -> Commands:
    """Return a diagonal cross; ``size`` is the side of its box."""
    half = size / 2
    return ("M", x - half, y - half), ("L", x + half, y + half), ("M", x - half, y + half), ("L", x + half, y - half)
