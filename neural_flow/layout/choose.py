"""Choose a layout style for a diagram, and lay it out."""

from __future__ import annotations

from neural_flow.drawing import Box, Diagram, Direction, Layout, LayoutOptions, Sizes
from neural_flow.layout._base import LAYOUT_STYLES
from neural_flow.layout.graph import split_diagram
from neural_flow.layout.layered import lay_out_part, make_draft, make_sheet
from neural_flow.layout.sheet import Sheet, extent, finish, pack
from neural_flow.layout.u_shape import make_u_sheet
from neural_flow.layout.wrap import HEADER_ROOM, Wrapping, page_cost, wrap, wrappings

MAX_ASPECT = 3.0
MAX_SHORT_WIDTH = 600.0
"""A row that is no wider may be a ribbon, if more than one line would cross the break."""
MAX_U_PAGES = 2.0
"""A U that is so much larger than the page gives way to rows, if these are smaller."""
COLUMN_COST = 0.3
GOOD_COST = 0.6
MAX_BOTH_NODES = 100
"""Larger diagrams are tried in rows only: they never fit a page, and columns look no better."""


def lay_out(diagram: Diagram, sizes: Sizes, options: LayoutOptions, style: str = "auto") -> Layout:
    """Place ``diagram`` on a page.

    ``auto`` draws a U where there is one. Else it draws one row if that fits the page, else the rows or columns that
    fit best; only what is too large for any of them makes the page grow.

    Args:
        diagram: nodes, arrows and frames.
        sizes: what each takes, in points.
        options: direction and page size.
        style: a name in ``LAYOUT_STYLES``, or ``auto``.

    Raises:
        UnknownNameError: no such style.
    """
    if style != "auto":
        return LAYOUT_STYLES.get(style)(diagram, sizes, options)
    sheets = [_choose_sheet(part, sizes, options) for part in split_diagram(diagram)]
    return finish(pack(sheets, max_width=options.max_width))


def _choose_sheet(diagram: Diagram, sizes: Sizes, options: LayoutOptions) -> Sheet:
    """Return the best sheet of a connected diagram."""
    sheet = make_u_sheet(diagram, sizes, options) if options.direction != "tb" else None
    if sheet is not None and _page_share(extent(sheet), options) <= (1.0 if options.is_width_fixed else MAX_U_PAGES):
        return sheet
    directions: list[Direction] = ["lr", "tb"] if options.direction == "auto" else [options.direction]
    if len(diagram.nodes) > MAX_BOTH_NODES:
        directions = directions[:1]
    best: tuple[tuple[float, int], Wrapping] | None = None
    for index, direction in enumerate(directions):
        # Ties go to rows: papers read from left to right. What fits well in rows is not tried in columns.
        bias = COLUMN_COST * index
        if best is not None and best[0][0] <= GOOD_COST:
            break
        draft = make_draft(diagram, sizes, direction)
        row = wrap(draft, 1)
        found = wrappings(draft, options)
        if index == 0 and row is not None and _is_fine_row(row, found[0], options):
            return make_sheet(row.draft, "layered")
        for wrapping in found:
            cost, num_rows = page_cost(wrapping, options)
            if best is None or (cost + bias, num_rows) < best[0]:
                best = ((cost + bias, num_rows), wrapping)
    if best is None:
        return lay_out_part(diagram, sizes, directions[0])
    if sheet is not None and _page_share(best[1], options) > max(1.0, _page_share(extent(sheet), options)):
        return sheet
    return make_sheet(best[1].draft, "wrapped" if best[1].num_rows > 1 else "layered")


def _page_share(found: Box | Wrapping, options: LayoutOptions) -> float:
    """Return how many times something is larger than the page; where only the width is given, how much wider."""
    share = found.width / options.max_width
    return share if options.is_width_fixed else max(share, found.height / options.max_height)


def _is_fine_row(row: Wrapping, best: Wrapping, options: LayoutOptions) -> bool:
    """Return whether one row fits the page and is no ribbon, or is too short to be worth a second one."""
    if row.width > options.max_width or row.height > options.max_height:
        return False
    if row.width <= MAX_ASPECT * (row.height + HEADER_ROOM) or row.width <= options.plain_width:
        return True
    return row.width <= MAX_SHORT_WIDTH and best.cut_cost > 0.0
