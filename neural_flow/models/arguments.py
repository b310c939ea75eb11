"""Constructor arguments as typed: ``depth=50``, ``norm=none``, ``widths=[16,32]``. Text is never evaluated."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from neural_flow.errors import UsageError

_WORDS = {"none": None, "null": None, "true": True, "false": False}


def parse_arguments(texts: Iterable[str]) -> dict[str, Any]:
    """Return the keyword arguments in ``name=value`` texts; a later one wins.

    Raises:
        UsageError: a text has no name, or the name is no identifier.
    """
    arguments: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise UsageError(
                f"cannot read -a {text!r}\nan argument is written name=value",
                hint="for example -a depth=50 -a norm=none",
            )
        arguments[name] = parse_value(value)
    return arguments


def parse_value(text: str) -> Any:
    """Return the JSON value that ``text`` spells, ``none``, ``true`` and ``false`` in any case, else the text."""
    word = text.strip().lower()
    if word in _WORDS:
        return _WORDS[word]
    try:
        return json.loads(text)
    except ValueError:
        return text
