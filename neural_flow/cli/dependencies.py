"""What a figure was made from: the bytes of every file of the user's that was read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from neural_flow.cli.loading import Job
from neural_flow.models.stored import split_key

_FILE_OPTIONS = ("tokens", "class_labels", "font")


def write_record(file: Path, job: Job, params: Mapping[str, Any]) -> None:
    """Write to ``file``, as JSON, the SHA-256 of each file behind a figure, by its path below the working folder."""
    found = {_short(path): path for path in _files(job, params)}
    sources = {name: hashlib.sha256(found[name].read_bytes()).hexdigest() for name in sorted(found)}
    file.write_text(json.dumps({"sources": sources, "torch": version("torch")}), encoding="utf-8")


def _files(job: Job, params: Mapping[str, Any]) -> Iterator[Path]:
    candidates = [job.loaded.file, *job.loaded.scope.files, *job.inputs.files]
    candidates += [Path(params[name]) for name in _FILE_OPTIONS if params.get(name) is not None]
    if params["weights"] is not None:
        candidates.append(split_key(params["weights"])[0])
    for candidate in candidates:
        if candidate is not None and candidate.is_file():
            yield candidate.resolve()


def _short(file: Path) -> str:
    folder = Path.cwd().resolve()
    return file.relative_to(folder).as_posix() if file.is_relative_to(folder) else file.name
