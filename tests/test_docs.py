"""The examples of the documentation run in order, and print what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+?)(?:#[^)]*)?\)")
PAGES = sorted(path for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def read_examples(page: Path) -> list[tuple[str, str | None]]:
    """Return each piece of code with the text that the page prints after it."""
    examples: list[tuple[str, str | None]] = []
    for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            examples.append((text, None))
        elif examples and examples[-1][1] is None:
            examples[-1] = (examples[-1][0], text)
    return examples


@pytest.mark.parametrize("page", [page for page in PAGES if read_examples(page)], ids=lambda page: page.stem)
def test_examples_print_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for number, (code, expected) in enumerate(read_examples(page)):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{page.name}[{number}]", "exec"), names)
        assert printed.getvalue() == (expected or ""), code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page):
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in LINK.findall(prose):
        assert (page.parent / target).exists(), f"{page.name}: {target}"
