"""Width of a text in points and the outlines of its glyphs, read from font files; no renderer is involved.

Layout and every exporter measure with these functions, so a label is never wider than the layout thought. Kerning is
ignored: below 0.3 pt a label in DejaVu Sans at 5-8 pt.
"""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

from fontTools.pens.basePen import BasePen
from fontTools.ttLib import TTFont, TTLibError

from neural_flow.errors import ExportError

Weight = Literal["regular", "bold"]
Outline = tuple[tuple[Any, ...], ...]
"""Commands ``("M"|"L"|"Q"|"C"|"Z", x, y, ...)`` in units of the font size, y upwards."""

_FILES: dict[Weight, str] = {"regular": "DejaVuSans.ttf", "bold": "DejaVuSans-Bold.ttf"}
# Fonts hold them without ink, but they make a name read as another one: they are shown as code points.
_TURNING = frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))
ELLIPSIS = "…"
_BREAKS = re.compile(r"[\t-\r\x1c-\x1f\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class TextRun:
    """Consecutive characters of one text that come from one font file; ``x`` is their offset in points."""

    text: str
    file: str
    x: float
    width: float


def text_width(text: str, size: float, weight: Weight = "regular", font_file: str | None = None) -> float:
    """Return the width of ``text`` in points.

    Args:
        text: one line.
        size: font size in points.
        weight: weight of the bundled font.
        font_file: a font that is asked for every character first, or None.
    """
    return _advance(text, weight, font_file) * size


@lru_cache(maxsize=65536)
def _advance(text: str, weight: Weight, font_file: str | None) -> float:
    return sum(_font_of(char, weight, font_file).advance(char) for char in shown_text(text, weight, font_file))


def ellipsize(text: str, size: float, weight: Weight, max_width: float, font_file: str | None = None) -> str:
    """Return ``text`` in one line; where it is wider than ``max_width`` points, its two ends round an ellipsis."""
    if _BREAKS.search(text):
        text = " ".join(text.split())
    if text_width(text, size, weight, font_file) <= max_width:
        return text
    low, high = 0, len(text)
    while low < high:
        kept = (low + high + 1) // 2
        if text_width(_middle_cut(text, kept), size, weight, font_file) <= max_width:
            low = kept
        else:
            high = kept - 1
    return _middle_cut(text, low)


def _middle_cut(text: str, kept: int) -> str:
    head = (kept + 1) // 2
    return text[:head] + ELLIPSIS + (text[len(text) - (kept - head) :] if kept > head else "")


def has_all_glyphs(text: str, weight: Weight = "regular", font_file: str | None = None) -> bool:
    """Return whether every character of ``text`` can be drawn from the font files."""
    return all(_has_glyph(char, weight, font_file) for char in text)


def shown_text(text: str, weight: Weight = "regular", font_file: str | None = None) -> str:
    r"""Return ``text`` with each character that no font file has written as its code point, such as ``\\u4e2d``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _has_glyph(char, weight, font_file) else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def text_runs(text: str, size: float, weight: Weight = "regular", font_file: str | None = None) -> list[TextRun]:
    """Return the runs of ``shown_text(text)`` that share one font file, from left to right."""
    runs: list[TextRun] = []
    x = 0.0
    for char in shown_text(text, weight, font_file):
        font = _font_of(char, weight, font_file)
        width = font.advance(char) * size
        if runs and runs[-1].file == font.file:
            last = runs[-1]
            runs[-1] = TextRun(last.text + char, last.file, last.x, last.width + width)
        else:
            runs.append(TextRun(char, font.file, x, width))
        x += width
    return runs


def glyph_places(text: str, weight: Weight = "regular", font_file: str | None = None) -> list[tuple[str, str, float]]:
    """Return (character, font file, offset in units of the font size) for each visible glyph of ``text``."""
    places: list[tuple[str, str, float]] = []
    x = 0.0
    for char in shown_text(text, weight, font_file):
        font = _font_of(char, weight, font_file)
        if not char.isspace():
            places.append((char, font.file, x))
        x += font.advance(char)
    return places


@lru_cache(maxsize=8192)
def glyph_outline(char: str, file: str) -> Outline:
    """Return the outline of the glyph of ``char`` in the font ``file``."""
    return _font(file).outline(char)


def has_truetype_outlines(file: str) -> bool:
    """Return whether the font ``file`` can be embedded as Type 42; fonts with PostScript outlines cannot."""
    return _font(file).has_truetype_outlines


def font_family(file: str) -> str:
    """Return the family name of the font ``file``, for viewers that have it installed."""
    return _font(file).family


def font_path(weight: Weight = "regular") -> str:
    """Return the path of the bundled font. matplotlib ships it, and is found but not imported."""
    return _bundled(weight)


@lru_cache(maxsize=4)
def _bundled(weight: Weight) -> str:
    spec = importlib.util.find_spec("matplotlib")
    if spec is None or spec.origin is None:
        raise ExportError(
            "the DejaVu fonts were looked for in the matplotlib package, which is not installed",
            hint="pip install matplotlib",
        )
    return str(Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf" / _FILES[weight])


def _font_of(char: str, weight: Weight, font_file: str | None) -> _Font:
    if font_file is not None:
        own = _font(_of_weight(os.fspath(font_file), weight))
        if own.has(char):
            return own
    return _font(_bundled(weight))


@lru_cache(maxsize=16)
def _of_weight(file: str, weight: Weight) -> str:
    """Return the bold font that lies beside ``file`` under the usual name, or ``file``."""
    path = Path(file)
    if weight == "regular":
        return file
    stem = path.stem.removesuffix("-Regular")
    bold = path.with_name(f"{stem}-Bold{path.suffix}")
    return str(bold) if bold.is_file() else file


def _has_glyph(char: str, weight: Weight, font_file: str | None) -> bool:
    return char not in _TURNING and _font_of(char, weight, font_file).has(char)


@lru_cache(maxsize=16)
def _font(file: str) -> _Font:
    return _Font(file)


class _Font:
    """One opened font file: advances and outlines by character."""

    def __init__(self, file: str) -> None:
        self.file = file
        try:
            font = TTFont(file, fontNumber=0)  # the first one of a collection
            self._names: dict[int, str] = font.getBestCmap() or {}
            self._metrics = font["hmtx"].metrics  # type: ignore[union-attr] # fontTools types tables as their base class
            self._units = float(font["head"].unitsPerEm)  # type: ignore[union-attr] # the same
            if "name" not in font:
                raise KeyError("name")
        except (OSError, TTLibError, KeyError) as cause:
            raise ExportError(
                f"the font {file} cannot be read: {cause}", hint="--font takes a .ttf, .otf or .ttc"
            ) from cause
        self._font = font
        self.has_truetype_outlines = "glyf" in font
        self._advances: dict[str, float] = {}

    @cached_property
    def family(self) -> str:
        # Reading it loads much of fontTools, and only an own font is called by its name.
        return str(self._font["name"].getBestFamilyName() or "")  # type: ignore[union-attr] # the same

    def has(self, char: str) -> bool:
        return ord(char) in self._names

    def advance(self, char: str) -> float:
        known = self._advances.get(char)
        if known is None:
            name = self._names.get(ord(char), ".notdef")
            known = self._advances[char] = self._metrics[name][0] / self._units
        return known

    def outline(self, char: str) -> Outline:
        glyphs = self._font.getGlyphSet()
        pen = _OutlinePen(glyphs, self._units)
        glyphs[self._names.get(ord(char), ".notdef")].draw(pen)
        return tuple(pen.commands)


class _OutlinePen(BasePen):
    """Collects single segments, in units of the font size."""

    def __init__(self, glyphs: Any, units: float) -> None:
        super().__init__(glyphs)
        self.commands: list[tuple[Any, ...]] = []
        self._units = units

    def _add(self, letter: str, *points: tuple[float, float]) -> None:
        self.commands.append((letter, *(round(value / self._units, 5) for point in points for value in point)))

    def _moveTo(self, pt: tuple[float, float]) -> None:  # noqa: N802 # fontTools names it
        self._add("M", pt)

    def _lineTo(self, pt: tuple[float, float]) -> None:  # noqa: N802 # fontTools names it
        self._add("L", pt)

    def _curveToOne(self, pt1: Any, pt2: Any, pt3: Any) -> None:  # noqa: N802 # fontTools names it
        self._add("C", pt1, pt2, pt3)

    def _qCurveToOne(self, pt1: Any, pt2: Any) -> None:  # noqa: N802 # fontTools names it
        self._add("Q", pt1, pt2)

    def _closePath(self) -> None:  # noqa: N802 # fontTools names it
        self._add("Z")
