"""Rings: which joins are drawn, what is written in them, and which of them are one."""

from __future__ import annotations

from neural_flow.diagram._sketch import Key, Sketch

SYMBOLS = {
    "cat": "concat", "concat": "concat", "concatenate": "concat", "stack": "concat", "hstack": "concat",
    "vstack": "concat", "dstack": "concat", "column_stack": "concat", "block_diag": "concat",
    "add": "add", "addcmul": "add", "addcdiv": "add", "lerp": "add", "sum": "add", "index_add": "add",
    "scatter_add": "add", "_foreach_add": "add",
    "mul": "mul", "multiply": "mul", "logical_and": "mul",
    "sub": "sub", "subtract": "sub", "div": "div", "divide": "div", "true_divide": "div",
    "matmul": "matmul", "mm": "matmul", "bmm": "matmul", "mv": "matmul", "dot": "matmul", "einsum": "matmul",
    "baddbmm": "matmul", "addmm": "matmul", "tensordot": "matmul", "linear": "matmul", "bilinear": "matmul",
    "outer": "matmul", "inner": "matmul", "vecdot": "matmul",
    "scaled_dot_product_attention": "attention", "multi_head_attention_forward": "attention",
    "flex_attention": "attention",
    "mean": "mean", "maximum": "max", "max": "max", "minimum": "min", "min": "min", "where": "where",
}  # fmt: skip
STRENGTH = ("concat", "attention", "matmul", "add", "mul", "sub", "div")
"""Which of several merged joins names the ring: the one that people would draw."""


def symbol_of(target: str) -> str:
    """Return what is written in the ring of an op: a known symbol, else the op's own name."""
    return SYMBOLS.get(target, target)


def stronger(first: str, second: str) -> str:
    """Return the symbol that names a ring made of two joins; the later one where neither is known."""
    ranks = [STRENGTH.index(symbol) if symbol in STRENGTH else len(STRENGTH) for symbol in (first, second)]
    return first if ranks[0] < ranks[1] else second


def hide_plumbing(sketch: Sketch) -> None:
    """Remove lines that carry no signal, unless a card would float loose without them."""
    loose = {key for key in sketch.items if _would_float(sketch, key)}
    for key in sketch.items:
        for target in [target for target, flow in sketch.out[key].items() if flow.plumbing]:
            if key not in loose and target not in loose:
                sketch.unlink(key, target)


def _would_float(sketch: Sketch, key: Key) -> bool:
    """Return whether a card has lines and all of them are plumbing; an input may then vanish with them."""
    stage = sketch.items[key].stage
    lines = [*sketch.into[key].values(), *sketch.out[key].values()]
    return stage is not None and stage.kind != "input" and bool(lines) and all(flow.plumbing for flow in lines)


def drop_idle_joins(sketch: Sketch) -> None:
    """Remove joins that nobody reads, and lead on what passes alone through a join.

    What the next member of a repeat reads stays, though nothing is drawn behind it.
    """
    for key in reversed(sketch.keys_by_time("join")):
        if not sketch.out[key] and not sketch.items[key].is_handed_on:
            sketch.remove(key)
    for key in sketch.keys_by_time("join"):
        if not sketch.into[key] or (len(sketch.into[key]) == 1 and not sketch.items[key].was_many):
            sketch.splice(key)


def merge_rings(sketch: Sketch) -> None:
    """Make one ring of joins in one scope with the same source cards, if one reads the other or they do the same."""
    places = {key: place for place, key in enumerate(sketch.items) if key[0] == "stage"}
    reach: dict[Key, int] = {}
    kept: dict[tuple[int, int | None], list[Key]] = {}
    for key in sketch.keys_by_time("join"):
        bits = 0
        for source in sketch.into[key]:
            bits |= reach.get(source, 0) if source[0] == "join" else 1 << places[source]
        reach[key] = bits
        item = sketch.items[key]
        rings = kept.setdefault((bits, item.scope), [])
        for ring in rings:
            if key in sketch.out[ring] or sketch.items[ring].symbol == item.symbol:
                sketch.items[ring].symbol = stronger(sketch.items[ring].symbol, item.symbol)
                sketch.items[ring].was_many = sketch.items[ring].was_many or item.was_many
                sketch.contract((key,), ring)
                break
        else:
            rings.append(key)
