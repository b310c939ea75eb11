"""The wrapped style: rows like lines of text, or columns like a newspaper."""

from __future__ import annotations

from neural_flow.drawing import Diagram, Direction, Layout, LayoutOptions, Sizes
from neural_flow.layout._base import LAYOUT_STYLES
from neural_flow.layout.graph import split_diagram
from neural_flow.layout.layered import make_draft, make_sheet
from neural_flow.layout.sheet import Sheet, finish, pack
from neural_flow.layout.wrap import wrappings


@LAYOUT_STYLES.register("wrapped")
def lay_out_wrapped(diagram: Diagram, sizes: Sizes, options: LayoutOptions) -> Layout:
    """Place ``diagram`` in as many rows (or columns, top to bottom) as bring it nearest to the page's aspect."""
    direction: Direction = "tb" if options.direction == "tb" else "lr"
    sheets: list[Sheet] = []
    for part in split_diagram(diagram):
        draft = make_draft(part, sizes, direction)
        found = wrappings(draft, options)
        sheets.append(make_sheet(found[0].draft if found else draft, "wrapped"))
    return finish(pack(sheets, max_width=options.max_width))
