"""Which values one piece of a tensor holds, in an exported graph: cats and writes into slices are made of parts."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from neural_flow.topology.op_names import op_name

MAX_PARTS = 512  # nodes looked at for one piece: a buffer written in more steps than this is taken as a whole


def nodes_in_piece(node: fx.Node) -> list[fx.Node] | None:
    """Return the nodes whose values ``node`` holds, where it is a piece of something that others were put into.

    None where it is no piece, or where the piece holds values of all that the whole does.
    """
    piece = _piece(node)
    if piece is None:
        return None
    source, dim, start, stop = piece
    found: dict[fx.Node, None] = {}
    waiting = [(source, start, stop)]
    for _ in range(MAX_PARTS):
        if not waiting:
            break
        part, low, high = waiting.pop()
        inner = _parts(part, dim)
        if inner is None:
            found[part] = None
            continue
        waiting += [
            (value, max(low, first) - offset, min(high, last) - offset)
            for value, offset, first, last in _uncovered(inner, low, high)
        ]
    return None if waiting or [*found] == [source] else [*found]


_Part = tuple[fx.Node, int, int, int]
"""A node, where its own zero lies, and the range that it fills."""


def _uncovered(parts: list[_Part], low: int, high: int) -> list[_Part]:
    """Return the parts that overlap a range; the first one lies above the others and may cover them."""
    found: list[_Part] = []
    for part in parts:
        if part[2] < high and low < part[3]:
            found.append(part)
            if part[2] <= low and high <= part[3]:
                break
    return found


def _parts(node: fx.Node, dim: int) -> list[_Part] | None:
    name = _name(node)
    rank = _rank(node)
    if name == "cat" and _dim(node, 1, rank) == dim:
        values = _nodes(node.args[0])
        return _side_by_side(values, [_size(value, dim) for value in values])
    if name == "slice_scatter" and len(node.args) > 1 and _dim(node, 2, rank) == dim and _arg(node, 5, 1) == 1:
        base, written = node.args[0], node.args[1]
        if isinstance(base, fx.Node) and isinstance(written, fx.Node):
            size = _size(base, dim)
            start, stop = _range(_arg(node, 3, 0), _arg(node, 4, None), size)
            return [(written, start, start, stop), (base, 0, 0, size)]
    return None


def _side_by_side(values: list[Any], sizes: list[int]) -> list[_Part] | None:
    if not all(isinstance(value, fx.Node) for value in values):
        return None
    parts: list[_Part] = []
    place = 0
    for value, size in zip(values, sizes, strict=True):
        parts.append((value, place, place, place + size))
        place += size
    return parts


def _piece(node: fx.Node) -> tuple[fx.Node, int, int, int] | None:
    """Return (source, dimension, start, stop) where ``node`` is a run of its source along one dimension."""
    source = node.args[0] if node.args else None
    if not isinstance(source, fx.Node):
        return None
    name = _name(node)
    if name == "slice" and _arg(node, 4, 1) == 1:
        dim = _dim(node, 1, _rank(source))
        return (source, dim, *_range(_arg(node, 2, 0), _arg(node, 3, None), _size(source, dim)))
    if name == "select":
        dim = _dim(node, 1, _rank(source))
        index = int(_arg(node, 2, 0)) % max(_size(source, dim), 1)
        return source, dim, index, index + 1
    whole = source.args[0] if source.args else None
    if name == "getitem" and _name(source).startswith("split") and isinstance(whole, fx.Node):
        dim = _dim(source, 2, _rank(whole))
        sizes = [int(value.shape[dim]) for value in source.meta["val"]]
        index = int(_arg(node, 1, 0)) % len(sizes)
        start = sum(sizes[:index])
        return whole, dim, start, start + sizes[index]
    return None


def _range(start: Any, stop: Any, size: int) -> tuple[int, int]:
    first, last, _ = slice(start, stop).indices(size)
    return first, max(first, last)


def _name(node: fx.Node) -> str:
    name = op_name(str(node.target))
    return name if node.target is not operator.getitem else "getitem"


def _arg(node: fx.Node, place: int, default: Any) -> Any:
    return node.args[place] if len(node.args) > place and node.args[place] is not None else default


def _dim(node: fx.Node, place: int, rank: int) -> int:
    return int(_arg(node, place, 0)) % max(rank, 1)


def _rank(node: fx.Node) -> int:
    value = node.meta.get("val")
    return value.dim() if isinstance(value, torch.Tensor) else 0


def _size(node: Any, dim: int) -> int:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return int(value.shape[dim]) if isinstance(value, torch.Tensor) and dim < value.dim() else 0


def _nodes(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []
