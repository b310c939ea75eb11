"""The film strip of a folded card: one small picture for each repeat, or the first and the last."""

from __future__ import annotations

from dataclasses import dataclass

from neural_flow.drawing import Box, DiagramNode, Mark, Text
from neural_flow.records import Array, Summary, Topology
from neural_flow.scene.look import Look
from neural_flow.summaries._planes import frame_marks, image_mark, palette, two_tone

STRIP_GAP = 2.4
"""Between the picture of a card and its strip, in points."""
_HEIGHT, _GAP = 8.5, 1.4
_MAX_TILES = 8
_FRAME = 0.35


@dataclass(frozen=True, slots=True, eq=False)
class Strip:
    """Tiles from left to right; ``num_hidden`` repeats between the first and the last are left out."""

    tiles: tuple[tuple[Array, Array], ...]
    tile_width: float
    num_hidden: int = 0

    height: float = _HEIGHT


def strip_stage_ids(node: DiagramNode, topology: Topology) -> tuple[int, ...]:
    """Return the stage that ends each repeat of a folded card; of many repeats the first and the last."""
    if node.count < 2 or node.stage_id is None:
        return ()
    known = set(node.stage_ids)
    folds = [
        fold
        for fold in topology.folds
        if fold.kind in ("serial", "parallel")
        and len(fold.members) > 1
        and all(member and known.issuperset(member) for member in fold.members)
    ]
    if not folds:
        return ()
    ends = [member[-1] for member in max(folds, key=lambda fold: len(fold.members)).members]
    return tuple(ends) if len(ends) <= _MAX_TILES else (ends[0], ends[-1])


def strip_of(node: DiagramNode, width: float, look: Look) -> Strip | None:
    """Return the strip under a picture that is ``width`` points wide, None where there is nothing to show."""
    ids = strip_stage_ids(node, look.topology)
    found = [look.capture.summaries[stage_id] for stage_id in ids if stage_id in look.capture.summaries]
    tiles = [tile for summary in found if (tile := _tile(summary, look)) is not None]
    if len(tiles) < 2 or len(tiles) != len(ids) or len({summary.kind for summary in found}) > 1:
        return None
    rows, columns = tiles[0][0].shape[:2]
    tile_width = min(max(_HEIGHT * columns / rows, 5.0), 13.0)
    room = int((width + _GAP) // (tile_width + _GAP))
    if room < 2:
        return None
    if len(tiles) > room or node.count > len(tiles):
        return Strip((tiles[0], tiles[-1]), tile_width, max(node.count, len(tiles)) - 2)
    return Strip(tuple(tiles), tile_width)


def strip_marks(strip: Strip, x: float, y: float, width: float, look: Look) -> list[Mark]:
    """Draw a strip whose upper left corner is at ``x``, ``y``; a gap says how many repeats it leaves out."""
    marks: list[Mark] = []
    last = x + width - strip.tile_width
    for index, (pixels, colors) in enumerate(strip.tiles):
        left = x + index * (strip.tile_width + _GAP)
        if strip.num_hidden and index:
            left = last
        place = Box(x=left, y=y, width=strip.tile_width, height=strip.height)
        marks += [image_mark(place, pixels, colors), *frame_marks(place, look.style, width=_FRAME)]
    if strip.num_hidden:
        theme = look.theme
        middle = Text(
            x=x + width / 2,
            y=y + strip.height / 2 + theme.min_size * 0.3,
            text="…",
            size=theme.min_size,
            color=theme.sub,
            anchor="middle",
        )
        marks.append(middle)
    return marks


def _tile(summary: Summary, look: Look) -> tuple[Array, Array] | None:
    """Return the pixels of a summary's front plane and their colours, None for kinds that are no map."""
    planes, cells = summary.arrays.get("planes"), summary.arrays.get("cells")
    pixels = planes[0] if planes is not None and planes.ndim == 3 and len(planes) else cells
    if pixels is None or pixels.ndim != 2 or min(pixels.shape) < 2:
        return None
    if next(iter(summary.facts.get("dead", ())), False):
        return pixels, two_tone(look.theme.dead, look.theme.dead)
    return pixels, palette(look.style, bool(summary.facts.get("is_signed")))
