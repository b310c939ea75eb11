"""What the user asked of the look of a figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Change = Literal["added", "removed", "changed"]
CHANGES: tuple[Change, ...] = ("added", "removed", "changed")


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneOptions:
    """Options of one drawing.

    ``labels`` are (module path or stage name, words) pairs; ``highlight`` are globs over paths (``*`` stays inside
    one segment, ``**`` crosses dots); ``color_by`` names a measurement, or ``params``; ``numbers`` are
    measurements that are written in labels; ``font_file`` is asked for
    every character before the bundled font; ``changes`` are (stage id, what happened to it) pairs of a comparison,
    ``edge_changes`` (source id, target id, what happened to the connection). ``picture_scale`` makes pictures larger or
    smaller than usual, as the page needs it; text keeps its size. ``page_width`` is the width that the page must have.
    """

    title: str | None = None
    has_legend: bool = True
    has_shapes: bool = True
    has_stats: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    highlight: tuple[str, ...] = ()
    is_transparent: bool = False
    cmap: str | None = None
    norm: Literal["channel", "stage", "global"] = "channel"
    color_by: str | None = None
    numbers: tuple[str, ...] = ()
    font_file: str | None = None
    changes: tuple[tuple[int, Change], ...] = ()
    edge_changes: tuple[tuple[int, int, Change], ...] = ()
    picture_scale: float = 1.0
    page_width: float | None = None
