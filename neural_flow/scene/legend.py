"""The legend: only kinds that are there, in the empty corners of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

import numpy as np

from neural_flow.drawing import Box, Image, Mark, Rect, Text
from neural_flow.scene.legend_rows import Bar, Entry, bars_of, cost_palette, entries_of
from neural_flow.scene.legend_samples import sample_marks
from neural_flow.scene.look import Look
from neural_flow.scene.space import floors_under

_GAP = 8.0
_TEXT_GAP = 5.0
_COLUMN_GAP = 12.0
_BAR_GAP = 12.0
_APART = 40.0
"""Growth of the page, in points, that bars side by side are worth."""
_SHAPE = 0.3
"""The same for the next shape of the rows of entries: two columns first, then what is less like them."""
_MAX_STEPS = 120
_BAR_CAPTION = 6.6
_BAR_TOP = 9.0


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the legend that is placed as one; ``columns`` of entries, or none for a bar."""

    width: float
    height: float
    columns: int
    column_width: float = 0.0


Placed = tuple[Block, float, float]
"""A block and the x and y of its upper left corner."""


def legend_marks(
    look: Look, drawn: Sequence[Mark], page: Box, obstacles: Sequence[Box], cost_top: float
) -> tuple[list[Mark], Box]:
    """Draw the legend into the empty corners of ``page``, which may grow downwards, and to the right if it is narrow.

    Args:
        look: what is drawn.
        drawn: the marks of the figure, which tell what colour maps are in use.
        page: the part of the page that holds the figure.
        obstacles: what must not be covered.
        cost_top: the largest value that cards are coloured by.

    Returns:
        The marks, and the page as large as it has become.
    """
    entries = entries_of(look)
    bars = bars_of(look, drawn, cost_top)
    blocks = [_bar_block(bar, look) for bar in bars]
    rows = [[block] for block in _entry_blocks(entries, look)] if entries else [list[Block]()]
    # Bars stand side by side, unless the page would have to grow for it. A page of a given width grows downwards only.
    ways = [blocks] if len(bars) < 2 else [[_row_of(blocks)], blocks]
    if look.options.page_width is not None and ways[0] and ways[0][0].width > page.width:
        ways = [blocks]
    tried = [
        (
            _growth([*row, *way], bool(entries), page, obstacles) + _SHAPE * shape + _APART * (way is not ways[0]),
            row,
            way,
        )
        for shape, row in enumerate(rows)
        for way in ways
    ]
    _, row, way = min(tried, key=lambda found: found[0])
    chosen = [*row, *way]
    page = replace(page, width=max([page.width, *(block.width for block in chosen)]))
    _, bottom = _places(chosen, bool(entries), page, obstacles)
    # Where the page has to grow for one block, all of them move down to its new edge.
    page = replace(page, height=bottom - page.y)
    places, bottom = _places(chosen, bool(entries), page, obstacles)
    marks: list[Mark] = []
    if entries:
        block, x, y = places.pop(0)
        marks += _entries(entries, block, x, y, look)
    if len(places) < len(bars):
        block, x, y = places.pop()
        places = [(part, x + left, y) for part, left in _parts_of(block, blocks)]
    for bar, (block, x, y) in zip(bars, places, strict=True):
        marks += _bar(bar, x + block.width, y, look)
    return marks, replace(page, height=bottom - page.y)


def _growth(blocks: Sequence[Block], has_entries: bool, page: Box, obstacles: Sequence[Box]) -> float:
    """Return by how much the page grows for these blocks, both ways, in points."""
    wider = max([0.0, *(block.width - page.width for block in blocks)])
    _, bottom = _places(blocks, has_entries, replace(page, width=page.width + wider), obstacles)
    return wider + bottom - page.y - page.height


def _row_of(blocks: Sequence[Block]) -> Block:
    width = sum(block.width for block in blocks) + _BAR_GAP * (len(blocks) - 1)
    return Block(width, max(block.height for block in blocks), 0)


def _parts_of(row: Block, blocks: Sequence[Block]) -> list[tuple[Block, float]]:
    """Return the blocks of a row with their offsets, the first at the right end."""
    found: list[tuple[Block, float]] = []
    right = row.width
    for block in blocks:
        found.append((block, right - block.width))
        right -= block.width + _BAR_GAP
    return found


def _places(
    blocks: Sequence[Block], has_entries: bool, page: Box, obstacles: Sequence[Box]
) -> tuple[list[Placed], float]:
    """Return a place for each block (the rows to the left, bars to the right), and where the page then ends."""
    taken = list(obstacles)
    bottom = page.y + page.height
    found: list[Placed] = []
    for index, block in enumerate(blocks):
        x, y = place_block(block, page, taken, "left" if has_entries and index == 0 else "right")
        found.append((block, x, y))
        taken.append(Box(x=x, y=y, width=block.width, height=block.height))
        bottom = max(bottom, y + block.height)
        page = replace(page, height=bottom - page.y)
    return found, bottom


def place_block(
    block: Block, page: Box, obstacles: Sequence[Box], side: Literal["left", "right"]
) -> tuple[float, float]:
    """Return the place of a block that lets the page grow least, nearest to the corner on ``side``."""
    bottom = page.y + page.height
    room = max(page.width - block.width, 0.0)
    steps = np.linspace(0.0, room, min(int(room // 8) + 1, _MAX_STEPS))
    xs = page.x + steps if side == "left" else page.x + room - steps
    ys = np.maximum(floors_under(xs, block.width, obstacles, _GAP), bottom - block.height)
    costs = (ys + block.height - bottom) * 4 + np.arange(len(xs)) * 0.5
    best = int(np.argmin(costs))
    return float(xs[best]), float(ys[best])


def _entry_blocks(entries: Sequence[Entry], look: Look) -> list[Block]:
    theme = look.theme
    column = max(_text_left(entry, look) + look.width_of(entry.words, theme.legend_size) for entry in entries)
    blocks: list[Block] = []
    for rows in range(1, len(entries) + 1):
        columns = ceil(len(entries) / rows)
        if ceil(len(entries) / columns) != rows:
            continue
        width = columns * column + (columns - 1) * _COLUMN_GAP
        blocks.append(Block(width, rows * theme.legend_row, columns, column))
    return sorted(blocks, key=lambda block: abs(block.columns - 2))


def _text_left(entry: Entry, look: Look) -> float:
    """Return where the words of a row start: a note has no sample."""
    return 0.0 if entry.kind == "note" else look.theme.legend_sample + _TEXT_GAP


def _entries(entries: Sequence[Entry], block: Block, x: float, y: float, look: Look) -> list[Mark]:
    theme = look.theme
    marks: list[Mark] = []
    for index, entry in enumerate(entries):
        left = x + (index % block.columns) * (block.column_width + _COLUMN_GAP)
        middle = y + (index // block.columns + 0.5) * theme.legend_row
        marks += sample_marks(entry, left, middle, look)
        marks.append(
            Text(
                x=left + _text_left(entry, look),
                y=middle + theme.legend_size * 0.36,
                text=entry.words,
                size=theme.legend_size,
                color=theme.sub,
            )
        )
    return marks


def cost_color(value: float, top: float, look: Look) -> str:
    """Return the colour of a measured value between 0 and ``top``."""
    red, green, blue = cost_palette(look)[round(255 * min(max(value / top, 0.0), 1.0)) if top > 0 else 0].tolist()
    return f"#{red:02X}{green:02X}{blue:02X}"


def _bar_block(bar: Bar, look: Look) -> Block:
    width = max(look.theme.color_bar_width, look.width_of(bar.caption, look.theme.legend_size))
    return Block(width, 20.6, 0)


def _bar(bar: Bar, right: float, y: float, look: Look) -> list[Mark]:
    theme = look.theme
    left = right - theme.color_bar_width
    size, color = theme.legend_size, theme.sub
    pixels = np.arange(256, dtype=np.uint8)[None]
    top, height = y + _BAR_TOP, theme.color_bar_height
    return [
        Text(x=right, y=y + _BAR_CAPTION - 0.6, text=bar.caption, anchor="end", size=size, color=color),
        Image(x=left, y=top, width=right - left, height=height, pixels=pixels, palette=bar.palette),
        Rect(x=left, y=top, width=right - left, height=height, stroke=theme.hair, stroke_width=0.4, layer=3.9),
        Text(x=left, y=top + height + 6.2, text=bar.low, size=size, color=color),
        Text(x=right, y=top + height + 6.2, text=bar.high, anchor="end", size=size, color=color),
    ]
