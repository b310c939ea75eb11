"""The pages on the command line, held against the commands; the action's steps, run as a workflow would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main

from neural_flow.cli.app import app

Run = Callable[..., Any]
ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs/reference/command_line.md").read_text()
HOW_TO = (ROOT / "docs/how_to/ci.md").read_text()


def commands() -> dict[str, Any]:
    root: Any = typer.main.get_command(app)
    return dict(root.commands)


def test_the_reference_names_every_command_and_option() -> None:
    known = {flag for command in commands().values() for p in command.params if not getattr(p, "hidden", False)
             for flag in (*p.opts, *p.secondary_opts) if flag.startswith("-")}  # fmt: skip
    root: Any = typer.main.get_command(app)
    known |= {flag for p in root.params for flag in p.opts}
    shown = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", REFERENCE)) - {"-", "--"}
    assert {flag for flag in known if flag not in shown} == set()
    assert {flag for flag in shown if flag not in known | {"--help"}} == set()
    for name in commands():
        assert f"`neural-flow {name}" in REFERENCE


def test_the_table_of_the_how_to_is_a_figure(folder: Path, run: Run) -> None:
    (folder / "pyproject.toml").write_text(HOW_TO.partition("```toml\n")[2].partition("```")[0])
    result = run("build", "--only", "nothing")
    assert result.lines["hint"] == "there are unet"


@pytest.mark.slow
def test_the_steps_of_the_action(folder: Path) -> None:
    yaml = pytest.importorskip("yaml")
    action = yaml.safe_load((ROOT / ".github/actions/figures/action.yml").read_text())
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert {hook["entry"].split()[1] for hook in hooks} <= set(commands())
    (folder / "pyproject.toml").write_text(
        '[[tool.neural-flow.figures]]\nname = "net"\ntarget = "net.py"\noutputs = ["net.txt"]\n'
    )
    tools = folder / "tools"
    tools.mkdir()
    (tools / "neural-flow").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m neural_flow "$@"\n')
    (tools / "neural-flow").chmod(0o755)
    summary = folder / "summary.md"

    def take_steps(**given: str) -> int:
        inputs = {name: str(about["default"]) for name, about in action["inputs"].items()} | given
        code = 0
        for step in action["runs"]["steps"]:
            if step.get("if", "") in ("inputs.install != ''", "github.base_ref != ''"):
                continue  # nothing to install, no pull request
            environment = {
                name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: inputs[found[1]], text)
                for name, text in step.get("env", {}).items()
            }
            environment |= {"GITHUB_STEP_SUMMARY": str(summary), "GITHUB_ACTIONS": "true", "OMP_NUM_THREADS": "1"}
            environment["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            ran = subprocess.run(
                command, cwd=folder, env={**os.environ, **environment}, capture_output=True, check=False
            )
            code = code or ran.returncode
        return code

    assert take_steps() == 1, "the figure is not there yet"
    assert not (folder / "net.txt").exists()
    assert take_steps(check="false") == 0
    assert (folder / "net.txt").exists()
    assert summary.read_text().count("# Figures\n") == 2
    assert "| net | out of date | " in summary.read_text()
    assert "| net | written | " in summary.read_text()
