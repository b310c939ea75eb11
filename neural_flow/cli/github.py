"""What GitHub Actions reads from a step: annotations, and the job's summary."""

from __future__ import annotations

import os
import sys
from pathlib import Path

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
_FOR_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_FOR_PROPERTIES = {**_FOR_DATA, ":": "%3A", ",": "%2C"}


def is_on_github() -> bool:
    """Return whether this process is a step of a workflow."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def annotate(text: str, *, title: str, file: str | None = None) -> None:
    """Write one ``::error`` line to stderr, on GitHub alone; the pull request shows it, at ``file`` if there is one."""
    if not is_on_github():
        return
    properties = {"file": file, "title": title} if file is not None and Path(file).is_file() else {"title": title}
    listed = ",".join(f"{name}={_escaped(str(value), _FOR_PROPERTIES)}" for name, value in properties.items())
    sys.stderr.write(f"::error {listed}::{_escaped(text, _FOR_DATA)}\n")


def add_summary(markdown: str) -> bool:
    """Append to the summary of the job; return whether there is one."""
    file = os.environ.get(SUMMARY_VARIABLE)
    if not file:
        return False
    with open(file, "a", encoding="utf-8") as stream:
        stream.write(markdown)
    return True


def _escaped(text: str, table: dict[str, str]) -> str:
    return "".join(table.get(char, char) for char in text)
