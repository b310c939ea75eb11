"""Shapes, counts and names as words of the figure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import sqrt

from neural_flow.records import Stage, TensorMeta, Topology

_POWERS = {2: "²", 3: "³"}
_FLOATS = ("float", "bfloat", "complex")


def is_floating(meta: TensorMeta) -> bool:
    """Return whether the tensor holds floating or complex numbers."""
    return meta.dtype.startswith(_FLOATS)


def batch_size(topology: Topology) -> int | None:
    """Return the size that dimension 0 of every floating model input has (none: of every integer input)."""
    leaves = [meta for stage in topology.stages if stage.kind == "input" for meta in stage.outputs]
    if _is_graph(leaves):
        return None
    rows = [meta for meta in leaves if is_floating(meta)] or leaves
    sizes = {meta.shape[0] for meta in rows if meta.shape}
    return sizes.pop() if len(sizes) == 1 else None


def _is_graph(leaves: Sequence[TensorMeta]) -> bool:
    """Return whether the inputs are a graph: values of nodes beside a sparse or square matrix over the same nodes."""
    matrices = [meta for meta in leaves if len(meta.shape) == 2]
    if any(meta.layout != "strided" for meta in matrices):
        return True
    counts = {meta.shape[0] for meta in matrices if meta.shape[0] != meta.shape[1]}
    return any(meta.shape[0] == meta.shape[1] and meta.shape[0] in counts for meta in matrices if meta.shape[0] > 2)


def sample_shape(meta: TensorMeta, batch: int | None) -> tuple[int, ...]:
    """Return the shape of one sample: without dimension 0 where that is a multiple of the batch size.

    Every size is a multiple of one: then a matrix keeps its rows, which are tokens or positions, and sequence-first
    tensors lose their second dimension.
    """
    shape = meta.shape
    if not batch or len(shape) < 2:
        return shape
    if batch == 1 and shape[0] != 1:
        if len(shape) == 3 and shape[1] == 1:
            return shape[0], shape[2]
        return shape if len(shape) == 2 else shape[1:]
    return shape[1:] if shape[0] % batch == 0 else shape


def main_tensor(stage: Stage) -> TensorMeta | None:
    """Return the output that a card speaks of: the largest floating one, else the first.

    A model output without outputs of its own speaks of what it receives.
    """
    metas = stage.outputs or (stage.inputs if stage.kind == "output" else ())
    floating = [meta for meta in metas if is_floating(meta)]
    if floating:
        return max(floating, key=lambda meta: meta.numel)
    return metas[0] if metas else None


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape as figures write it: ``16×128²``, ``3×224×192``, ``32×16³``, ``197×768``."""
    for rank in (3, 2):
        if len(shape) == rank + 1 and shape[1] > 1 and len(set(shape[1:])) == 1:
            return f"{shape[0]}×{shape[1]}{_POWERS[rank]}"
    return "×".join(map(str, shape))


def resolution(shape: tuple[int, ...]) -> int:
    """Return the side of a feature map in elements (the root of its area), 0 for what is no map."""
    if len(shape) not in (3, 4):
        return 0
    return round(sqrt(shape[-1] * shape[-2]))


def count_text(count: float) -> str:
    """Return a count with three digits at most: ``148``, ``36.9 k``, ``0.48 M``, ``1.5 B``."""
    if count < 1000:
        return f"{count:.0f}"
    for limit, factor, unit in ((1e5, 1e3, "k"), (1e9, 1e6, "M"), (1e12, 1e9, "B")):
        if count < limit:
            return f"{_three_digits(count / factor)} {unit}"
    return f"{_three_digits(count / 1e12)} T"


def _three_digits(value: float) -> str:
    text = f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
    return text.removesuffix(".0")


def value_text(value: float, unit: str) -> str:
    """Return a measured value with its unit: ``1.5 GFLOP``, ``2.3 ms``, ``4.1 MB``, ``0.031``."""
    if unit in ("s", "seconds"):
        for limit, factor, name in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
            if value < limit:
                return f"{value * factor:.3g} {name}"
        return f"{value:.3g} s"
    if unit in ("", "1"):
        return f"{value:.3g}"
    if unit == "parameters":
        return count_text(value)
    short = {"bytes": "B", "flop": "FLOP", "flops": "FLOP"}.get(unit.lower(), unit)
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{short}"
    return f"{value:.3g} {short}"


def matches(path: str, globs: Iterable[str]) -> bool:
    """Return whether ``path`` fits one of ``globs``: ``*`` stays inside one segment, ``**`` crosses dots."""
    return any(_pattern(glob).fullmatch(path) for glob in globs)


@lru_cache(maxsize=256)
def _pattern(glob: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*|\*|\?)", glob)
    words = {"**": ".*", "*": "[^.]*", "?": "[^.]"}
    return re.compile("".join(words.get(part) or re.escape(part) for part in parts))


def family(stage: Stage) -> str:
    """Return the family whose colour a card without activation has: what its ops compute, else what its name says."""
    if stage.kind in ("input", "output"):
        return "data"
    name = stage.class_name.lower() if stage.kind == "module" else stage.name.lower()
    if stage.family in ("convolution", "linear"):
        # A patch embedding is a convolution, a gate that attends may be one: there the name tells more than the op.
        return _named(name, _ROLE_MARKS) or stage.family
    return stage.family or _named(name, _FAMILY_MARKS) or "other"


def _named(name: str, marks: Sequence[tuple[str, tuple[str, ...]]]) -> str:
    return next((found for found, parts in marks if any(part in name for part in parts)), "")


_ROLE_MARKS = (("attention", ("attention", "attn")), ("embedding", ("embed",)))
# In this order: an attention norm is a norm, a convolutional attention is attention.
_FAMILY_MARKS = (
    ("normalisation", ("norm",)),
    ("attention", ("attention", "attn", "transformer", "encoderlayer", "decoderlayer")),
    ("embedding", ("embed",)),
    ("recurrent", ("lstm", "gru", "rnn", "recurrent")),
    ("convolution", ("conv",)),
    ("linear", ("linear", "mlp", "feedforward", "dense", "projection", "head", "classifier")),
)
