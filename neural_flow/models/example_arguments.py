"""What to write for the arguments that a class or function still needs: ``-a`` options, else a line of Python."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from torch import nn

from neural_flow.models._base import render_command, seeded
from neural_flow.models.arguments import parse_value

BUILDER = "neural_flow_model"
_NOT_BY_POSITION = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_CONFIG_NAME = re.compile(r"^(.*_)?(config|configs|conf|cfg|args|opts?|hparams|hps|params|options|settings)$", re.I)
_CONFIG_CLASS = re.compile(r"(config|conf|cfg|args|arguments|opts?|options|hparams|params|settings)$", re.I)
_MODULE_NAME = re.compile(
    r"^(.*_)?(model|module|net|network|backbone|encoder|decoder|block|layer|base|generator)$", re.I
)
_LIST_NAME = re.compile(r"(sizes|layers|widths|depths|dims|features|channels|units)$", re.I)
_NUMBER_NAMES = (
    (re.compile(r"^(in_(channels|ch|chans|planes)|(channels|ch|chans)_in|num_channels)$", re.I), "3"),
    (re.compile(r"drop|prob|rate|^p$|eps|alpha|momentum|scale$", re.I), "0.1"),
)
_UNKNOWN = "..."


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """Return the parameters of ``function`` by name; None if it has no readable signature."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None


def missing_arguments(function: Callable[..., Any], given: Collection[str]) -> list[str]:
    """Return the required parameters of ``function`` that are not ``given``; empty if it has no signature."""
    return [
        name
        for name, parameter in (parameters_of(function) or {}).items()
        if parameter.default is inspect.Parameter.empty and parameter.kind not in _NOT_BY_POSITION and name not in given
    ]


def example_hint(
    namespace: Mapping[str, Any], attribute: str, function: Callable[..., Any], given: Mapping[str, Any], target: str
) -> str:
    """Return what to type for the missing arguments: a command, or a line for the file and the command after it.

    Args:
        namespace: the names of the user's module.
        attribute: the name of ``function`` there.
        function: the class or function.
        given: arguments that the user gave already.
        target: how the user named the file.
    """
    kinds = _annotations(function)
    missing = missing_arguments(function, given)
    typed = {name: _typed(name, kinds.get(name, inspect.Parameter.empty)) for name in missing}
    if all(text is not None for text in typed.values()):
        pairs = [f"{name}={value}" for name, value in (*given.items(), *typed.items())]
        return "for example " + render_command(f"{target}:{attribute}", *(w for pair in pairs for w in ("-a", pair)))
    written = {name: repr(value) for name, value in given.items()}
    for name in missing:
        written[name] = _expression(namespace, name, kinds.get(name, inspect.Parameter.empty))
    call = f"{attribute}({', '.join(f'{name}={text}' for name, text in written.items())})"
    builder, named = ("make_model", f"{target}:make_model") if BUILDER in namespace else (BUILDER, target)
    is_sure = _UNKNOWN not in written.values() and _builds(call, namespace)
    advice = "add this line to" if is_sure else "add this line, with values of yours, to"
    return f"{advice} {target}, then: {render_command(named)}\ndef {builder}(): return {call}"


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of the parameters, as classes where the texts can be read as such."""
    plain = {name: parameter.annotation for name, parameter in (parameters_of(function) or {}).items()}
    owner: Any = function.__init__ if isinstance(function, type) else function
    try:
        return plain | typing.get_type_hints(owner)
    except Exception:  # names that only a type checker knows
        return plain


def _typed(name: str, annotation: Any) -> str | None:
    """Return a text for ``-a name=`` of the kind that the annotation or the name asks for; None where none can be."""
    if annotation is inspect.Parameter.empty or annotation is Any or annotation is object:
        return _by_name(name)
    if isinstance(annotation, str) and (_CONFIG_NAME.match(name) or _MODULE_NAME.match(name)):
        return None
    if isinstance(annotation, str):
        known = {"int": int, "float": float, "bool": bool, "str": str, "list": list, "tuple": tuple}
        return _typed(name, known[annotation]) if annotation in known else None
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return str(arguments[0])
    if origin in (typing.Union, types.UnionType):
        texts = [_typed(name, one) for one in arguments if one is not type(None)]
        return next((text for text in texts if text is not None), None)
    kind = origin or annotation
    if not isinstance(kind, type):
        return None
    if issubclass(kind, enum.Enum) and not issubclass(kind, str | int):
        return None
    if issubclass(kind, bool):
        return "true"
    if issubclass(kind, int):
        return _by_name(name) if (_by_name(name) or "").isdigit() else "8"
    if issubclass(kind, float):
        return "0.1"
    if issubclass(kind, str | PurePath):
        return "TEXT"
    if issubclass(kind, Sequence) or kind in (set, frozenset, typing.get_origin(typing.Iterable)):
        item = _typed("", arguments[0]) if arguments else "8"
        return None if item is None else f"[{item},{item}]" if item not in ("TEXT",) else '["TEXT"]'
    return "{}" if issubclass(kind, Mapping) else None


def _by_name(name: str) -> str | None:
    if _CONFIG_NAME.match(name) or _MODULE_NAME.match(name):
        return None
    numbers = (text for pattern, text in _NUMBER_NAMES if pattern.search(name))
    return next(numbers, "[8,8]" if _LIST_NAME.search(name) and not re.match(r"(num|n|in|out)_", name) else "8")


def _expression(namespace: Mapping[str, Any], name: str, annotation: Any) -> str:
    """Return Python for the argument ``name``: an object of the file's, one of its classes, else a plain value."""
    for expression in _objects(namespace, name, annotation):
        if _builds(expression, namespace):
            return expression
    text = _typed(name, annotation)
    return _UNKNOWN if text is None else repr(parse_value(text))


def _objects(namespace: Mapping[str, Any], name: str, annotation: Any) -> Iterator[str]:
    public = {key: value for key, value in namespace.items() if not key.startswith("_")}
    is_module = isinstance(public.get(name), types.ModuleType)
    if name in public and not is_module and not callable(public[name]) and _fits(public[name], annotation):
        yield name
    classes = {key: value for key, value in public.items() if isinstance(value, type)}
    if _is_class(annotation):
        chosen = [key for key, value in classes.items() if issubclass(value, annotation) and value is not nn.Module]
    elif _CONFIG_NAME.match(name):
        chosen = [key for key in classes if _CONFIG_CLASS.search(key)]
    else:
        chosen = []
    for key in chosen:
        yield _construction(key, classes[key])


def _fits(value: Any, annotation: Any) -> bool:
    return not _is_class(annotation) or isinstance(value, annotation)


def _is_class(annotation: Any) -> bool:
    return isinstance(annotation, type) and annotation is not inspect.Parameter.empty


def _construction(name: str, kind: type) -> str:
    """Return the call that makes an object of ``kind``, each required argument with a value of its kind."""
    if issubclass(kind, enum.Enum):
        return f"{name}.{next(iter(kind)).name}"
    kinds = _annotations(kind)
    texts = {one: _typed(one, kinds.get(one, inspect.Parameter.empty)) for one in missing_arguments(kind, ())}
    if not texts and dataclasses.is_dataclass(kind):
        return f"{name}()"
    written = (f"{one}={_UNKNOWN if text is None else repr(parse_value(text))}" for one, text in texts.items())
    return f"{name}({', '.join(written)})"


def _builds(expression: str, namespace: Mapping[str, Any]) -> bool:
    """Return whether the expression, which is ours and calls what the user asked to build, gives something."""
    if _UNKNOWN in expression:
        return False
    code = compile(ast.parse(expression, mode="eval"), "<example>", "eval")
    try:
        with seeded(0):
            eval(code, dict(namespace))
    except (Exception, SystemExit):  # whatever the user's code raises means the same: this example is of no use
        return False
    return True
