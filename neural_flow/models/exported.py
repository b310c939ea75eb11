"""``torch.export`` archives (``.pt2``): the one kind of target that is data, so it is read as data.

``torch.export.load`` unpickles members without limits, runs code found in the archive, and evaluates the text of its
shape expressions. Everything of that sort is refused here unless the user trusts the file.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import zipfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from neural_flow.errors import ModelLoadError
from neural_flow.models._base import describe_error, short_path

_RUNS_CODE = ("/custom_obj_", "/opaque_obj_", "/aotinductor/")
_SYMBOL = re.compile(r"Symbol\('\w+'")
_EXPRESSION_NAME = re.compile(r"[A-Za-z_]\w*")
_PLAIN_NAME = re.compile(
    r"[suzf]\d+|Symbol|Integer|Rational|Float|Add|Mul|Pow|integer|positive|negative|nonnegative|real|Max|Min|Mod|PythonMod|FloorDiv|CleanDiv|CeilDiv|Where|Eq|Ne|Lt|Le|Gt|Ge|And|Or|Not|True|False|"
    r"ToFloat|IntTrueDiv|FloatTrueDiv|TruncToInt|RoundToInt|CeilToInt|FloorToInt|Identity|PowByNatural|ModularIndexing"
)
_PLAIN_CHARACTERS = re.compile(r"[\w\s+\-*/%(),<>=!&|~.]*")


def load_exported(file: Path, *, is_trusted: bool) -> tuple[nn.Module, Any]:
    """Return the module of an archive and its example inputs, an ``(args, kwargs)`` pair or None.

    Args:
        file: the archive.
        is_trusted: allow members that can run code.

    Raises:
        ModelLoadError: no archive, or it holds what could run code and is not trusted.
    """
    if not is_trusted and (reason := _why_unsafe(file)):
        raise ModelLoadError(
            f"refused to load {short_path(file)}\n{reason}, which can run code",
            hint="add --unsafe-load if you trust who made the file",
        )
    try:
        with contextlib.nullcontext() if is_trusted else _only_weights(), _silent_export_log():
            program = torch.export.load(file)
            module = program.module()
    except Exception as error:
        raise ModelLoadError(
            f"cannot load {short_path(file)} as a torch.export archive\n{describe_error(error)}",
            hint="write it again with torch.export.save under this torch, or render the model's .py file",
        ) from error
    return module, program.example_inputs


def _why_unsafe(file: Path) -> str:
    try:
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                if any(part in f"/{name}" for part in _RUNS_CODE):
                    return f"it holds {name}"
                if name.endswith(".json") and (bad := _odd_expression(archive.read(name))):
                    return f"{name} holds the expression {bad!r}"
    except (OSError, zipfile.BadZipFile) as error:
        raise ModelLoadError(
            f"cannot load {short_path(file)} as a torch.export archive\n{describe_error(error)}",
            hint="a .pt2 file is written by torch.export.save",
        ) from error
    return ""


def _odd_expression(data: bytes) -> str:
    """Return the first shape expression that is more than arithmetic on symbols; such text would be evaluated."""
    try:
        content = json.loads(data)
    except ValueError:
        return ""
    for expression in _expressions(content):
        plain = _SYMBOL.sub("Symbol(0", expression)
        names = _EXPRESSION_NAME.findall(plain)
        if not _PLAIN_CHARACTERS.fullmatch(plain) or not all(_PLAIN_NAME.fullmatch(name) for name in names):
            return expression[:60]
    return ""


def _expressions(content: Any) -> Iterator[str]:
    if isinstance(content, dict):
        for key, value in content.items():
            if key == "expr_str" and isinstance(value, str):
                yield value
            else:
                yield from _expressions(value)
    elif isinstance(content, list):
        for value in content:
            yield from _expressions(value)


@contextlib.contextmanager
def _only_weights() -> Generator[None]:
    """Make every ``torch.load`` inside refuse classes, those that ask for all of pickle too."""
    key = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(key)
    os.environ[key] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[key]
        else:
            os.environ[key] = before


@contextlib.contextmanager
def _silent_export_log() -> Generator[None]:
    """The loader logs the traceback of an error that it then raises, or that we report."""
    logger = logging.getLogger("torch.export")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
