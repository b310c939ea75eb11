"""The lines of a function that makes inputs which no option can spell: dicts, lists, numbers beside tensors."""

from __future__ import annotations

import inspect
import itertools
import time
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from neural_flow.models.input_text import parse_input
from neural_flow.models.suggest import likely_texts, required_parameters
from neural_flow.models.trial import failure_with, runs_with
from neural_flow.models.values import draw_values

_SECONDS = 10.0
_MAX_KEYS = 12
_MAX_TEXTS = 6
_MAX_TRIALS = 60
_PLAIN: Mapping[Any, tuple[str, Any]] = {
    int: ("1", 1),
    float: ("1.0", 1.0),
    bool: ("False", False),
    str: ("'text'", "text"),
}


@dataclass(frozen=True, slots=True)
class _Value:
    """A value, and Python that makes one like it."""

    code: str
    value: Any


class _AskedKeys(dict[str, Any]):
    """Knows which keys it was asked for and did not have."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        super().__init__(known)
        self.asked: list[str] = []

    def __missing__(self, key: str) -> Any:
        self.asked.append(key)
        raise KeyError(key)


@dataclass(frozen=True, slots=True)
class Sketch:
    """The lines of a function ``make_inputs``; what forward raises with what it returns, None where it runs."""

    code: str
    error: Exception | None


def needs_function(model: nn.Module) -> bool:
    """Return whether forward says that it takes what no option can spell: a list, a dict, a number."""
    kinds = [_kind_of(parameter) for parameter in required_parameters(model)]
    return any(kind in _PLAIN or _is_kind(kind, Mapping) or _is_kind(kind, Sequence) for kind in kinds)


def sketch_inputs(model: nn.Module) -> Sketch:
    """Return the lines of a function ``make_inputs`` for ``model``, tried out.

    Args:
        model: run some times, each in eval mode without gradients; left as it was.
    """
    deadline = time.monotonic() + _SECONDS
    parameters = required_parameters(model)
    fallback = [_plain_value(model, parameter) for parameter in parameters]
    choices = [
        list(_choices(model, parameter, deadline)) or [first]
        for parameter, first in zip(parameters, fallback, strict=True)
    ]
    for chosen in itertools.islice(itertools.product(*choices), _MAX_TRIALS):
        if time.monotonic() > deadline:
            break
        if _failure(model, parameters, chosen) is None:
            return Sketch(_lines(parameters, chosen), None)
    likely = [
        first if _kind_of(parameter) is inspect.Parameter.empty else found[0]
        for parameter, first, found in zip(parameters, fallback, choices, strict=True)
    ]
    return Sketch(_lines(parameters, likely), _failure(model, parameters, likely))


def _failure(model: nn.Module, parameters: Sequence[inspect.Parameter], values: Sequence[_Value]) -> Exception | None:
    return failure_with(model, *_as_call(parameters, [one.value for one in values]))


def _choices(model: nn.Module, parameter: inspect.Parameter, deadline: float) -> Iterator[_Value]:
    kind = _kind_of(parameter)
    items = typing.get_args(parameter.annotation)
    if items and items[0] in _PLAIN and _is_kind(kind, Sequence):
        code, value = _PLAIN[items[0]]
        yield _Value(f"[{code}]", [value])
        return
    texts = likely_texts(model, parameter)[:_MAX_TEXTS]
    tensors = [_tensor(text) for text in texts]
    if kind in _PLAIN:
        yield _Value(*_PLAIN[kind])
        return
    is_open = kind is inspect.Parameter.empty or kind is Any
    if is_open or _is_kind(kind, Mapping):
        yield from _mappings(model, parameter, deadline)
    if is_open or _is_kind(kind, Sequence):
        for one in tensors:
            without_batch = _first_of(one)
            yield _Value(f"[{without_batch.code}, {without_batch.code}]", [without_batch.value, without_batch.value])
            yield _Value(f"[{one.code}, {one.code}]", [one.value, one.value])
    if is_open or kind is torch.Tensor:
        yield from tensors


def _is_kind(kind: Any, wanted: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, wanted)


def _kind_of(parameter: inspect.Parameter) -> Any:
    """Return the class that the annotation names, without what is in its brackets."""
    if isinstance(parameter.annotation, str):
        known = {"int": int, "float": float, "bool": bool, "str": str, "list": list, "List": list, "tuple": tuple,
                 "dict": dict, "Dict": dict, "Tensor": torch.Tensor}  # fmt: skip
        head = parameter.annotation.partition("[")[0].rpartition(".")[2]
        return known.get(head, inspect.Parameter.empty)
    return typing.get_origin(parameter.annotation) or parameter.annotation


def _mappings(model: nn.Module, parameter: inspect.Parameter, deadline: float) -> Iterator[_Value]:
    """Yield dicts with the keys that forward asks for: a run that misses one tells its name."""
    if len(required_parameters(model)) != 1:
        return
    choices: dict[str, list[_Value]] = {}
    while len(choices) < _MAX_KEYS:
        missed: str | None = None
        for chosen in itertools.islice(itertools.product(*choices.values()), _MAX_TRIALS):
            mapping = _AskedKeys({key: one.value for key, one in zip(choices, chosen, strict=True)})
            if runs_with(model, *_as_call([parameter], [mapping])):
                code = ", ".join(f"{key!r}: {one.code}" for key, one in zip(choices, chosen, strict=True))
                yield _Value(f"{{{code}}}", dict(mapping))
                return
            missed = mapping.asked[0] if mapping.asked else missed
            if mapping.asked or time.monotonic() > deadline:
                break
        if missed is None or missed in choices or not isinstance(missed, str):
            return
        named = inspect.Parameter(missed, inspect.Parameter.KEYWORD_ONLY) if missed.isidentifier() else parameter
        choices[missed] = [_tensor(text) for text in likely_texts(model, named)[:_MAX_TEXTS]]


def _plain_value(model: nn.Module, parameter: inspect.Parameter) -> _Value:
    texts = likely_texts(model, parameter)
    return _tensor(texts[0] if texts else "1,16")


def _tensor(text: str) -> _Value:
    spec = parse_input(text)
    value = draw_values(spec, torch.Generator().manual_seed(0))
    shape = ", ".join(str(size) for size in value.shape)
    if value.dtype == torch.bool:
        return _Value(f"torch.ones({shape}, dtype=torch.bool)", torch.ones_like(value))
    if not value.is_floating_point():
        high = int(spec.value_range.high) if spec.value_range is not None else 10
        return _Value(f"torch.randint({high}, ({shape}{',' if value.ndim == 1 else ''}))", value)
    return _Value(f"torch.rand({shape})", value)


def _first_of(one: _Value) -> _Value:
    """Return the same without the dimension of the batch."""
    if one.value.ndim < 2:
        return one
    head = one.code.replace("((1, ", "((").replace("(1, ", "(", 1)
    return _Value(head, one.value[0]) if one.value.shape[0] == 1 else one


def _as_call(parameters: Sequence[inspect.Parameter], values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    pairs = list(zip(parameters, values, strict=True))
    args = tuple(value for parameter, value in pairs if parameter.kind is not inspect.Parameter.KEYWORD_ONLY)
    return args, {p.name: value for p, value in pairs if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _lines(parameters: Sequence[inspect.Parameter], values: Sequence[_Value]) -> str:
    """Return the function: ``(args, kwargs)``, which nothing can take for something else."""
    pairs = list(zip(parameters, values, strict=True))
    args = [one.code for p, one in pairs if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    kwargs = [f"{p.name!r}: {one.code}" for p, one in pairs if p.kind is inspect.Parameter.KEYWORD_ONLY]
    call = f"({', '.join(args)}{',' if len(args) == 1 else ''}), {{{', '.join(kwargs)}}}"
    return f"import torch\n\n\ndef make_inputs():\n    return {call}"
