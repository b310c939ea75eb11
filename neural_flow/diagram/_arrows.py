"""Order, kinds and texts of the arrows of a finished sketch."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from math import prod

from neural_flow.diagram._lineage import arrow_kinds
from neural_flow.diagram._sketch import Key, Sketch
from neural_flow.drawing import Arrow
from neural_flow.records import Flow, TensorMeta


def order_items(sketch: Sketch) -> list[Key]:
    """Return the items in execution order and turn every link against it into a return arrow.

    Only repeats that are drawn once can make a cycle; it is cut where call order says that a new turn begins.
    """
    waiting = {key: len(sketch.into[key]) for key in sketch.items}
    ready = [(sketch.items[key].first_time, key) for key, count in waiting.items() if not count]
    heapq.heapify(ready)
    order: list[Key] = []
    while len(order) < len(sketch.items):
        if not ready:
            key = _cycle_entry(sketch, waiting)
            for source in [source for source in sketch.into[key] if source in waiting]:
                sketch.unlink(source, key)
                sketch.returns[source, key] = None
            waiting[key] = 0
            heapq.heappush(ready, (sketch.items[key].first_time, key))
        _, key = heapq.heappop(ready)
        del waiting[key]
        order.append(key)
        for target in sketch.out[key]:
            waiting[target] -= 1
            if not waiting[target]:
                heapq.heappush(ready, (sketch.items[target].first_time, target))
    return order


def _cycle_entry(sketch: Sketch, waiting: Mapping[Key, int]) -> Key:
    """Return the earliest waiting item that lies on a cycle, cards before rings."""
    left = dict.fromkeys(waiting)
    readers = {key: sum(target in left for target in sketch.out[key]) for key in left}
    idle = [key for key, count in readers.items() if not count]
    while idle:  # what no waiting item reads is behind the cycles, not on one
        key = idle.pop()
        del left[key]
        for source in sketch.into[key]:
            if source in left:
                readers[source] -= 1
                if not readers[source]:
                    idle.append(source)
    return min(left, key=lambda key: (sketch.items[key].first_time, key))


def draw_arrows(sketch: Sketch, order: Sequence[Key]) -> tuple[Arrow, ...]:
    """Return the arrows by node number: forward ones by target and source, then the returns."""
    places = {key: place for place, key in enumerate(order)}
    links = [
        (places[source], place, flow)
        for place, key in enumerate(order)
        for source, flow in sorted(sketch.into[key].items(), key=lambda pair: places[pair[0]])
    ]
    is_card = [key[0] == "stage" for key in order]
    kinds = arrow_kinds(
        is_card,
        [
            (source, target, flow.plumbing or flow.is_removed, _num_elements(flow))  # neither can be the trunk
            for source, target, flow in links
        ],
    )
    arrows = [
        Arrow(
            arrow_id=index,
            source=source,
            target=target,
            kind=kinds[index],
            inferred=flow.inferred,
            opaque=flow.opaque,
            text=arrow_text(flow),
            title=_title(flow),
        )
        for index, (source, target, flow) in enumerate(links)
    ]
    for source, target in sketch.returns:
        if source in places and target in places:
            arrows.append(Arrow(arrow_id=len(arrows), source=places[source], target=places[target], kind="return"))
    return tuple(arrows)


def _num_elements(flow: Flow) -> int:
    return sum(meta.numel for meta in flow.tensors)


# -- what happens on the way -----------------------------------------------------------------------------------------


def arrow_text(flow: Flow) -> str:
    """Return what resizes the value on the way, such as ``pool ÷2``; empty where nothing worth a word does.

    The factor comes from the sizes alone, so it is never wrong: it is left out where they do not say it.
    """
    if flow.marks:
        return " ".join(_mark_text(mark.text, flow) for mark in flow.marks)
    words = [(name, word) for name in flow.through if (word := _word(name))]
    if not words:
        return ""
    before, after = _spatial_sizes(words[0][0], flow)
    if before is None or after is None:
        return words[0][1] if words[0][1] != "up" else ""
    if before == after:
        return ""
    word = words[0][1]
    if word == "up" and prod(after) < prod(before):
        word = "down"
    if word == "pool" and set(after) == {1}:
        return "global pool"
    factor = _factor(before, after)
    return f"{word} {factor}" if factor else word


def _word(name: str) -> str:
    if "unpool" in name:
        return "unpool"
    if "pool" in name:
        return "pool"
    if name.startswith(("interpolate", "upsample", "pixel_shuffle")):
        return "up"
    if name.startswith("pixel_unshuffle"):
        return "down"
    return "up-conv" if name.startswith("conv_transpose") else ""


def _mark_text(text: str, flow: Flow) -> str:
    if any(sign in text for sign in "×÷"):
        return text
    before, after = _spatial_sizes("", flow)
    factor = _factor(before, after) if before is not None and after is not None and before != after else ""
    return f"{text} {factor}".strip()


def _spatial_sizes(name: str, flow: Flow) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """Return the spatial sizes at both ends, None where the shapes do not show them."""
    if not flow.tensors or not flow.arrived:
        return None, None
    start, end = flow.tensors[0], flow.arrived[0]
    dims = next((int(digit) for digit in "123" if f"{digit}d" in name), max(len(start.shape) - 2, 0))
    if not dims or len(start.shape) <= dims:
        return None, None
    before = start.shape[-dims:]
    if len(end.shape) == len(start.shape):
        return before, end.shape[-dims:]
    is_global = "pool" in name and end.numel == prod(start.shape[:-dims])
    return (before, (1,) * dims) if is_global else (None, None)


def _factor(before: Sequence[int], after: Sequence[int]) -> str:
    """Return ``÷2`` or ``×2`` where every spatial size changes by this factor (rounded as torch rounds), else empty."""
    if not all((*before, *after)):
        return ""
    for sign, large, small in (("÷", before, after), ("×", after, before)):
        factors = {round(big / little) for big, little in zip(large, small, strict=True)}
        if len(factors) == 1 and (factor := factors.pop()) > 1:
            is_exact = all(
                big == factor * little or (sign == "÷" and little in (big // factor, -(-big // factor)))
                for big, little in zip(large, small, strict=True)
            )
            return f"{sign}{factor}" if is_exact else ""
    return ""


def _title(flow: Flow) -> str:
    parts = [_shapes(flow.tensors)]
    if flow.through:
        parts.append("through " + ", ".join(flow.through))
    if flow.marks:
        parts.append("by " + ", ".join(mark.path for mark in flow.marks))
    if flow.tensors and flow.arrived and flow.tensors[0].shape != flow.arrived[0].shape:
        parts.append("arrives as " + _shapes(flow.arrived))
    if flow.opaque:
        parts.append("passes code that cannot be seen into")
    if flow.inferred:
        parts.append("not observed: what ran before")
    return "; ".join(part for part in parts if part)


def _shapes(tensors: Sequence[TensorMeta]) -> str:
    return ", ".join(f"{meta.dtype} [{', '.join(map(str, meta.shape))}]" for meta in tensors)
