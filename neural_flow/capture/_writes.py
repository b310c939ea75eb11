"""Which tensors an intercepted call read, wrote and made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import CellType, FunctionType
from typing import Any, NamedTuple

import torch

from neural_flow.capture._functions import is_in_place
from neural_flow.module_calls import ATOMS

Tensors = list[torch.Tensor]

_MAX_JOINED = 64  # longer lists are taken as a whole
_SEQUENCES = (list, tuple)
_BASIC_INDEX = (int, slice, type(None), type(Ellipsis))


class OpCall(NamedTuple):
    """One call of a tensor function that has returned.

    ``name`` is its bare name, ``leaves`` are all tensors among its arguments, ``written`` those that it wrote.
    """

    func: Callable[..., Any]
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: Tensors
    written: Tensors
    result: Any


def collect_tensors(items: Iterable[Any], found: Tensors) -> Tensors:
    """Append every tensor among the arguments of a torch function to ``found``, in order, and return it."""
    for item in items:
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif type(item) in ATOMS:
            continue
        elif isinstance(item, _SEQUENCES):
            if not ATOMS.issuperset(map(type, item)):  # sizes and strides: by far the most
                collect_tensors(item, found)
        elif isinstance(item, dict):
            collect_tensors(item.values(), found)
        elif type(item) is FunctionType and item.__closure__:  # the branches of a conditional read what they close over
            collect_tensors([cell.cell_contents for cell in item.__closure__ if _is_filled(cell)], found)
    return found


def _is_filled(cell: CellType) -> bool:
    try:
        return isinstance(cell.cell_contents, torch.Tensor)
    except ValueError:  # a variable that has no value yet
        return False


def is_among(tensor: torch.Tensor, tensors: Tensors) -> bool:
    """Return whether this very object is one of ``tensors``."""
    return any(tensor is other for other in tensors)


def versions_of(tensors: Tensors) -> list[int] | None:
    """Return the version counters of ``tensors``, or None where one of them has none (inference tensors)."""
    try:
        return [tensor._version for tensor in tensors]
    except RuntimeError:
        return None


def written_by_name(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: Tensors, versions: list[int] | None
) -> Tensors:
    """Return which arguments a torch function has written.

    Version counters tell whether anything was, names which: a view and its base share one counter.

    Args:
        name: bare name of the function.
        args: its positional arguments.
        kwargs: its keyword arguments.
        leaves: all tensors among them.
        versions: their version counters before the call; None where there are none, then names alone decide.
    """
    if name == "__set__":
        return [args[0]]
    changed = leaves
    # some functions that read another tensor (map_) write without counting
    if versions is not None and not (len(leaves) > 1 and is_in_place(name)):
        changed = [leaf for leaf, old in zip(leaves, versions, strict=True) if leaf._version != old]
        if not changed:
            return []
    if kwargs.get("out") is not None:
        targets = collect_tensors((kwargs["out"],), [])
    elif is_in_place(name):
        targets = collect_tensors(args[:1] or kwargs.values(), [])
    elif versions is None:
        targets = collect_tensors(args[:1], []) if kwargs.get("inplace") is True else []
    else:
        targets = changed
    unique: Tensors = []
    for target in targets:
        if is_among(target, changed) and not is_among(target, unique):
            unique.append(target)
    return unique


def assigned_part(args: tuple[Any, ...]) -> torch.Tensor | None:
    """Return the view that ``target[index] = value`` has written, or None where the index gathers positions."""
    target, index = args[0], args[1]
    for item in index if isinstance(index, tuple) else (index,):
        if isinstance(item, torch.Tensor):
            if item.ndim or item.dtype is torch.bool:
                return None
        elif isinstance(item, bool) or not isinstance(item, _BASIC_INDEX):
            return None
    try:
        return target[index]
    except Exception:  # an index that only this tensor's own class understands
        return None


def parts_along(call: OpCall, made: torch.Tensor) -> tuple[int, list[int]] | None:
    """Return the dimension along which a cat or stack laid its arguments, and the size of each; None if unknown."""
    leaves, rank = call.leaves, made.dim()
    if not 1 < len(leaves) <= _MAX_JOINED or not rank or made.layout is not torch.strided:
        return None
    dim = call.args[1] if len(call.args) > 1 else call.kwargs.get("dim", call.kwargs.get("axis", 0))
    if call.name == "hstack":
        dim = 0 if rank == 1 else 1
    elif call.name in ("vstack", "row_stack"):
        dim = 0
    if type(dim) is not int:
        return None
    dim %= rank
    is_inside = [leaf.dim() == rank for leaf in leaves]  # else it is one row, or an old empty placeholder
    sizes = [
        int(leaf.shape[dim]) if inside else min(leaf.numel(), 1) for leaf, inside in zip(leaves, is_inside, strict=True)
    ]
    return (dim, sizes) if sum(sizes) == made.shape[dim] else None


def is_array(value: Any) -> bool:
    """Return whether ``value`` is a NumPy array with at least one axis."""
    return type(value).__module__ == "numpy" and getattr(value, "ndim", 0) > 0


def elementwise_calls(call: OpCall) -> list[OpCall] | None:
    """Return a ``_foreach_`` call as one call per element of its lists; None where the lists do not match."""
    lists = [arg for arg in call.args if isinstance(arg, list | tuple) and collect_tensors(arg[:1], [])]
    size = len(lists[0]) if lists else 0
    results = call.result if isinstance(call.result, list | tuple) else [call.result] * size
    if any(len(one) != size for one in lists) or len(results) != size:
        return None
    calls: list[OpCall] = []
    for index in range(size):
        args = tuple([arg[index] if any(arg is one for one in lists) else arg for arg in call.args])
        leaves = collect_tensors((*args, *call.kwargs.values()), [])
        written = [leaf for leaf in leaves[:1] if is_among(leaf, call.written)]
        calls.append(call._replace(args=args, leaves=leaves, written=written, result=results[index]))
    return calls
