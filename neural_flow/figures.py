"""The figures listed in pyproject.toml: ``[[tool.neural-flow.figures]]``, read into commands."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from neural_flow.errors import SelectionError, UsageError

_KNOWN = frozenset({"name", "target", "args", "inputs", "weights", "outputs", "graph"})
_WITH_NO = frozenset({"fold", "capture", "attention", "stats", "legend", "shapes"})
_FLAGS = _WITH_NO | {
    "allow-download", "autocast", "eval", "fake", "gradients", "saved", "strict", "text-as-paths", "train",
    "transparent", "unsafe-load",
}  # fmt: skip
EXAMPLE = '[[tool.neural-flow.figures]] with target = "model.py" and outputs = ["docs/model.svg"]'


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure. ``arguments`` are the options of ``render``; ``files`` what is written, the graph last."""

    name: str
    target: str
    arguments: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    graph: str | None = None


def read_figures(table: Mapping[str, Any], only: Sequence[str] = ()) -> list[Figure]:
    """Return the figures of ``[tool.neural-flow]`` whose name fits one of the globs ``only`` (all without).

    Raises:
        UsageError: an entry lacks its target or its files, or two have one name or one file.
        SelectionError: no figure is listed, or none fits.
    """
    entries = table.get("figures", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError("figures in pyproject.toml are no tables", hint=f"write {EXAMPLE}")
    figures = [_figure(entry) for entry in entries]
    if not figures:
        raise SelectionError("no figure is listed in pyproject.toml", hint=f"add {EXAMPLE}")
    for what, names in (
        ("name", [figure.name for figure in figures]),
        ("file", [file for figure in figures for file in figure.files]),
    ):
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(
                f"two figures in pyproject.toml have the {what} {twice[0]!r}", hint=f"give each its own {what}"
            )
    chosen = [figure for figure in figures if not only or any(fnmatch.fnmatchcase(figure.name, glob) for glob in only)]
    if not chosen:
        names = ", ".join(figure.name for figure in figures)
        raise SelectionError(f"no figure fits --only {' '.join(only)}", hint=f"there are {names}")
    return chosen


def _figure(entry: Mapping[str, Any]) -> Figure:
    target = entry.get("target")
    if not isinstance(target, str) or not target:
        raise UsageError(f"a figure in pyproject.toml has no target: {dict(entry)}", hint=f"write {EXAMPLE}")
    name = str(entry.get("name") or PurePosixPath(target.replace(":", "/")).stem)
    graph = entry.get("graph")
    outputs = entry.get("outputs", [])
    outputs = [outputs] if isinstance(outputs, str) else list(outputs)
    files = list(dict.fromkeys([*outputs, *([graph] if graph is not None else [])]))
    if not files:
        raise UsageError(f"the figure {name!r} in pyproject.toml has no outputs", hint=f"write {EXAMPLE}")
    return Figure(
        name=name, target=target, arguments=tuple(_arguments(entry)), files=tuple(map(str, files)), graph=graph
    )


def _arguments(entry: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for text in _pairs(entry.get("args", [])):
        found += ["-a", text]
    inputs = entry.get("inputs", [])
    if isinstance(inputs, str) and ".py" in inputs:
        found += ["--inputs", inputs]
    else:
        for text in _pairs(inputs):
            found += ["-i", text]
    if entry.get("weights") is not None:
        found += ["--weights", str(entry["weights"])]
    for key in sorted(set(entry) - _KNOWN):
        name, value = key.replace("_", "-"), entry[key]
        if name.removeprefix("no-") in _FLAGS and not isinstance(value, bool):
            raise UsageError(
                f"{key} is {value!r} in a figure of pyproject.toml", hint=f"write {key} = true, or {key} = false"
            )
        found += _option(name, value)
    return found


def _pairs(value: Any) -> list[str]:
    """Return ``name=value`` texts of a table, or the texts of a list."""
    if isinstance(value, Mapping):
        return [f"{name}={part if isinstance(part, str) else json.dumps(part)}" for name, part in value.items()]
    return [str(part) for part in _listed(value)]


def _listed(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else [value]


def _option(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        if value:
            return [f"--{name}"]
        if name == "train":
            return ["--eval"]
        if name.startswith("no-"):
            return [f"--{name.removeprefix('no-')}"]
        return [f"--no-{name}"] if name in _WITH_NO else []
    return [word for part in _pairs(value) for word in (f"--{name}", part)]
