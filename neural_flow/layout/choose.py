"""Choose a layout style for a diagram, and lay it out."""

from __future__ import annotations

from neural_flow.drawing import Diagram, Layout, LayoutOptions, Sizes
from neural_flow.layout._base import LAYOUT_STYLES


def lay_out(diagram: Diagram, sizes: Sizes, options: LayoutOptions, style: str = "auto") -> Layout:
    """Place ``diagram`` on a page.

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
    return LAYOUT_STYLES.get("layered")(diagram, sizes, options)
