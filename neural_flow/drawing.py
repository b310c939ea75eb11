"""Every record of the drawing: the diagram that layout places, the geometry it returns, and the marks of a page.

Lengths are points (1/72 inch), y grows downwards. The union ``Mark`` is closed: exporters match it exhaustively.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from neural_flow.records import Array, Capture, FoldKind, Measurements, Topology

Direction = Literal["lr", "tb"]
ArrowKind = Literal["primary", "skip", "merge", "branch", "return"]
Point = tuple[float, float]

# -- the drawn graph: folds applied, joins as rings ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagramNode:
    """A card or a ring. A card shows ``stage_id``; ``stage_ids`` and ``join_ids`` are all that it stands for."""

    node_id: int
    role: Literal["card", "ring"]
    stage_id: int | None = None
    stage_ids: tuple[int, ...] = ()
    join_ids: tuple[int, ...] = ()
    label: str = ""
    symbol: str = ""
    """Rings: ``concat``, ``add``, ``mul``, ``matmul``, ``mean``, ... Cards: empty."""
    count: int = 1
    """A closed fold is one stacked card ``×count``; 1 is no fold."""
    fold_kind: FoldKind | None = None
    is_dense: bool = False
    has_residual: bool = False
    is_shared: bool = False
    is_thin: bool = False
    """A model output that only repeats what an earlier card already shows: a thin stub is enough."""
    order: int = 0
    """Place in execution order; arrows go from lower to higher order but for return arrows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """One line between two nodes. ``text`` is what happens on the way (``pool ÷2``)."""

    arrow_id: int
    source: int
    target: int
    kind: ArrowKind = "primary"
    inferred: bool = False
    opaque: bool = False
    text: str = ""
    title: str = ""
    """Full words for the tooltip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A quiet box round nodes: a container (``group``) or an opened fold (``fold``, with its ``badge``)."""

    frame_id: int
    kind: Literal["group", "fold"]
    title: str
    badge: str = ""
    node_ids: tuple[int, ...] = ()
    parent_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagram:
    """What layout places: nodes in execution order, arrows, frames."""

    nodes: tuple[DiagramNode, ...]
    arrows: tuple[Arrow, ...] = ()
    frames: tuple[Frame, ...] = ()


# -- geometry: points (1/72 inch), y downwards ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A rectangle by its top left corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSize:
    """Size of one node in points. The body is what arrows touch; the label stands above or below it.

    ``front_width`` x ``front_height`` is the front plane of a stack, at the lower left of the body; arrows leave at
    its middle height. ``resolution`` (side of the feature map in elements, 0 if none) lets a layout see a U.
    """

    width: float
    height: float
    front_width: float
    front_height: float
    label_width: float = 0.0
    label_height: float = 0.0
    resolution: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What layout must know of the drawing before it is drawn: sizes by node id and arrow id (width, height).

    ``tightness`` is the share of the usual white space between stages along the flow.
    """

    nodes: Mapping[int, NodeSize]
    arrow_labels: Mapping[int, tuple[float, float]] = field(default_factory=lambda: MappingProxyType({}))
    frame_titles: Mapping[int, tuple[float, float]] = field(default_factory=lambda: MappingProxyType({}))
    tightness: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutOptions:
    """What the user asked of the layout. Width and height bound what is laid out, in points.

    A row that is no wider than ``plain_width`` stays one row. With ``is_fit_first`` anything within the page is better
    than anything larger.
    """

    direction: Literal["auto", "lr", "tb"] = "auto"
    max_width: float = 1067.0
    max_height: float = 600.0
    page_aspect: float = 16 / 9
    is_width_fixed: bool = False
    plain_width: float = 500.0
    is_fit_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a node stands: its body and its label."""

    node_id: int
    body: Box
    label: Box | None = None
    label_side: Literal["above", "below"] = "below"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The way of one arrow, from the source's border to the target's.

    ``orthogonal``: corners to be rounded with ``radius``. ``curve``: points are start, then three per cubic.
    ``taps`` are the points where a shared line splits. ``num_shared_points`` counts the leading points that lie on a
    route of the same source drawn before: the line of its own starts at the last of them. ``num_joined_points`` counts
    the trailing points that lie on another route to the same target: the line of its own ends at the first of them.

    ``kind`` is what the line is in this drawing, where that is not the arrow's own kind: arrows are told apart by
    ancestry alone, while a row of the drawing may carry on what is only a merge by ancestry.
    """

    arrow_id: int
    style: Literal["orthogonal", "curve"]
    points: tuple[Point, ...]
    radius: float = 6.0
    label: Box | None = None
    taps: tuple[Point, ...] = ()
    num_shared_points: int = 0
    num_joined_points: int = 0
    kind: ArrowKind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FramePlacement:
    """Where a frame stands; ``is_bracket`` where a box would enclose foreign nodes.

    A frame that is broken at the end of a row has one placement per row; all but the first are ``is_continued``.
    """

    frame_id: int
    box: Box
    is_bracket: bool = False
    is_continued: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A finished layout. The drawing's own header and legend are not in it."""

    style: str
    direction: Direction
    width: float
    height: float
    placements: tuple[Placement, ...]
    routes: tuple[Route, ...]
    frames: tuple[FramePlacement, ...] = ()


# -- drawing: a closed union of marks ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Rect:
    """A rectangle with corner ``radius``. Colours are ``#rrggbb`` or ``#rrggbbaa``; None paints nothing."""

    x: float
    y: float
    width: float
    height: float
    radius: float = 0.0
    fill: str | None = None
    stroke: str | None = None
    stroke_width: float = 0.0
    group: str = ""
    layer: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """Lines and cubics. ``commands`` are ``("M"|"L"|"C"|"Z", x, y, ...)``; ``dash`` is in points."""

    commands: tuple[tuple[Any, ...], ...]
    fill: str | None = None
    stroke: str | None = None
    stroke_width: float = 0.0
    dash: tuple[float, ...] = ()
    group: str = ""
    layer: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """One line of text; ``y`` is the baseline."""

    x: float
    y: float
    text: str
    size: float
    color: str
    weight: Literal["regular", "bold"] = "regular"
    anchor: Literal["start", "middle", "end"] = "start"
    group: str = ""
    layer: float = 6.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Image:
    """A picture, painted into the box without smoothing.

    ``pixels`` is uint8 ``[H, W]`` (indices into ``palette``, a uint8 ``[256, 3]``) or uint8 ``[H, W, 4]`` (RGBA).
    """

    x: float
    y: float
    width: float
    height: float
    pixels: Array
    palette: Array | None = None
    group: str = ""
    layer: float = 3.0


Mark = Rect | Path | Text | Image


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkGroup:
    """One ``<g>`` in SVG, one element in HTML: ``stage-3``, ``edge-5``, ``frame-1``."""

    group_id: str
    title: str = ""
    css_class: str = ""
    data: tuple[tuple[str, str], ...] = ()
    href: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scene:
    """All marks of one page, in paint order within each layer."""

    width: float
    height: float
    marks: tuple[Mark, ...]
    groups: tuple[MarkGroup, ...] = ()
    title: str = ""
    description: str = ""
    background: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Picture:
    """Everything an exporter may write: the graph, the captured values and the pages."""

    topology: Topology
    capture: Capture
    measurements: tuple[Measurements, ...] = ()
    scenes: tuple[Scene, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What the user asked of the exporters."""

    dpi: int | None = None
    has_text_as_paths: bool = False
    has_stats: bool = True
    font_file: str | None = None
