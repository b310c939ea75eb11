"""The examples of the documentation run in order, and print what the page says."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from neural_flow.cli.main import main

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+?)(?:#[^)]*)?\)")
PAGES = sorted(path for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def read_examples(page: Path) -> list[tuple[str, str | None]]:
    """Return each piece of code with the text that the page prints after it."""
    examples: list[tuple[str, str | None]] = []
    for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "python" and not text.startswith(("# model.py", "# append to")):
            examples.append((text, None))
        elif kind == "text" and examples and examples[-1][1] is None:
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


COMMAND = re.compile(r"(?:^|&& |run: )neural-flow (.*)$", re.MULTILINE)
STEP = re.compile(r"^```(python|sh|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if COMMAND.search(page.read_text(encoding="utf-8"))], ids=lambda page: page.stem
)
def test_commands_do_what_the_page_says(page, tmp_path, monkeypatch, capsys):
    """Each command exits with 0, or with the code that its comment names; files of the page are written first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sample_models").symlink_to(ROOT / "sample_models")
    (tmp_path / "model.py").symlink_to(ROOT / "sample_models" / "mlp.py")
    for kind, text in STEP.findall(page.read_text(encoding="utf-8")):
        if kind == "python" and text.startswith("# model.py"):
            (tmp_path / "model.py").unlink()
            (tmp_path / "model.py").write_text(text, encoding="utf-8")
        elif kind == "python" and text.startswith("# append to model.py"):
            with (tmp_path / "model.py").open("a", encoding="utf-8") as file:
                file.write(text)
        for line in COMMAND.findall(text) if kind != "python" else ():
            command, _, comment = line.partition("#")
            said = re.search(r"exit code (\d+)", comment)
            assert main(shlex.split(command)) == (int(said[1]) if said else 0), line
            capsys.readouterr()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page):
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in LINK.findall(prose):
        assert (page.parent / target).exists(), f"{page.name}: {target}"
