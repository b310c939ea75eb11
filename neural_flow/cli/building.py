"""``neural-flow build`` and ``neural-flow check`` without a target: every figure of pyproject.toml."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from neural_flow.build import BuiltFigure, Children, build_figures, write_manifest
from neural_flow.cli.console import PhaseProgress, say
from neural_flow.cli.defaults import find_pyproject, read_table
from neural_flow.cli.github import add_summary, annotate
from neural_flow.errors import ExportError, SelectionError, UsageError
from neural_flow.figures import EXAMPLE, Figure, read_figures

MAX_SUMMARY_NBYTES = 900_000
"""GitHub takes 1 MiB a step, and drops all of it beyond."""
_WORDS = {"unchanged": "unchanged", "written": "written", "stale": "out of date", "failed": "failed"}


def run_build(params: Mapping[str, Any]) -> int:
    """Run ``build`` and return the exit code of the first failure, 1 where ``--check`` found old files, else 0.

    Raises:
        NeuralFlowError: pyproject.toml lists no figures, or they are malformed.
    """
    file, figures = _figures(params["only"] or ())
    defaults = read_table(file).get("defaults", {})
    with PhaseProgress(len(figures), is_quiet=params["quiet"]) as progress:
        progress.phase(figures[0].name)

        def tell(found: BuiltFigure) -> None:
            progress.phase(f"{found.figure.name}: {_WORDS[found.state]}")

        built = build_figures(
            figures, file.parent, defaults, num_jobs=params["jobs"], is_check=params["check"], on_done=tell
        )
    for found in built:
        _say_messages(found.figure.name, found.messages, is_shown=not params["quiet"] or found.state == "failed")
        if found.state == "failed":
            annotate(found.messages.strip() or "failed", title=f"figure {found.figure.name}", file="pyproject.toml")
        elif found.state == "stale":
            words = "; ".join(found.changes or ()) or "its model, options or files have changed"
            annotate(f"run neural-flow build: {words}", title=f"figure {found.figure.name} is out of date")
    code = next((found.code for found in built if found.state == "failed"), 0)
    if not params["check"]:
        try:
            write_manifest(file.parent, built, keeps_others=bool(params["only"]))
        except ExportError as error:
            say("error", str(error))
            code = code or error.exit_code
    _print_table(built)
    add_summary(summary_markdown(built))
    return code or next((found.code for found in built if found.code), 0)


def run_check_all(params: Mapping[str, Any]) -> int:
    """Check every figure that has a graph, each in a process of its own; return the first exit code that is not 0.

    Raises:
        NeuralFlowError: there is nothing to check.
    """
    if params["against"] is not None:
        raise UsageError(
            "--against needs a target\nwithout one, each figure names its own graph",
            hint=f"neural-flow check model.py --against {params['against']}",
        )
    file, figures = _figures(())
    stored = [figure for figure in figures if figure.graph is not None]
    if not stored:
        raise SelectionError(
            "no figure in pyproject.toml has a graph to check", hint='add graph = "docs/model.json" to one'
        )
    with (
        PhaseProgress(len(stored), is_quiet=params["quiet"]) as progress,
        Children(file.parent, params["jobs"]) as children,
    ):
        progress.phase(stored[0].name)
        results = {}
        for index, ran in children.run_all([_check_command(figure, params) for figure in stored]):
            results[index] = ran
            progress.phase(stored[index].name)
    answers: list[Any] = []
    for index, figure in enumerate(stored):
        ran = results[index]
        _say_messages(figure.name, ran.stderr, is_shown=not params["quiet"] or ran.code > 1)
        if ran.code:
            annotate((ran.stdout or ran.stderr).strip(), title=f"figure {figure.name}", file="pyproject.toml")
        if params["json"]:
            answers.append({"figure": figure.name, "exit_code": ran.code, **(json.loads(ran.stdout or "{}"))})
        else:
            sys.stdout.write("".join(f"{figure.name}: {line}\n" for line in ran.stdout.splitlines()))
    if params["json"]:
        sys.stdout.write(json.dumps({"schema": "neural-flow.check/1", "figures": answers}, indent=1) + "\n")
    return next((results[index].code for index in range(len(stored)) if results[index].code), 0)


def summary_markdown(built: Sequence[BuiltFigure]) -> str:
    """Return the summary of a build: a table of all figures, what changed, and the stages and graph of each."""
    lines = ["# Figures", "", "| figure | state | stages | parameters | changed |", "| --- | --- | ---: | ---: | --- |"]
    for found in built:
        changed = "" if found.changes is None else f"{len(found.changes)} lines" if found.changes else "no"
        counts = ("", "") if found.state == "failed" else (f"{found.num_stages:,}", f"{found.num_params:,}")
        lines.append(f"| {_cell(found.figure.name)} | {_WORDS[found.state]} | {' | '.join(counts)} | {changed} |")
    text = "\n".join(lines) + "\n"
    num_left_out = 0
    for found in built:
        section = _section(found)
        if len((text + section).encode()) > MAX_SUMMARY_NBYTES:
            num_left_out += 1
        else:
            text += section
    return text + (f"\n{num_left_out} figures are too large to be shown here.\n" if num_left_out else "")


def _section(found: BuiltFigure) -> str:
    lines = ["", f"### {_cell(found.figure.name)}", ""]
    if found.state == "failed":
        return "\n".join([*lines, "```text", found.messages.strip().replace("```", "'''"), "```", ""])
    if found.changes:
        lines += ["```diff", *(change.replace("```", "'''") for change in found.changes), "```", ""]
    return "\n".join([*lines, "<details><summary>Stages</summary>", "", found.markdown.strip(), "", "</details>", ""])


def _cell(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{char}" if char in r"\`*_{}[]|~#" else char for char in text)


def _figures(only: Sequence[str]) -> tuple[Path, list[Figure]]:
    file = find_pyproject()
    if file is None:
        raise SelectionError("there is no pyproject.toml here or above", hint=f"add one with {EXAMPLE}")
    return file, read_figures(read_table(file), only)


def _check_command(figure: Figure, params: Mapping[str, Any]) -> list[str]:
    command = ["check", figure.target, "--against", str(figure.graph), *_model_arguments(figure.arguments), "-q"]
    for name in ("update", "finite", "json"):
        command += [f"--{name}"] if params[name] else []
    return command


def _model_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the options that make the model and its inputs; what is drawn is as the graph file says."""
    kept = ("-a", "-i", "--inputs", "--weights", "--seed", "--device")
    pairs = pairwise(arguments)
    found = [word for option, value in pairs if option in kept for word in (option, value)]
    return found + [flag for flag in ("--unsafe-load", "--allow-download", "--autocast") if flag in arguments]


def _say_messages(name: str, text: str, *, is_shown: bool) -> None:
    for line in text.splitlines() if is_shown else ():
        sys.stderr.write(f"{name}: {line}\n")


def _print_table(built: Sequence[BuiltFigure]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("figure", "state"):
        table.add_column(head, overflow="fold")
    for head in ("stages", "parameters"):
        table.add_column(head, justify="right", overflow="fold")
    table.add_column("fingerprint", overflow="fold")
    for found in built:
        counts = ("", "") if found.state == "failed" else (f"{found.num_stages:,}", f"{found.num_params:,}")
        table.add_row(found.figure.name, _WORDS[found.state], *counts, found.fingerprint[:12])
    Console(highlight=False, markup=False, emoji=False).print(table)
