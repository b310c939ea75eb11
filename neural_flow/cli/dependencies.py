"""What a figure was made from: the bytes of every file of the user's that was read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Generator, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from neural_flow.cli.loading import Job
from neural_flow.models._base import is_library_file
from neural_flow.models.stored import split_key

_FILE_OPTIONS = ("tokens", "class_labels", "font")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class _Watch:
    """Where the paths of opened files go; nowhere while nobody watches."""

    found: set[Path] | None = None
    is_installed = False


@contextlib.contextmanager
def watched_reads() -> Generator[set[Path]]:
    """Yield the set of files that Python opens for reading inside, such as a configuration that the model's file reads.

    Python offers no way to take such a watch away again: it is for a process that makes one figure and ends.
    """
    if not _Watch.is_installed:
        sys.addaudithook(_note_read)
        _Watch.is_installed = True
    _Watch.found = found = set[Path]()
    try:
        yield found
    finally:
        _Watch.found = None


def _note_read(event: str, arguments: tuple[Any, ...]) -> None:
    if _Watch.found is None or event != "open" or not isinstance(arguments[0], str):
        return
    if not (arguments[2] or 0) & _WRITING:
        _Watch.found.add(Path(arguments[0]).absolute())


def write_record(file: Path, job: Job, params: Mapping[str, Any], read: set[Path]) -> None:
    """Write to ``file``, as JSON, the SHA-256 of each file behind a figure, by its path from the working folder.

    Args:
        file: where to.
        job: the model with its inputs.
        params: the parameters of the command.
        read: what was opened while the model was made and ran.
    """
    found = {_short(path): path for path in (*_files(job, params), *_own(job, read))}
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


def _own(job: Job, read: set[Path]) -> Iterator[Path]:
    """Yield what was read of the user's: modules wherever they lie, other files of the project and the model's folder.

    Compiled modules of the interpreter stand for their source.
    """
    folders = [Path.cwd().resolve()]
    if job.loaded.file is not None:
        folders.append(job.loaded.file.resolve().parent)
    for file in read:
        path = _source_of(file.resolve())
        if not path.is_file() or is_library_file(path):
            continue
        if path.suffix == ".py" or any(path.is_relative_to(folder) for folder in folders):
            yield path


def _source_of(file: Path) -> Path:
    if file.suffix == ".pyc" and file.parent.name == "__pycache__":
        return file.parent.parent / f"{file.name.partition('.')[0]}.py"
    return file


def _short(file: Path) -> str:
    try:
        return Path(os.path.relpath(file, Path.cwd().resolve())).as_posix()
    except ValueError:  # on another drive
        return file.name
