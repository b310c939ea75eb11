"""Hold a topology that was read from a file to the types of its records, and to what its ids refer to."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from neural_flow.records import Fold, Topology


def check_types(record: Any, name: str) -> None:
    """Refuse a record with a value of another type than declared, at any depth.

    Args:
        record: a dataclass of records, tuples, literals, unions and plain values.
        name: what the record is called in the message.

    Raises:
        TypeError: names the field and what it holds.
    """
    for field, hint in _hints(type(record)).items():
        _check(getattr(record, field), hint, f"{name}.{field}")


def check_references(topology: Topology) -> None:
    """Refuse ids that stand for nothing, stages out of order, and arrows that lead in a circle.

    Raises:
        ValueError: names what is wrong.
    """
    stages, joins = range(len(topology.stages)), {join.join_id for join in topology.joins}
    _demand([stage.stage_id for stage in topology.stages] == [*stages], "stages are numbered in their order")
    _demand(len(joins) == len(topology.joins), "no two joins have one number")
    places = {("stage", number) for number in stages} | {("join", number) for number in joins}
    for edge in topology.edges:
        _demand(edge.source in stages and edge.target in stages, f"edge n{edge.source} → n{edge.target} has both ends")
    for flow in topology.flows:
        _demand({flow.source, flow.target} <= places, f"flow {flow.source} → {flow.target} has both ends")
    for join in topology.joins:
        _demand({*join.sources} <= places, f"join {join.join_id} has all of its sources")
    for group in topology.groups:
        _demand({*group.stage_ids} <= {*stages}, f"group {group.module!r} has all of its stages")
    _demand({*topology.residual_stage_ids} <= {*stages}, "residual stages are stages")
    for fold in topology.folds:
        _demand(_is_fold(fold, topology), f"fold {fold.fold_id} has all of its members")
    _demand(_is_acyclic([((None, edge.source), (None, edge.target)) for edge in topology.edges]), "edges lead onward")
    _demand(_is_acyclic([(flow.source, flow.target) for flow in topology.flows]), "flows lead onward")
    sizes = [size for stage in topology.stages for meta in (*stage.inputs, *stage.outputs) for size in meta.shape]
    _demand(all(size >= 0 for size in sizes), "no size is negative")


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"expected that {what}")


def _is_fold(fold: Fold, topology: Topology) -> bool:
    stages, folds = range(len(topology.stages)), range(fold.fold_id)
    return (
        0 <= fold.representative < len(fold.members)
        and all(member and all(found in stages for found in member) for member in fold.members)
        and (fold.parent_id is None or fold.parent_id in folds)
        and fold.count > 0
    )


def _is_acyclic(pairs: list[tuple[Any, Any]]) -> bool:
    targets: dict[Any, set[Any]] = {}
    num_sources: dict[Any, int] = {}
    for source, target in {*pairs}:
        targets.setdefault(source, set()).add(target)
        num_sources[target] = num_sources.get(target, 0) + 1
    ready = [source for source in targets if source not in num_sources]
    while ready:
        for target in targets.get(ready.pop(), ()):
            num_sources[target] -= 1
            if not num_sources[target]:
                del num_sources[target]
                ready.append(target)
    return not num_sources


@lru_cache(maxsize=64)
def _hints(kind: type) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)


def _check(value: Any, hint: Any, name: str) -> None:
    if typing.get_origin(hint) is tuple and isinstance(value, tuple):
        for index, (item, item_hint) in enumerate(_items(value, typing.get_args(hint), name)):
            _check(item, item_hint, f"{name}[{index}]")
    elif dataclasses.is_dataclass(value) and type(value) in _choices(hint):
        check_types(value, name)
    elif not _fits(value, hint):
        raise TypeError(f"{name} is {value!r}")


def _items(value: tuple[Any, ...], hints: tuple[Any, ...], name: str) -> Iterator[tuple[Any, Any]]:
    if hints[-1] is Ellipsis:
        return ((item, hints[0]) for item in value)
    if len(hints) != len(value):
        raise TypeError(f"{name} is {value!r}")
    return zip(value, hints, strict=True)


def _choices(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    if isinstance(hint, types.UnionType):
        return any(_fits(value, choice) for choice in _choices(hint))
    if typing.get_origin(hint) is typing.Literal:
        return any(value == choice and type(value) is type(choice) for choice in typing.get_args(hint))
    return type(value) is hint
