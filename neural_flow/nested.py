"""Flatten and rebuild any nest of tensors: tuples, lists, sets, mappings, named tuples, dataclasses, objects.

Leaves are named as users write them: ``pair[0]``, ``extra.emb``. Order: insertion order of mappings, declaration
order of fields. Non-tensor leaves are carried untouched.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
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


def children(value: Any) -> list[tuple[str, Any]]:
    """Return (name suffix, child) for each part of a container; of another object, only its tensors."""
    return [
        (name, child) for name, child, is_last in _children(value) if not is_last or isinstance(child, torch.Tensor)
    ]


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


def every_tensor(value: Any) -> list[torch.Tensor]:
    """Return every tensor that ``copy_nest`` would meet: leaves, and what objects hold deeper inside."""
    found: list[torch.Tensor] = []
    seen: dict[int, Any] = {}
    waiting = [(value, 0)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, torch.Tensor):
            found.append(item)
            continue
        if isinstance(item, (*_ATOMS, type)) or callable(item) or depth > _MAX_DEPTH or id(item) in seen:
            continue
        seen[id(item)] = item
        is_container = isinstance(item, list | tuple | dict | set | frozenset | deque)
        children = item if is_container and not isinstance(item, dict) else [child for _, child in _fields(item)]
        waiting += [(child, depth + (1 if is_container else 8)) for child in children]
    return found


def copy_nest(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a structural copy of ``value`` with every tensor replaced by ``function(tensor)``.

    Unlike ``map_tensors`` every container is a new object, so that appending to it or writing a key does not reach
    the original; one container met twice is one container in the copy. Objects are copied where they hold tensors or
    containers; modules, functions, and what cannot be copied stay the same objects.
    """
    return _copy(value, function, {}, 0)


def _copy(value: Any, function: Callable[[torch.Tensor], torch.Tensor], memo: dict[int, Any], depth: int) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (*_ATOMS, type)) or callable(value) or depth > _MAX_DEPTH:
        return value
    if id(value) in memo:
        return memo[id(value)][1]
    kind = type(value)
    copied: Any
    if kind in (list, dict, set, deque):
        copied = deque(maxlen=value.maxlen) if isinstance(value, deque) else kind()
        memo[id(value)] = (value, copied)
        if isinstance(value, dict):
            copied.update({key: _copy(item, function, memo, depth + 1) for key, item in value.items()})
        else:
            items = [_copy(item, function, memo, depth + 1) for item in value]
            copied.update(items) if kind is set else copied.extend(items)
        return copied
    if isinstance(value, tuple | frozenset):
        items = [_copy(item, function, memo, depth + 1) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return _rebuild(value, [], items)
    return _copy_object(value, function, memo, depth)


def _copy_object(value: Any, function: Callable[[torch.Tensor], torch.Tensor], memo: dict[int, Any], depth: int) -> Any:
    children = list(_fields(value))
    if all(isinstance(child, (*_ATOMS, type)) or callable(child) for _, child in children):
        return value
    try:
        copied = copy.copy(value)
    except Exception:  # locks, handles, whatever: such an object is handed to the model as it is
        return value
    if copied is value:
        return value
    memo[id(value)] = (value, copied)
    for key, child in children:
        new = _copy(child, function, memo, depth + 8)  # objects end the walk soon: they may lead anywhere
        if new is not child:
            _set_field(copied, key, new)
    return copied


def _fields(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (key, child) of an object: keys are attribute names, or (key,) for the items of a mapping."""
    if isinstance(value, Mapping):
        for key, child in tuple(value.items()):
            yield (key,), child
    elif isinstance(value, list):
        for index, child in enumerate(tuple(value)):
            yield (index,), child
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if hasattr(value, field.name) and field.name not in getattr(value, "__dict__", ()):
                yield field.name, getattr(value, field.name)
    yield from tuple(getattr(value, "__dict__", {}).items())


def _set_field(value: Any, key: Any, child: Any) -> None:
    if isinstance(key, tuple):
        value[key[0]] = child
    elif key in getattr(value, "__dict__", ()):
        vars(value)[key] = child
    else:
        object.__setattr__(value, key, child)


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
