from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def pair(run: Run, folder: Path) -> Path:
    """A net, its graph, and a successor: one layer wider, one more, and the skip gone."""
    text = (folder / "net.py").read_text()
    wider = text.replace("nn.ReLU(), nn.Conv2d", "nn.ReLU(), nn.BatchNorm2d(width), nn.Conv2d")
    (folder / "new.py").write_text(
        wider.replace("(y + self.body(y))", "self.body(y)").replace("width, 4)", "width, 5)")
    )
    assert run("render", "net.py", "--select", "**", "--no-capture", "-o", "old.json").code == 0
    return folder


def test_a_graph_and_the_model_that_it_came_from(run: Run, pair: Path) -> None:
    result = run("diff", "old.json", "net.py", "--exit-code")
    assert result.code == 0, result.stderr
    assert result.stdout.startswith("no difference: ")
    assert "the model speaks" not in result.stdout


def test_what_changed_as_text_and_exit_code(run: Run, pair: Path) -> None:
    result = run("diff", "old.json", "new.py")
    assert result.code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "+ body.1 (BatchNorm2d, 16 parameters)" in lines
    assert any(line.startswith("~ head: parameters 36 → 45") for line in lines)
    assert any(line.startswith("~ skip stem → ") and line.endswith("is gone") for line in lines)
    assert any(line.startswith("~ model: parameters ") for line in lines)
    assert run("diff", "old.json", "new.py", "--exit-code").code == 1
    reverse = run("diff", "new.py", "old.json").stdout  # the stored side still says what is selected
    assert "- body.1 (BatchNorm2d, 16 parameters)" in reverse.splitlines()


def test_what_changed_as_files(run: Run, pair: Path) -> None:
    files = [word for name in ("d.json", "d.txt", "d.md", "d.svg", "no/d.svg") for word in ("-o", name)]
    result = run("diff", "old.json", "new.py", *files)
    assert result.code == 6
    data = json.loads((pair / "d.json").read_text())
    assert data["schema"] == "neural-flow.diff/1"
    assert [stage["name"] for stage in data["added"]] == ["body.1"]
    assert (pair / "d.txt").read_text() == result.stdout
    assert (pair / "d.md").read_text().startswith("```diff\n")
    figure = (pair / "d.svg").read_text()
    for words in ("added between the two models", "changed between the two models", "removed between the two models"):
        assert words in figure
    assert "Net (old.json) → Net" in figure
    assert not list(pair.glob("*.part"))


def test_two_models_of_one_name_are_told_apart_in_the_title(run: Run, pair: Path) -> None:
    for first, second, title in (("net.py", "new.py", "Net (net) → Net (new)"), ("net.py", "net.py", "Net → Net")):
        assert run("diff", first, second, "-i", "1,3,16,16", "-o", "d.svg").code == 0
        assert title in (pair / "d.svg").read_text()


def test_json_on_stdout_is_alone(run: Run, pair: Path) -> None:
    result = run("diff", "old.json", "old.json", "-o", "-", "--format", "json")
    assert json.loads(result.stdout)["is_empty"] is True


def test_two_targets_share_what_is_given(run: Run, pair: Path) -> None:
    result = run("diff", "net.py:Net", "new.py:Net", "-a", "width=6", "-i", "1,3,16,16", "--select", "**")
    assert result.code == 0, result.stderr
    assert "+ body.1 (BatchNorm2d, 12 parameters)" in result.stdout.splitlines()


def test_a_revision(run: Run, pair: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=n", "-c", "user.email=e@x"]
        subprocess.run(["git", *identity, *arguments], check=True, capture_output=True, cwd=pair)

    git("init", "-q")
    git("add", "old.json")
    git("commit", "-qm", "graph")
    (pair / "old.json").unlink()
    result = run("diff", "git:HEAD:old.json", "net.py", "--exit-code")
    assert result.code == 0, result.stderr
    for spec, cause in (
        ("git:HEAD:absent.json", "absent.json"),
        ("git:nowhere:old.json", "nowhere"),
        ("git:HEAD", "git:REV:path"),
        ("git:--output=x:old.json", "git:REV:path"),
    ):
        result = run("diff", spec, "net.py")
        assert result.code == 3, result.stderr
        assert cause in result.lines["cause"]
    assert not (pair / "x").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["old.json"], 2),
        (["absent.json", "net.py"], 3),
        (["old.json", "broken.py"], 4),
        (["old.json", "old.json", "-o", "d.xyz"], 2),
        (["old.json", "old.json", "-o", "-"], 2),
    ],
)
def test_mistakes(run: Run, pair: Path, arguments: list[str], code: int) -> None:
    result = run("diff", *arguments)
    assert result.code == code, result.stderr
    assert "hint" in result.lines
