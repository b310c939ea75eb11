from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neural_flow.cli.defaults import find_pyproject, read_table
from neural_flow.errors import UsageError

Run = Callable[..., Any]


def write_defaults(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(f"[tool.neural-flow.defaults]\n{text}\n")


def requested(folder: Path, run: Run, *arguments: str) -> dict[str, Any]:
    result = run("render", "net.py", "-o", "a.json", *arguments)
    assert result.code == 0, result.stderr
    return json.loads((folder / "a.json").read_text())["request"]


def test_defaults_are_read_by_their_option_names(run: Run, folder: Path) -> None:
    write_defaults(folder, 'detail = "layer"\nselect = ["stem", "head"]\nseed = 3\nno-capture = true')
    request = requested(folder, run)
    assert request["detail"] == "layer"
    assert list(request["select"]) == ["stem", "head"]


def test_the_command_line_wins(run: Run, folder: Path) -> None:
    write_defaults(folder, 'detail = "layer"\nselect = "stem"\nfold = false')
    request = requested(folder, run, "--detail", "block", "--select", "head")
    assert request["detail"] == "block"
    assert list(request["select"]) == ["head"]


def test_the_nearest_file_above_counts(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_defaults(folder, 'detail = "op"')
    (folder / "sub/deeper").mkdir(parents=True)
    monkeypatch.chdir(folder / "sub/deeper")
    assert find_pyproject() == folder / "pyproject.toml"
    result = run("render", "../../net.py", "-o", "a.json")
    assert result.code == 0, result.stderr
    assert json.loads(Path("a.json").read_text())["request"]["detail"] == "op"


@pytest.mark.parametrize(
    ("text", "cause", "hint"),
    [
        ('detial = "op"', "--detial", "'detail'"),
        ('detail = "fine"', "'fine' is not one of", ""),
        ("seed = 'x'", "seed", ""),
    ],
)
def test_defaults_that_no_command_has(run: Run, folder: Path, text: str, cause: str, hint: str) -> None:
    write_defaults(folder, text)
    result = run("render", "net.py")
    assert result.code == 2
    assert cause in result.lines["cause"]
    assert hint in result.lines["hint"]
    assert run("--help").code == 0


def test_a_file_that_is_no_toml(run: Run, folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool")
    assert run("render", "net.py").code == 2
    with pytest.raises(UsageError):
        read_table(folder / "pyproject.toml")
    assert run("render", "--help").code == 0
