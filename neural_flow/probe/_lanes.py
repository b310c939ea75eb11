"""Where an emission happens among function transforms: its lanes, and its value without them.

A value under ``torch.func`` transforms is a wrapper round a wrapper; the innermost tensor holds one more axis for each
``vmap`` that the value depends on. ``split_lanes`` returns that tensor with one axis for every open ``vmap``, the
outermost first, whether the value depends on it or not.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FrameType

import torch

from neural_flow import torch_private


@dataclass(frozen=True, slots=True)
class Lanes:
    """The open ``vmap`` levels whose lanes are executions, outermost first, and their sizes."""

    levels: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()


NO_LANES = Lanes()


def open_lanes() -> Lanes:
    """Return the lanes of this moment.

    ``jacfwd`` and ``hessian`` run the function inside a ``vmap`` of their own, over directions: these lanes hold the
    same execution, so they are not counted.
    """
    levels = torch_private.transform_levels()
    if not levels:
        return NO_LANES
    ignored = _direction_levels(sys._getframe(1)) if any(level.kind == "jvp" for level in levels) else set[int]()
    kept = [level for level in levels if level.kind == "vmap" and level.level not in ignored]
    return Lanes(tuple(level.level for level in kept), tuple(level.batch_size for level in kept))


def _direction_levels(frame: FrameType | None) -> set[int]:
    """Return the levels of vmaps over directions: those that enclose a frame of jacfwd's inner function."""
    found: set[int] = set()
    is_inside_directions = False
    while frame is not None:
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        if name == "push_jvp" and file.endswith("eager_transforms.py"):
            is_inside_directions = True
        elif is_inside_directions and name == "_flat_vmap":
            level = frame.f_locals.get("vmap_level")
            if isinstance(level, int):
                found.add(level)
            is_inside_directions = False
        frame = frame.f_back
    return found


def split_lanes(value: torch.Tensor, lanes: Lanes) -> torch.Tensor:
    """Return a view of ``value`` as a plain tensor ``[*lane sizes, *shape]``.

    Args:
        value: any tensor, wrapped by transforms or not; not modified.
        lanes: what ``open_lanes`` returned at the same moment.
    """
    plain, axes = torch_private.unwrap_transforms(value)
    if not axes and not lanes.levels:
        return plain
    with torch_private.outside_transforms():
        for level in [axis for axis in axes if axis is not None and axis not in lanes.levels]:
            where = axes.index(level)  # a lane of directions: every one holds the same value
            plain = plain.select(where, 0)
            axes.pop(where)
        order = [axes.index(level) for level in lanes.levels if level in axes]
        order += [index for index, axis in enumerate(axes) if axis is None]
        plain = plain.permute(order) if axes else plain
        for index, (level, size) in enumerate(zip(lanes.levels, lanes.sizes, strict=True)):
            if level not in axes:
                plain = plain.unsqueeze(index)
                plain = plain.expand(*plain.shape[:index], size, *plain.shape[index + 1 :])
    return plain
