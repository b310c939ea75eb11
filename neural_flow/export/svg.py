"""SVG: one string written from the marks, so that ids, tooltips and keyboard focus stand where they belong.

No renderer takes part: the same scene gives the same bytes under every version of every library but zlib.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from typing import Any, assert_never
from xml.sax.saxutils import escape, quoteattr

from neural_flow.drawing import ExportOptions, Image, Mark, MarkGroup, Path, Picture, Rect, Scene, Text
from neural_flow.export._base import EXPORTERS, first_scene
from neural_flow.export._lowering import (
    alpha_of,
    in_paint_order,
    left_of,
    legal_text,
    number,
    outline_of,
    path_data,
    warn_of_missing_glyphs,
)
from neural_flow.export._png import tile_png
from neural_flow.text_metrics import font_family, glyph_outline, glyph_places, has_all_glyphs, text_width

FONT_FAMILY = "'DejaVu Sans', Verdana, 'Helvetica Neue', Arial, sans-serif"


_BREAKS = re.compile("[\\t\\n\\r]")


@EXPORTERS.register(".svg")
def export_svg(picture: Picture, options: ExportOptions) -> bytes:
    """Return the first page of ``picture`` as SVG."""
    scene = first_scene(picture, ".svg")
    if options.has_text_as_paths:
        warn_of_missing_glyphs(scene, options)
    text = svg_text(scene, options)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()


def svg_text(scene: Scene, options: ExportOptions, prefix: str = "", *, is_explored: bool = False) -> str:
    """Return ``scene`` as one ``<svg>`` element.

    Args:
        scene: one page.
        options: fonts, and whether text becomes outlines.
        prefix: stands before every id, for several pages in one document.
        is_explored: whether assistive tools walk through the cards; else the figure is one picture with a description.
    """
    width, height = number(scene.width), number(scene.height)
    role = "group" if is_explored else "img"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}pt" height="{height}pt" '
        f'viewBox="0 0 {width} {height}" role="{role}" aria-labelledby="{prefix}nf-title {prefix}nf-desc" '
        f"font-family={quoted(_families(options.font_file))} "
        f'style="max-width:100%;image-rendering:crisp-edges;image-rendering:pixelated">',
        f'<title id="{prefix}nf-title">{clean(scene.title)}</title>',
        f'<desc id="{prefix}nf-desc">{clean(scene.description)}</desc>',
    ]
    if scene.background is not None:
        lines.append(f'<rect width="{width}" height="{height}"{_paint("fill", scene.background)}/>')
    known = {group.group_id: group for group in scene.groups}
    for name, marks in _runs(scene.marks):
        elements = [_element(mark, options) for mark in marks]
        lines += (
            _wrapped(known.get(name, MarkGroup(group_id=name)), elements, prefix, is_explored) if name else elements
        )
    lines.append("</svg>")
    return "\n".join(lines)


def _families(font_file: str | None) -> str:
    own = re.sub(r"[^\w -]", "", font_family(font_file)) if font_file else ""
    return f"'{own}', {FONT_FAMILY}" if own else FONT_FAMILY


def _runs(marks: Iterable[Mark]) -> Iterator[tuple[str, list[Mark]]]:
    """Yield (group, its marks): a group stands where its lowest mark stands, so that it is one element."""
    ordered = in_paint_order(marks)
    members: dict[str, list[Mark]] = {}
    for mark in ordered:
        if mark.group:
            members.setdefault(mark.group, []).append(mark)
    for mark in ordered:
        if not mark.group:
            yield "", [mark]
        elif (own := members.pop(mark.group, None)) is not None:
            yield mark.group, own


def _wrapped(group: MarkGroup, elements: list[str], prefix: str, is_explored: bool) -> list[str]:
    attributes = f' id="{prefix}{safe_id(group.group_id)}"'
    if group.css_class:
        attributes += f' class="{" ".join(safe_id(part) for part in group.css_class.split())}"'
    if "nf-stage" in group.css_class.split():  # the keyboard walks from card to card, not over every line
        attributes += ' tabindex="0" role="img"' if is_explored else ' tabindex="0"'
    attributes += "".join(f" data-{safe_id(key).lower()}={quoted(value)}" for key, value in group.data)
    head = [f"<g{attributes}>"] + ([f"<title>{clean(group.title)}</title>"] if group.title else [])
    if group.href:
        elements = [f"<a href={quoted(group.href)}>", *elements, "</a>"]
    return [*head, *elements, "</g>"]


def _element(mark: Mark, options: ExportOptions) -> str:
    match mark:
        case Rect():
            return _rect(mark)
        case Path():
            return _path(mark)
        case Text():
            return _outlined_text(mark, options) if options.has_text_as_paths else _text(mark, options)
        case Image():
            return _image(mark)
        case _:
            assert_never(mark)


def _rect(mark: Rect) -> str:
    radius = f' rx="{number(min(mark.radius, mark.width / 2, mark.height / 2))}"' if mark.radius else ""
    return (
        f'<rect x="{number(mark.x)}" y="{number(mark.y)}" width="{number(mark.width)}" '
        f'height="{number(mark.height)}"{radius}{_style(mark)}/>'
    )


def _path(mark: Path) -> str:
    dash = f' stroke-dasharray="{" ".join(map(number, mark.dash))}"' if mark.dash else ""
    return f'<path d="{path_data(outline_of(mark))}"{_style(mark)}{dash}/>'


def _style(mark: Rect | Path) -> str:
    fill = ' fill="none"' if mark.fill is None else _paint("fill", mark.fill)
    if mark.stroke is None:
        return fill
    return f'{fill}{_paint("stroke", mark.stroke)} stroke-width="{number(mark.stroke_width)}"'


def _paint(what: str, color: str) -> str:
    opacity = alpha_of(color)
    return f' {what}="{color[:7]}"' + (f' {what}-opacity="{number(opacity)}"' if opacity < 1 else "")


def _text(mark: Text, options: ExportOptions) -> str:
    weight = ' font-weight="bold"' if mark.weight == "bold" else ""
    anchor = f' text-anchor="{mark.anchor}"' if mark.anchor != "start" else ""
    width = ""
    # A viewer without our font may not make the label wider than the layout thought. A character that we cannot
    # measure is left to the viewer.
    if len(mark.text) > 1 and has_all_glyphs(mark.text, mark.weight, options.font_file):
        length = text_width(mark.text, mark.size, mark.weight, options.font_file)
        width = f' textLength="{number(length)}" lengthAdjust="spacingAndGlyphs"'
    return (
        f'<text x="{number(mark.x)}" y="{number(mark.y)}" font-size="{number(mark.size)}"'
        f"{weight}{anchor}{_paint('fill', mark.color)}{width}>{clean(mark.text, is_line=True)}</text>"
    )


def _outlined_text(mark: Text, options: ExportOptions) -> str:
    left = left_of(mark, options.font_file)
    commands: list[tuple[Any, ...]] = []
    for char, file, offset in glyph_places(mark.text, mark.weight, options.font_file):
        for letter, *values in glyph_outline(char, file):
            xs = [left + (offset + value) * mark.size for value in values[::2]]
            ys = [mark.y - value * mark.size for value in values[1::2]]
            commands.append((letter, *(value for point in zip(xs, ys, strict=True) for value in point)))
    return f'<path aria-label={quoted(mark.text)} d="{path_data(commands)}"{_paint("fill", mark.color)}/>'


def _image(mark: Image) -> str:
    data = base64.b64encode(tile_png(mark)).decode()
    return (
        f'<image x="{number(mark.x)}" y="{number(mark.y)}" width="{number(mark.width)}" '
        f'height="{number(mark.height)}" preserveAspectRatio="none" '
        f'href="data:image/png;base64,{data}"/>'
    )


def safe_id(text: str) -> str:
    """Return ``text`` with every character that an id may not hold replaced."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)


def clean(text: str, *, is_line: bool = False) -> str:
    """Return ``text`` escaped for XML; what may not stand there, as a tab within a line, appears as its code point."""
    legal = legal_text(text)
    return escape(_BREAKS.sub(lambda match: f"\\u{ord(match.group()):04x}", legal) if is_line else legal)


def quoted(text: str) -> str:
    """Return ``text`` as a quoted XML attribute."""
    return quoteattr(legal_text(text))
