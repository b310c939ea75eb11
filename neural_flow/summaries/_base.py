"""What a summary kind is, the registry of kinds, and how the right kind is chosen for a tensor.

A kind lives in one file of this folder. It reduces a tensor to small arrays while the model runs (torch), and turns
these arrays into marks when the figure is drawn (numpy).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, Protocol

import torch

from neural_flow.drawing import Box, Mark
from neural_flow.records import Array, Summary
from neural_flow.registry import Registry
from neural_flow.summaries._colormaps import colormap
from neural_flow.theme import Theme

Role = Literal["input", "module", "op", "probe", "output", "attention"]
Norm = Literal["channel", "stage", "global"]
Reduced = tuple[dict[str, torch.Tensor], dict[str, Any]]


class NoPicture(Exception):
    """Raised where a tensor has no values to show; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SummaryContext:
    """What is known about a tensor besides its values.

    ``batch_dim`` is the batch dimension of this tensor, None where it has none; ``batch_size`` the size of a batch at
    the model's inputs, of which the dimension's size is a multiple. ``input_hw`` is the spatial size of the image
    input and ``input_picture`` that image as uint8 ``[H, W]`` or ``[H, W, 3]``; ``input_range`` are the ends of its
    values; ``input_dhw`` and ``input_slices`` are the size of an input volume and its middle slices as uint8;
    ``num_tokens`` is the length of the token input. ``max_side`` caps a map, in pixels. Of an output, ``name`` is its
    name, ``makers`` the names of the modules that made it, innermost first and the model's class last, and ``ops`` the
    bare words of its last ops, the last one first.
    """

    role: Role = "module"
    class_name: str = ""
    name: str = ""
    makers: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    batch_dim: int | None = None
    batch_size: int = 1
    sample: int = 0
    input_hw: tuple[int, int] | None = None
    input_picture: Array | None = None
    input_range: tuple[float, float] | None = None
    input_dhw: tuple[int, int, int] | None = None
    input_slices: tuple[Array, Array, Array] | None = None
    has_token_input: bool = False
    num_tokens: int = 0
    has_conv1d: bool = False
    has_volumes: bool = True
    """Whether the model works on volumes; in others four dimensions are heads, windows or groups of maps."""
    labels: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    max_side: int = 160
    max_planes: int = 6
    max_channels: int = 0
    """Channels of a feature map to keep beyond those that are drawn, for pages where a reader can turn them over."""
    norm: Norm = "channel"
    image_mean: tuple[float, ...] = ()
    image_std: tuple[float, ...] = ()
    heads: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawStyle:
    """Colours (``#rrggbb``), colour maps (uint8 ``[256, 3]``), widths and font sizes (points) of a summary.

    The defaults are the light theme's.
    """

    paper: str = "#FFFFFF"
    ink: str = "#1F2933"
    sub: str = "#66727F"
    hair: str = "#C9D1DA"
    frame: str = "#1F2933"
    accent: str = "#00795A"
    warning: str = "#C8102E"
    dead: str = "#E4E7EB"
    not_a_number: str = "#39FF14"
    separator: str = "#FFFFFF"
    is_dark: bool = False
    sequential: Array = field(default_factory=lambda: colormap("magma"))
    diverging: Array = field(default_factory=lambda: colormap("RdBu_r"))
    cyclic: Array = field(default_factory=lambda: colormap("phase"))
    plane_offset: float = 2.3
    separator_width: float = 0.6
    frame_width: float = 0.55
    small_size: float = 5.0
    text_size: float = 5.2
    number_size: float = 5.8


def style_of(theme: Theme, cmap: str | None = None) -> DrawStyle:
    """Return the style of ``theme``; ``cmap`` replaces its map for values that are not signed.

    Raises:
        UnknownNameError: no such colour map.
    """
    return DrawStyle(
        paper=theme.paper,
        ink=theme.ink,
        sub=theme.sub,
        hair=theme.hair,
        frame=theme.frame,
        accent=theme.merge,
        warning=theme.failure,
        dead=theme.dead,
        not_a_number=theme.not_a_number,
        separator=theme.plane_separator,
        is_dark=theme.is_dark,
        sequential=colormap(cmap or theme.sequential_map),
        diverging=colormap(theme.signed_map),
        plane_offset=theme.plane_offset,
        separator_width=theme.separator_width,
        frame_width=theme.frame_width,
        small_size=theme.min_size,
        text_size=theme.shape_size,
        number_size=theme.name_size,
    )


class SummaryKind(Protocol):
    """One way to show a tensor. All methods are static: a kind holds no state.

    ``accepts`` and ``reduce`` get the sample that is drawn: a dense tensor without its batch dimension, neither
    modified nor kept. ``reduce`` runs inside a forward hook, without gradients, on the tensor's device.
    """

    priority: int

    @staticmethod
    def accepts(tensor: torch.Tensor, context: SummaryContext) -> bool:
        """Return whether this kind can show ``tensor``; decided from shape, dtype and context, seldom from values."""
        ...

    @staticmethod
    def reduce(tensor: torch.Tensor, context: SummaryContext) -> Reduced:
        """Return small arrays and plain facts that are enough to draw."""
        ...

    @staticmethod
    def size(summary: Summary, context: SummaryContext) -> tuple[float, float]:
        """Return width and height of the drawing in points."""
        ...

    @staticmethod
    def draw(summary: Summary, box: Box, style: DrawStyle) -> tuple[Mark, ...]:
        """Return the marks that show ``summary`` inside ``box``; only a warning badge may stick out."""
        ...


SUMMARIES: Registry[type[SummaryKind]] = Registry("summary kind", "neural_flow.summaries")


def choose(tensor: torch.Tensor, context: SummaryContext) -> str:
    """Return the name of the kind with the highest priority that accepts ``tensor`` (a sample without batch)."""
    if tensor.numel() == 0:
        return "histogram"  # which says that there is nothing
    return next(name for name, kind in _ranked(SUMMARIES.names()) if kind.accepts(tensor, context))


@lru_cache(maxsize=4)
def _ranked(names: tuple[str, ...]) -> tuple[tuple[str, type[SummaryKind]], ...]:
    kinds = [(name, SUMMARIES.get(name)) for name in names]
    return tuple(sorted(kinds, key=lambda item: (-item[1].priority, item[0])))


def front_size(summary: Summary, context: SummaryContext, style: DrawStyle) -> tuple[float, float]:
    """Return width and height of the front plane: the whole drawing, but for a stack of planes."""
    width, height = SUMMARIES.get(summary.kind).size(summary, context)
    depth = style.plane_offset * (int(summary.facts.get("num_planes", 1)) - 1)
    return width - depth, height - depth


def read_only(arrays: Mapping[str, torch.Tensor]) -> dict[str, Array]:
    """Return ``arrays`` as read-only numpy arrays that share no memory with them."""
    found: dict[str, Array] = {}
    for name, tensor in arrays.items():
        found[name] = tensor.detach().cpu().numpy().copy()
        found[name].flags.writeable = False
    return found
