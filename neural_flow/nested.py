"""Flatten and rebuild any nest of tensors: tuples, lists, sets, mappings, named tuples, dataclasses, objects.

Leaves are named as users write them: ``pair[0]``, ``extra.emb``. Order: insertion order of mappings, declaration
order of fields. Non-tensor leaves are carried untouched.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

_ATOMS = (str, bytes, int, float, complex, bool, type(None), torch.Size, torch.dtype, torch.device, nn.Module)
_MAX_DEPTH = 64


def tensor_leaves(value: Any, name: str = "") -> list[tuple[str, torch.Tensor]]:
    """Return (name, tensor) for each tensor leaf of ``value``, in order; a tensor given twice is two leaves.

    Args:
        value: any nest. Objects that are no container are looked into one level deep, through their ``__dict__``.
        name: prefix of all names.
    """
    return list(_leaves(value, name, 0, frozenset()))


def _leaves(value: Any, name: str, depth: int, above: frozenset[int]) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
        return
    if isinstance(value, _ATOMS) or depth > _MAX_DEPTH or id(value) in above:
        return
    inside = above | {id(value)}
    for key, child, is_last in _children(value):
        if not is_last or isinstance(child, torch.Tensor):
            yield from _leaves(child, name + key, depth + 1, inside)


def _children(value: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield (name suffix, child, whether only a tensor counts there)."""
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield f".{key}", child, False
    elif _is_namedtuple(value):
        for field in value._fields:
            yield f".{field}", getattr(value, field), False
    elif isinstance(value, list | tuple | set | frozenset):
        for index, child in enumerate(value):
            yield f"[{index}]", child, False
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            if hasattr(value, field.name):
                yield f".{field.name}", getattr(value, field.name), False
    elif not isinstance(value, type) and not callable(value):
        for key, child in vars(value).items() if hasattr(value, "__dict__") else ():
            yield f".{key}", child, True


def map_tensors(value: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    """Return ``value`` with every tensor leaf replaced by ``function(leaf)``.

    Containers are rebuilt, never changed; one whose leaves all stay the same object is returned as it is.
    """
    return _map(value, function, 0, frozenset())


def _map(value: Any, function: Callable[[torch.Tensor], Any], depth: int, above: frozenset[int]) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, _ATOMS) or depth > _MAX_DEPTH or id(value) in above:
        return value
    inside = above | {id(value)}
    old = list(_children(value))
    new = [
        _map(child, function, depth + 1, inside) if not is_last or isinstance(child, torch.Tensor) else child
        for _, child, is_last in old
    ]
    if all(after is before for after, (_, before, _) in zip(new, old, strict=True)):
        return value
    return _rebuild(value, [key for key, _, _ in old], new)


def _rebuild(value: Any, keys: list[str], children: list[Any]) -> Any:
    if _is_namedtuple(value):
        return type(value)(*children)
    if isinstance(value, list | tuple | set | frozenset):
        if type(value) in (list, tuple, set, frozenset):
            return type(value)(children)
        rebuilt = copy.copy(value)
        if isinstance(rebuilt, list):
            rebuilt[:] = children
            return rebuilt
        return type(value)(children)
    rebuilt = copy.copy(value)
    if isinstance(value, Mapping) and isinstance(rebuilt, Mapping):
        for key, child in zip(value, children, strict=True):
            rebuilt[key] = child  # type: ignore[index]
        return rebuilt
    for key, child in zip(keys, children, strict=True):
        object.__setattr__(rebuilt, key[1:], child)  # frozen dataclasses refuse setattr
    return rebuilt


def _is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")
