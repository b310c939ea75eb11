"""Refuse what cannot be done before a model runs, and say which options found nothing to work on."""

from __future__ import annotations

import dataclasses
import os
import types
import typing
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Literal

import torch
from torch import nn

from neural_flow.capture._attention_watch import heads_for, parse_heads
from neural_flow.capture.measure._base import MEASUREMENTS
from neural_flow.errors import ExportError, UnknownNameError, UnusedOptionWarning, UsageError
from neural_flow.layout._base import LAYOUT_STYLES
from neural_flow.options import Options, layout_options
from neural_flow.records import Capture, Topology
from neural_flow.scene.words import matches
from neural_flow.summaries._colormaps import colormap
from neural_flow.text_metrics import text_width
from neural_flow.theme import get_theme
from neural_flow.topology._base import TOPOLOGY_SOURCES

MAX_NAMES = 6
_OTHER_NAMES = {"type": "types", "label": "labels"}
"""What the command line calls an option of which several are given at once in Python."""
_OF_COMMANDS = frozenset(
    {"arguments", "changes", "edge_changes", "inputs", "inputs_function", "model_name", "opened", "target", "weights"}
)
"""Options that commands give, and that nobody needs to type."""
_TYPE_WORDS: dict[type, str] = {
    bool: "True or False", int: "a whole number", float: "a number", str: "a text", type(None): "None",
}  # fmt: skip


def check_options(asked: Options) -> None:
    """Refuse options that name something unknown: a model may run for minutes before they are read.

    Raises:
        UsageError: an option is malformed, or names a thing that does not exist.
    """
    _check_types(asked)
    check_look(asked)
    for name, choices in _choices().items():
        if getattr(asked, name) not in choices:
            raise UnknownNameError(name, str(getattr(asked, name)), choices)
    for name, least in (("max_stages", 1), ("depth", 0), ("sample", 0), ("seed", 0)):
        value = getattr(asked, name)
        if value is not None and value < least:
            raise UsageError(f"{name} is {value}", hint=f"it is a whole number from {least}")
    _check_known("topology source", asked.topology, TOPOLOGY_SOURCES.names())
    if asked.color_by not in (None, "params") and asked.color_by not in MEASUREMENTS.names():
        raise UnknownNameError("measurement", str(asked.color_by), ("params", *MEASUREMENTS.names()))
    parse_heads(asked.heads)
    _check_batch_dim(asked.batch_dim)
    _check_device(asked.capture_device)


def read_options(options: Mapping[str, Any]) -> Options:
    """Return options given by name, checked.

    Raises:
        UsageError: a name or a value is unknown.
    """
    known = [field.name for field in dataclasses.fields(Options)]
    given = {_OTHER_NAMES.get(name, name): value for name, value in options.items()}
    for name in given:
        if name not in known:
            raise UnknownNameError("option", name, [name for name in known if name not in _OF_COMMANDS])
    asked = Options(**given)
    check_options(asked)
    return asked


def check_model(model: Any) -> None:
    """Refuse what cannot be watched.

    Raises:
        UsageError: it is no nn.Module.
    """
    if isinstance(model, nn.Module):
        return
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise UsageError(f"{model.__name__} is a class, not a model", hint=f"give an instance: {model.__name__}(...)")
    raise UsageError(f"the model is a {type(model).__name__}", hint="give an nn.Module")


def check_kwargs(kwargs: Any) -> None:
    """Refuse keyword arguments of forward that have no names.

    Raises:
        UsageError: it is no mapping.
    """
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise UsageError(
            f"kwargs is a {type(kwargs).__name__}",
            hint='it is a dict by name, such as {"mask": mask}; several positional arguments are one tuple: (x, mask)',
        )


def check_look(asked: Options) -> None:
    """Refuse options of the look that name something unknown.

    Raises:
        UsageError: as above.
    """
    get_theme(asked.theme)
    layout_options(asked)
    if asked.dpi is not None and asked.dpi <= 0:
        raise UsageError(f"dpi is {asked.dpi}", hint="for example dpi=300")
    if not isinstance(asked.labels, Mapping):
        raise UsageError(f"labels are a {type(asked.labels).__name__}", hint='for example labels={"enc.0": "Stem"}')
    for name, label in asked.labels.items():
        if not isinstance(label, str):
            raise UsageError(f"the label of {name!r} is {label!r}", hint="it is a text")
    _check_known("layout style", asked.layout, LAYOUT_STYLES.names())
    if asked.cmap is not None:
        colormap(asked.cmap)
    if asked.font is not None:
        try:
            text_width("x", 1.0, font_file=asked.font)
        except ExportError as error:
            raise UsageError(str(error).replace(": ", "\n", 1), hint=error.hint) from error


def warn_of_unused(asked: Options, topology: Topology, capture: Capture | None = None) -> None:
    """Say which names among the options fit no stage.

    Args:
        asked: the options.
        topology: what is drawn.
        capture: what was captured, from which it is known where attention was seen; None where nothing was.
    """
    names = [stage.path or stage.name for stage in topology.stages]
    either = {name for stage in topology.stages for name in (stage.path, stage.name)}
    for name in asked.labels:
        if name not in either:
            _say_unused(f"--label {name}=...", "stage", names)
    for glob in (asked.highlight,) if isinstance(asked.highlight, str) else asked.highlight:
        if not any(matches(name, (glob,)) for name in names):
            _say_unused(f"--highlight {glob}", "stage", names)
    if capture is None or asked.heads is None or asked.fake or not (asked.attention and asked.capture):
        return
    num_heads = {
        str(found.facts["path"]): int(found.facts["num_heads"])
        for summaries in capture.attention.values()
        for found in summaries
    }
    for text in asked.heads.split():
        _warn_of_heads(text, num_heads)


def _warn_of_heads(text: str, num_heads: Mapping[str, int]) -> None:
    wanted = {path: heads for path in num_heads if (heads := heads_for(parse_heads(text), path))}
    if not wanted:
        _say_unused(f"--heads {text}", "module whose attention weights were seen", num_heads)
    for path, heads in wanted.items():
        if any(head >= num_heads[path] for head in heads):
            _say(f"--heads {text} asks for heads that {path} has not; it has {num_heads[path]}, counted from 0")
            return


def shortened(names: Iterable[str]) -> str:
    """Return the first names as a list in words, and how many more there are."""
    known = [*dict.fromkeys(names)]
    more = f" and {len(known) - MAX_NAMES} more" if len(known) > MAX_NAMES else ""
    return ", ".join(known[:MAX_NAMES]) + more


def _say_unused(option: str, what: str, names: Iterable[str]) -> None:
    there = shortened(names)
    _say(f"{option} fits no {what}; there {f'are {there}' if there else 'is none'}")


def _say(text: str) -> None:
    warnings.warn(text, UnusedOptionWarning, stacklevel=5)


@cache
def _plain_types() -> dict[str, tuple[type, ...]]:
    """Return the types of each option that takes nothing but numbers, texts and flags."""
    hints = typing.get_type_hints(Options)
    kinds = {
        name: typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,) for name, hint in hints.items()
    }
    return {name: found for name, found in kinds.items() if all(kind in _TYPE_WORDS for kind in found)}


@cache
def _choices() -> dict[str, tuple[str, ...]]:
    """Return the words that each option takes, of those whose type lists them."""
    hints = typing.get_type_hints(Options)
    return {name: typing.get_args(hint) for name, hint in hints.items() if typing.get_origin(hint) is Literal}


def _check_types(asked: Options) -> None:
    """Hold what is a number, a text or a flag to its type; ``"no"`` would count as true."""
    for name, kinds in _plain_types().items():
        value = getattr(asked, name)
        is_file = str in kinds and isinstance(value, os.PathLike | torch.device)
        is_count = int in kinds and hasattr(value, "__index__") and not isinstance(value, bool | torch.Tensor)
        is_number = float in kinds and isinstance(value, int | float) and not isinstance(value, bool)
        if not (type(value) in kinds or is_file or is_count or is_number):
            words = " or ".join(_TYPE_WORDS[kind] for kind in kinds)
            raise UsageError(f"{name} is the {type(value).__name__} {value!r}", hint=f"it is {words}")


def _check_known(what: str, name: str, names: Iterable[str]) -> None:
    choices = ("auto", *names)
    if name not in choices:
        raise UnknownNameError(what, name, choices)


def _check_batch_dim(batch_dim: str | int) -> None:
    if batch_dim in ("auto", "none") or (isinstance(batch_dim, int) and batch_dim >= 0):
        return
    raise UsageError(f"batch dimension {batch_dim!r} is no dimension", hint="write --batch-dim 0, auto or none")


def _check_device(name: str) -> None:
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        cause = str(error).partition("\n")[0]
        raise UsageError(f"cannot keep pictures on {name!r}\n{cause}", hint="leave --capture-device out") from error
