"""What the legend explains: only what is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from neural_flow.drawing import Image, Mark
from neural_flow.records import Array, Summary
from neural_flow.scene.cards import change_color
from neural_flow.scene.connectors import RING_WORDS
from neural_flow.scene.faces import attention_of, fill_of
from neural_flow.scene.look import Look, unit_of
from neural_flow.scene.options import CHANGES
from neural_flow.scene.words import family, value_text
from neural_flow.summaries._planes import flatness, palette, two_tone
from neural_flow.summaries.feature_maps import constant_planes
from neural_flow.summaries.segmentation import class_colors
from neural_flow.summaries.vector import has_bars
from neural_flow.theme import mix, rgb

_KIND_WORDS = {"primary": "trunk", "skip": "skip", "merge": "merge", "branch": "branch", "return": "next turn"}
_MAX_CLASSES = 6


@dataclass(frozen=True, slots=True)
class Entry:
    """One row: a sample and its words; a note is words alone."""

    kind: Literal[
        "arrow", "inferred", "opaque", "ring", "residual", "swatch", "dead", "constant", "truth", "infinite", "badge",
        "note",
    ]  # fmt: skip
    what: str
    words: str


@dataclass(frozen=True, slots=True, eq=False)
class Bar:
    """A colour bar: what it scales and what stands at its ends."""

    palette: Array
    caption: str
    low: str
    high: str


def entries_of(look: Look) -> list[Entry]:
    """Return the rows: kinds of arrows and rings that are there, families of cards without picture, marks."""
    return [*_line_entries(look), *_card_entries(look)]


def _line_entries(look: Look) -> list[Entry]:
    arrows = [arrow for arrow in look.diagram.arrows if arrow.arrow_id not in look.arrow_changes]  # these have a colour
    entries = [
        Entry("arrow", kind, words)
        for kind, words in _KIND_WORDS.items()
        if any(arrow.kind == kind and not arrow.inferred for arrow in arrows)
    ]
    symbols = dict.fromkeys(node.symbol for node in look.diagram.nodes if node.role == "ring")
    entries += [Entry("ring", symbol, RING_WORDS.get(symbol, symbol or "join")) for symbol in symbols]
    has_residual = any(node.has_residual for node in look.diagram.nodes)
    entries += [Entry("residual", "", "residual inside")] if has_residual else []
    entries += [Entry("inferred", "", "inferred")] if any(arrow.inferred for arrow in arrows) else []
    entries += [Entry("opaque", "", "opaque code")] if any(arrow.opaque for arrow in arrows) else []
    # A chain explains itself.
    return [] if [entry.what for entry in entries] == ["primary"] else entries


def _card_entries(look: Look) -> list[Entry]:
    stages = [stage for node in look.diagram.nodes if (stage := look.stage_of(node)) is not None]
    empty = [stage for stage in stages if look.summary_of(stage) is None]
    families = {family(stage): fill_of(stage, look) for stage in empty if family(stage) != "data"}
    entries = [Entry("swatch", color, name) for name, color in families.items()] if len(families) > 1 else []
    found = {change for node in look.diagram.nodes if (change := look.change_of(node)) is not None}
    found |= set(look.arrow_changes.values())
    entries += [Entry("swatch", change_color(change, look.theme), change) for change in CHANGES if change in found]
    shown = [summary for stage in stages if (summary := look.summary_of(stage)) is not None]
    return [*entries, *_class_entries(shown, look), *_picture_entries(shown, look), *_notes(look)]


def _class_entries(shown: Sequence[Summary], look: Look) -> list[Entry]:
    """Return the colours of the classes that are painted over pictures, by name where names are known."""
    names: dict[int, str] = {}
    for summary in shown:
        present = summary.facts.get("present", ())
        known = summary.facts.get("names", ())
        for place, number in enumerate(present):
            names.setdefault(number, known[place] if place < len(known) else f"class {number}")
    colors = class_colors(look.style)
    rows = [
        Entry("swatch", "#{:02X}{:02X}{:02X}".format(*colors[number].tolist()), names[number])
        for number in sorted(names)
    ]
    num_more = len(rows) - _MAX_CLASSES
    return rows if num_more <= 0 else [*rows[:_MAX_CLASSES], Entry("note", "", f"and {num_more} more classes")]


def _picture_entries(shown: Sequence[Summary], look: Look) -> list[Entry]:
    """Return what marks in pictures mean: dead and constant channels, truth values, what is not finite."""
    entries: list[Entry] = []
    if any(any(summary.facts.get("dead", ())) for summary in shown):
        entries.append(Entry("dead", "", "dead channel"))
    if any(any(constant_planes(summary)) for summary in shown):
        entries.append(Entry("constant", "", "constant channel"))
    matrices = [summary for summary in shown if summary.kind in ("token_map", "vector") and not has_bars(summary)]
    flat = {flatness(summary) for summary in matrices}
    entries += [Entry("dead", "", "all zero")] if "dead" in flat else []
    entries += [Entry("constant", "", "all equal")] if "constant" in flat else []
    if any(summary.kind == "mask" for summary in shown):
        entries.append(Entry("truth", "", "true, false"))
    if any(summary.facts.get("num_nan") for summary in shown):
        entries.append(Entry("swatch", look.theme.not_a_number, "NaN"))
    if any(summary.facts.get("num_inf") for summary in shown):
        entries.append(Entry("infinite", "", "+∞, −∞"))
    if any(summary.facts.get("num_nan") or summary.facts.get("num_inf") for summary in shown):
        entries.append(Entry("badge", "", "holds NaN or ∞"))
    return entries


def _notes(look: Look) -> list[Entry]:
    """Return what written or painted numbers depend on, such as the loss behind gradients."""
    return [
        Entry("note", "", f"{found.caption or found.name} {found.detail}")
        for found in look.measurements
        if found.detail and (found.name in look.options.numbers or found is look.measured)
    ]


def bars_of(look: Look, drawn: Sequence[Mark], cost_top: float) -> list[Bar]:
    """Return the colour bars: one for each map that pictures are painted with, one for measured values."""
    painted = {id(mark.palette) for mark in drawn if isinstance(mark, Image) and mark.palette is not None}
    scope = _scope(look)
    bars: list[Bar] = []
    if id(palette(look.style, False)) in painted:
        bars.append(Bar(look.style.sequential, f"activation ({scope})", "p1", "p99"))
    if id(palette(look.style, True)) in painted:
        bars.append(Bar(look.style.diverging, f"signed activation ({scope})", "−p99", "p99"))
    stages = [stage for node in look.diagram.nodes if (stage := look.stage_of(node)) is not None]
    kinds = {summary.kind for stage in stages if (summary := look.summary_of(stage)) is not None}
    if "complex" in kinds:
        bars.append(Bar(look.style.cyclic, "phase (lighter: larger)", "−π", "π"))
    if "sparse" in kinds:
        bars.append(Bar(two_tone(look.style.paper, look.style.ink), "stored elements", "none", "most"))
    attention = [found for stage in stages if (found := attention_of(stage, look)) is not None]
    if attention:
        is_even = any(found.facts.get("is_even") for found in attention)
        end = "max (≥ 2 × even)" if is_even else "max"
        bars.append(Bar(look.style.sequential, "attention (scaled per head)", "0", end))
    if look.options.color_by and cost_top > 0:
        bars.append(Bar(cost_palette(look), _measured_words(look), "0", value_text(cost_top, unit_of(look))))
    return bars


def _shown_stages(look: Look) -> list[int]:
    return [node.stage_id for node in look.diagram.nodes if node.stage_id is not None]


def _measured_words(look: Look) -> str:
    """Return what cards are coloured by, in words."""
    if look.options.color_by == "params":
        return "parameters"
    return (look.measured.caption or look.measured.name) if look.measured is not None else ""


def _scope(look: Look) -> str:
    """Return what shares one scale: maps may be scaled by channel, matrices and vectors have one scale each."""
    if look.options.norm != "channel":
        return {"stage": "scaled per stage", "global": "one scale"}[look.options.norm]
    shown = [look.capture.summaries[found] for found in _shown_stages(look) if found in look.capture.summaries]
    has_planes = {"planes" in summary.arrays for summary in shown if "is_signed" in summary.facts}
    if has_planes == {False}:
        return "scaled per stage"
    return "scaled per channel" if has_planes == {True} else "scaled per picture"


def cost_palette(look: Look) -> Array:
    """Return the uint8 ``[256, 3]`` colours of measured values, from almost paper to the branch colour."""
    table = [rgb(mix(look.theme.branch, look.theme.paper, 0.04 + 0.76 * index / 255)) for index in range(256)]
    return np.array(table, np.uint8)
