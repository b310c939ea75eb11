"""The optional names of a model's file that say what its values mean: words, classes, the loss."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from neural_flow.errors import SampleInputError
from neural_flow.models._base import describe_error, short_path
from neural_flow.models.target import LoadedModel

TOKENS, LABELS, LOSS = "neural_flow_tokens", "neural_flow_labels", "neural_flow_loss"
_PLACEHOLDER = re.compile(r"LABEL_\d+")
"""What a configuration calls classes that nobody named."""


def token_words(loaded: LoadedModel, file: str | None = None) -> tuple[str, ...] | None:
    """Return the words of token axes: from ``file``, else from ``neural_flow_tokens``; None where there are none.

    Raises:
        SampleInputError: the file cannot be read, or the function fails.
    """
    return _words_in(Path(file)) if file is not None else _words_of(loaded, TOKENS)


def class_names(loaded: LoadedModel, file: str | None = None) -> tuple[str, ...] | None:
    """Return the names of the classes, None where there are none.

    They come from ``file``, else from ``neural_flow_labels``, else from the ``config.id2label`` of the model itself.

    Raises:
        SampleInputError: the file cannot be read, or the function fails.
    """
    if file is not None:
        return _words_in(Path(file))
    return _words_of(loaded, LABELS) or _words_of_config(loaded.model)


def loss_function(loaded: LoadedModel) -> Callable[..., Any] | None:
    """Return ``neural_flow_loss`` of the model's file, or None."""
    value = loaded.namespace.get(LOSS)
    return value if callable(value) else None


def _words_of(loaded: LoadedModel, name: str) -> tuple[str, ...] | None:
    if name not in loaded.namespace:
        return None
    value = loaded.namespace[name]
    if callable(value):
        try:
            with loaded.scope:
                value = value()
        except (Exception, SystemExit) as error:
            raise SampleInputError(
                f"{name}() raised\n{describe_error(error)}", hint="it is called without arguments and returns texts"
            ) from error
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise SampleInputError(
            f"{name} gives no list of texts\nfound {type(value).__name__}", hint="make it a list, or return one"
        )
    return tuple(str(word) for word in value)


def _words_of_config(model: nn.Module) -> tuple[str, ...] | None:
    names: Any = getattr(getattr(model, "config", None), "id2label", None)
    if not isinstance(names, Mapping):
        return None
    numbered: Mapping[Any, Any] = names
    words = [str(numbered[key]) for key in sorted(numbered, key=lambda key: _as_number(str(key)))]
    is_named = any(not _PLACEHOLDER.fullmatch(word) for word in words)
    return tuple(words) if is_named else None


def _words_in(file: Path) -> tuple[str, ...]:
    """Read a JSON list (or a mapping from number to name), else one text a line."""
    try:
        text = file.read_text(encoding="utf-8")
        content = json.loads(text) if file.suffix == ".json" else text.splitlines()
    except (OSError, ValueError) as error:
        raise SampleInputError(
            f"cannot read {short_path(file)}\n{describe_error(error)}", hint="write one text a line, or a JSON list"
        ) from error
    if isinstance(content, dict):
        content = [content[key] for key in sorted(content, key=_as_number)]
    return tuple(str(word) for word in content)


def _as_number(key: str) -> tuple[int, str]:
    return (int(key), "") if key.isdigit() else (1 << 62, key)
