"""Arrows with their heads and labels, and the rings in which they meet."""

from __future__ import annotations

from dataclasses import replace
from math import hypot

from neural_flow.drawing import Arrow, Box, DiagramNode, Mark, Path, Placement, Point, Rect, Route, Text
from neural_flow.scene.cards import change_color
from neural_flow.scene.look import Look, name_of
from neural_flow.scene.shapes import Commands, circle, cross, saltire
from neural_flow.scene.tracks import Track, commands_of, end_direction, own_part, shorten, track_of
from neural_flow.theme import Theme

MAX_SKIP_LABELS = 6
"""Beyond so many skips the legend alone says what the colour means."""
EDGE_LAYER = 2.5
RING_LAYER = 4.0
HEAD_LAYER = 5.0
_UNDER = {"return": 0.0, "merge": 0.01, "branch": 0.02, "skip": 0.03, "primary": 0.04}

RING_WORDS = {
    "concat": "concat", "add": "add", "mul": "multiply", "sub": "subtract", "div": "divide",
    "matmul": "matrix product", "attention": "attention", "mean": "mean", "max": "maximum", "min": "minimum",
    "where": "select", "cosine_similarity": "cosine similarity", "pairwise_distance": "distance", "cdist": "distances",
    "dist": "distance", "pow": "power", "kron": "Kronecker product", "remainder": "remainder", "fmod": "remainder",
    "logical_or": "or", "logical_xor": "exclusive or", "eq": "equal", "ne": "not equal", "lt": "less", "gt": "greater",
    "le": "less or equal", "ge": "greater or equal", "cross_entropy": "cross entropy", "mse_loss": "squared error",
    "l1_loss": "absolute error", "kl_div": "KL divergence",
}  # fmt: skip
_GLYPHS = {
    "concat": "C", "sub": "−", "div": "÷", "matmul": "@", "attention": "A", "mean": "μ", "where": "?", "max": "∨",
    "min": "∧", "cosine_similarity": "∠", "pairwise_distance": "↔", "cdist": "↔", "dist": "↔", "pow": "^", "kron": "⊗",
    "remainder": "%", "fmod": "%", "logical_or": "|", "logical_xor": "⊕", "eq": "=", "ne": "≠", "lt": "<", "gt": ">",
    "le": "≤", "ge": "≥", "cross_entropy": "H",
}  # fmt: skip
_TAKEN = frozenset("CA")
"""Letters that stand for a known operation: no other one begins with them."""


def glyph_of(symbol: str) -> str:
    """Return what is written in the ring of an operation: its sign, else the first free letter of its name."""
    letters = (letter for letter in symbol.upper() if letter.isalpha() and letter not in _TAKEN)
    return _GLYPHS.get(symbol) or next(letters, "∘")


def label_of(arrow: Arrow, look: Look) -> str:
    """Return the words beside an arrow."""
    if arrow.text:
        return arrow.text
    return "skip" if arrow.kind == "skip" and look.num_skips <= MAX_SKIP_LABELS else ""


def kind_color(kind: str, is_inferred: bool, theme: Theme) -> str:
    """Return the colour of a kind of arrow, or grey where it was guessed."""
    colors = {"skip": theme.skip, "merge": theme.merge, "branch": theme.branch}
    return theme.inferred if is_inferred else colors.get(kind, theme.trunk)


def group_of(node: DiagramNode) -> str:
    """Return the id of the group that holds a node's marks."""
    return f"ring-{node.node_id}" if node.role == "ring" else f"stage-{node.stage_id}"


def arrow_marks(arrow: Arrow, route: Route, places: dict[int, Placement], look: Look) -> tuple[Mark, ...]:
    """Draw one arrow from where it leaves the line that it shares, with head, label and tap dots."""
    theme = look.theme
    color = kind_color(arrow.kind, arrow.inferred, theme)
    change = look.arrow_changes.get(arrow.arrow_id)
    if change is not None:
        color = change_color(change, theme)
    track = track_of(own_part(route))
    if not route.num_shared_points:
        track = shorten(track, _missing(track[0][0], arrow.source, places, look), from_start=True)
    layer = EDGE_LAYER + (-0.01 if arrow.inferred else _UNDER[arrow.kind])
    heads: list[Mark] = []
    line = track
    if not route.num_joined_points:
        track = shorten(track, _missing(track[-1][-1], arrow.target, places, look), from_start=False)
        line = shorten(track, theme.line_stop, from_start=False)
        # Where lines end in one place, the head of the most important one is on top.
        above = HEAD_LAYER + layer - EDGE_LAYER
        heads.append(Path(commands=head(track[-1][-1], end_direction(track), theme), fill=color, layer=above))
    is_dashed = arrow.inferred or change == "removed"
    dash = tuple(length * theme.edge_width for length in theme.dash) if is_dashed else ()
    marks: list[Mark] = [
        Path(commands=commands_of(line), stroke=color, stroke_width=theme.edge_width, dash=dash, layer=layer),
        *heads,
    ]
    for x, y in route.taps:
        marks.append(Path(commands=circle(x, y, theme.tap_radius), fill=color, layer=EDGE_LAYER + 0.1))
    if arrow.opaque:
        marks += opaque_marks(_middle(line), color, look.theme)
    if route.label is not None and (text := label_of(arrow, look)):
        marks.append(_label(route.label, text, color if arrow.kind == "skip" else theme.sub, theme))
    return tuple(replace(mark, group=f"edge-{arrow.arrow_id}") for mark in marks)


def _label(box: Box, text: str, color: str, theme: Theme) -> Text:
    baseline = box.y + box.height / 2 + theme.edge_label_size * 0.36
    return Text(x=box.x, y=baseline, text=text, size=theme.edge_label_size, color=color)


def _missing(point: Point, node_id: int, places: dict[int, Placement], look: Look) -> float:
    """Return by how much an arrow must be cut so that its end stands clear of the node's border."""
    place = places.get(node_id)
    if place is None:
        return 0.0
    box = place.body
    if look.nodes[node_id].role == "ring":
        center = (box.x + box.width / 2, box.y + box.height / 2)
        gap = hypot(point[0] - center[0], point[1] - center[1]) - box.width / 2
    else:
        beside = max(box.x - point[0], point[0] - box.x - box.width, 0.0)
        above = max(box.y - point[1], point[1] - box.y - box.height, 0.0)
        gap = hypot(beside, above)
    return max(0.0, look.theme.clearance - gap)


def head(tip: Point, direction: Point, theme: Theme) -> Commands:
    """Return a swept triangle whose tip is at ``tip``."""
    (x, y), (along_x, along_y) = tip, direction
    half, length, notch = theme.head_width / 2, theme.head_length, theme.head_length - theme.head_notch
    back_x, back_y = x - along_x * length, y - along_y * length
    return (
        ("M", x, y),
        ("L", back_x - along_y * half, back_y + along_x * half),
        ("L", x - along_x * notch, y - along_y * notch),
        ("L", back_x + along_y * half, back_y - along_x * half),
        ("Z",),
    )


def opaque_marks(center: Point, color: str, theme: Theme) -> list[Mark]:
    """Return the black box on an arrow that runs through code which nothing sees into."""
    x, y = center
    box = Rect(x=x - 2.6, y=y - 2.6, width=5.2, height=5.2, radius=1.0, fill=color, stroke=theme.paper,
               stroke_width=0.8, layer=HEAD_LAYER)  # fmt: skip
    return [box, Path(commands=circle(x, y, 0.8), fill=theme.paper, layer=HEAD_LAYER + 0.1)]


def _middle(track: Track) -> Point:
    """Return the middle of the longest piece of a track."""
    piece = max(track, key=lambda piece: hypot(piece[-1][0] - piece[0][0], piece[-1][1] - piece[0][1]))
    if len(piece) == 2:
        (x0, y0), (x1, y1) = piece
        return (x0 + x1) / 2, (y0 + y1) / 2
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = piece
    return (x0 + 3 * x1 + 3 * x2 + x3) / 8, (y0 + 3 * y1 + 3 * y2 + y3) / 8


def ring_marks(node: DiagramNode, place: Placement, look: Look) -> tuple[Mark, ...]:
    """Draw the ring in which values meet."""
    box = place.body
    center = (box.x + box.width / 2, box.y + box.height / 2)
    marks = ring_at(center, node.symbol, look.theme)
    return tuple(replace(mark, group=group_of(node)) for mark in marks)


def ring_at(center: Point, symbol: str, theme: Theme) -> list[Mark]:
    """Return a ring with the glyph of its operation."""
    x, y = center
    marks: list[Mark] = [
        Path(
            commands=circle(x, y, theme.ring_radius - theme.ring_width / 2),
            fill=theme.paper,
            stroke=theme.merge,
            stroke_width=theme.ring_width,
            layer=RING_LAYER,
        )
    ]
    if symbol in ("add", "sum", "+"):
        marks.append(_strokes(cross(x, y, theme.ring_glyph_size - 0.6), theme))
    elif symbol in ("mul", "gate", "×"):
        marks.append(_strokes(saltire(x, y, theme.ring_glyph_size - 2.0), theme))
    else:
        glyph = glyph_of(symbol)
        size = theme.ring_glyph_size
        marks.append(
            Text(x=x, y=y + size * 0.365, text=glyph, size=size, weight="bold", color=theme.merge, anchor="middle")
        )
    return marks


def _strokes(commands: Commands, theme: Theme) -> Path:
    return Path(commands=commands, stroke=theme.merge, stroke_width=theme.ring_width, layer=RING_LAYER + 0.1)


def arrow_title(arrow: Arrow, look: Look) -> str:
    """Return the tooltip of an arrow."""
    ends = " → ".join(_end_name(node_id, look) for node_id in (arrow.source, arrow.target))
    kind = {"primary": "trunk", "return": "next turn"}.get(arrow.kind, arrow.kind)
    words = [kind]
    words += [f"{change} between the two models"] if (change := look.arrow_changes.get(arrow.arrow_id)) else []
    words += ["inferred from the order of execution"] if arrow.inferred else []
    words += ["through code that no tracer sees into"] if arrow.opaque else []
    return "\n".join(part for part in (ends, ", ".join(words), arrow.title or arrow.text) if part)


def _end_name(node_id: int, look: Look) -> str:
    node = look.nodes[node_id]
    return RING_WORDS.get(node.symbol, node.symbol or "join") if node.role == "ring" else name_of(node, look)
