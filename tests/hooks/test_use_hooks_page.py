"""The examples of docs/how_to/use_hooks.md run in order, and print what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how_to" / "use_hooks.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read_examples() -> list[tuple[str, str]]:
    """Return each piece of code with the text that the page prints after it."""
    examples: list[tuple[str, str]] = []
    for kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "python":
            examples.append((text, ""))
        else:
            examples[-1] = (examples[-1][0], text)
    return examples


def test_examples_print_what_the_page_says():
    names: dict[str, object] = {}
    examples = read_examples()
    assert len(examples) >= 8
    for number, (code, expected) in enumerate(examples):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{PAGE.name}[{number}]", "exec"), names)
        assert printed.getvalue() == expected, code


@pytest.mark.parametrize("topic", ["Steer a layer", "Measure gradient norms"])
def test_page_has_its_worked_examples(topic):
    _, found, rest = PAGE.read_text(encoding="utf-8").partition(f"## {topic}\n")
    assert found
    assert "```python" in rest.partition("\n## ")[0]
