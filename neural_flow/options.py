"""Everything that ``render`` and ``trace`` take, and what each pass is asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Literal

import torch

from neural_flow.drawing import LayoutOptions
from neural_flow.errors import UsageError
from neural_flow.records import Request
from neural_flow.scene.build import room_inside
from neural_flow.scene.options import Change, SceneOptions
from neural_flow.theme import get_theme

Progress = Callable[[str], None]
ImageNorm = tuple[Sequence[float], Sequence[float]]
PAGE_WIDTHS = {"column": 252.0, "page": 516.0, "slide": 960.0}
UNITS = {"pt": 1.0, "mm": 72 / 25.4, "cm": 72 / 2.54, "in": 72.0, "px": 0.75}
POINTS_OF_DEFAULT_PAGE = (1067.0, 600.0)
MIN_PAGE_WIDTH = 130.0
"""What one card with its name, a line to either side and the legend take."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything that ``render`` and ``trace`` take, named as on the command line.

    What is drawn: ``detail``, ``depth``, ``select``, ``exclude``, ``types``, ``max_stages``, ``fold``, ``expand``,
    ``collapse``. Where the edges come from: ``topology``, ``tracer``, ``fake``. What is captured: ``capture``,
    ``attention``, ``heads``, ``stats``, ``gradients``, ``saved``, ``color_by``, ``batch_dim``, ``sample``. How it
    looks: ``layout`` to ``text_as_paths``. What the graph file says of its making: ``target`` to ``weights``.
    ``opened`` gives HTML a second page with every repeat. ``image_norm`` is undone in pictures of inputs; ``changes``
    and ``edge_changes`` colour a comparison; ``progress`` is told each phase, ``log`` each decision.
    """

    detail: Literal["auto", "block", "layer", "op"] = "auto"
    depth: int | None = None
    select: str | Iterable[str] = ()
    exclude: str | Iterable[str] = ()
    types: str | Iterable[str] = ()
    max_stages: int = 24
    fold: bool = True
    expand: str | Iterable[str] = ()
    collapse: str | Iterable[str] = ()
    topology: str = "auto"
    tracer: Literal["auto", "function", "dispatch"] = "auto"
    fake: bool = False
    capture: bool = True
    capture_device: str = "cpu"
    attention: bool = True
    heads: str | None = None
    stats: bool = True
    show_stats: bool = False
    gradients: bool = False
    saved: bool = False
    color_by: str | None = None
    loss: Callable[..., torch.Tensor] | None = None
    batch_dim: str | int = "auto"
    sample: int = 0
    train: bool = False
    seed: int | None = None
    autocast: bool = False
    strict: bool = False
    tokens: Iterable[str] | None = None
    class_labels: Iterable[str] | None = None
    layout: str = "auto"
    direction: Literal["auto", "lr", "tb"] = "auto"
    width: str | float | None = None
    theme: str = "light"
    transparent: bool = False
    cmap: str | None = None
    norm: Literal["channel", "stage", "global"] = "channel"
    dpi: int | None = None
    title: str | None = None
    legend: bool = True
    shapes: bool = True
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    highlight: str | Iterable[str] = ()
    opened: bool = False
    font: str | None = None
    text_as_paths: bool = False
    model_name: str | None = None
    target: str = ""
    arguments: Iterable[str] = ()
    inputs: Iterable[str] = ()
    inputs_function: str | None = None
    weights: str | None = None
    image_norm: ImageNorm | Mapping[str, ImageNorm] | None = None
    changes: tuple[tuple[int, Change], ...] = ()
    edge_changes: tuple[tuple[int, int, Change], ...] = ()
    progress: Progress | None = None
    log: Progress | None = None

    def tell(self, phase: str) -> None:
        """Say which phase begins, if somebody wants to know."""
        if self.progress is not None:
            self.progress(phase)


def as_arguments(args: Any) -> tuple[Any, ...]:
    """Return positional arguments: a tuple as it is, anything else as the one argument."""
    return args if isinstance(args, tuple) and not hasattr(args, "_fields") else (args,)


def make_request(asked: Options) -> Request:
    """Return the part of the options that decides what is drawn, as the graph file stores it."""
    return Request(
        target=asked.target,
        detail=asked.detail,
        depth=asked.depth,
        select=_names(asked.select),
        exclude=_names(asked.exclude),
        types=_names(asked.types),
        max_stages=asked.max_stages,
        has_folds=asked.fold,
        expand=_names(asked.expand),
        collapse=_names(asked.collapse),
        topology=asked.topology,
        inputs=tuple(asked.inputs),
        arguments=tuple(asked.arguments),
        inputs_function=asked.inputs_function,
        weights=asked.weights,
        train=asked.train,
        autocast=asked.autocast,
        seed=asked.seed,
        tracer=asked.tracer,
    )


def request_options(request: Request) -> dict[str, Any]:
    """Return the options that ask for the same stages again."""
    renamed = {"has_folds": "fold"}
    return {renamed.get(field.name, field.name): getattr(request, field.name) for field in dataclasses.fields(Request)}


def layout_options(asked: Options) -> LayoutOptions:
    """Return what the user asked of the layout: the room that a page leaves; a width fixes the page."""
    theme = get_theme(asked.theme)
    if asked.width is None:
        width, height = room_inside(*POINTS_OF_DEFAULT_PAGE, theme)
        return LayoutOptions(direction=asked.direction, max_width=width, max_height=height)
    width = width_in_points(asked.width)
    width, height = room_inside(width, width * 9 / 16, theme)
    return LayoutOptions(direction=asked.direction, max_width=width, max_height=height, is_width_fixed=True)


def width_in_points(width: str | float) -> float:
    """Return a page width in points: a number, ``516pt``, ``180mm``, ``7in``, ``column``, ``page`` or ``slide``.

    Raises:
        UsageError: it is none of these, or so little that no card has room.
    """
    points = _points(width)
    if points < MIN_PAGE_WIDTH:
        least = f"{MIN_PAGE_WIDTH:.0f}pt ({MIN_PAGE_WIDTH / UNITS['mm']:.0f}mm)"
        raise UsageError(f"width {width!r} is too narrow for a card and its name", hint=f"give at least {least}")
    return points


def _points(width: str | float) -> float:
    if isinstance(width, int | float):
        if not 0 < width < inf:
            raise UsageError(f"width {width!r} is no length", hint="give points, such as 516")
        return float(width)
    if width in PAGE_WIDTHS:
        return PAGE_WIDTHS[width]
    for unit, factor in UNITS.items():
        number = width.removesuffix(unit).strip()
        if number != width and number.replace(".", "", 1).isdigit() and float(number) > 0:
            return float(number) * factor
    raise UsageError(
        f"width {width!r} is no length", hint="write 516pt, 180mm, 7in, or one of: " + ", ".join(PAGE_WIDTHS)
    )


def scene_options(asked: Options) -> SceneOptions:
    """Return what the user asked of the look of the figure."""
    return SceneOptions(
        title=asked.title,
        has_legend=asked.legend,
        has_shapes=asked.shapes,
        has_stats=asked.show_stats,
        labels=tuple(sorted(asked.labels.items())),
        highlight=_names(asked.highlight),
        is_transparent=asked.transparent,
        cmap=asked.cmap,
        norm=asked.norm,
        color_by=asked.color_by,
        numbers=("gradient",) * asked.gradients + ("saved",) * asked.saved,
        font_file=asked.font,
        changes=asked.changes,
        edge_changes=asked.edge_changes,
        page_width=None if asked.width is None else width_in_points(asked.width),
    )


def _names(value: str | Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
