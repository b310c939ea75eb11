"""Exporters by file suffix, and the one way in which files are written: whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from neural_flow.drawing import ExportOptions, Picture, Scene
from neural_flow.errors import ExportError
from neural_flow.registry import Registry

Exporter = Callable[[Picture, ExportOptions], bytes]
"""Returns the whole file. The same picture and options give the same bytes."""

EXPORTERS: Registry[Exporter] = Registry("exporter", "neural_flow.export")


def render_bytes(picture: Picture, suffix: str, options: ExportOptions | None = None) -> bytes:
    """Return the file of ``picture`` in the format of ``suffix`` (``.svg``; the dot may be missing).

    Raises:
        UnknownNameError: no exporter has this suffix; lists the choices.
        ExportError: the picture cannot be written in this format.
    """
    name = suffix.lower()
    return EXPORTERS.get(name if name.startswith(".") else f".{name}")(picture, options or ExportOptions())


def write_picture(picture: Picture, file: str | os.PathLike[str], options: ExportOptions | None = None) -> None:
    """Write ``picture`` to ``file``; its suffix names the format.

    The file appears whole: what stood there before stays until the new one is complete.

    Raises:
        UnknownNameError: no exporter has this suffix; lists the choices.
        ExportError: the file cannot be written; nothing half-written is left.
    """
    path = Path(file)
    write_whole(path, render_bytes(picture, path.suffix, options))


def write_whole(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``: what stood there before stays until all of it is written.

    Raises:
        ExportError: the file cannot be written; nothing half-written is left.
    """
    # A link stays a link: what it points at is replaced.
    target = Path(os.path.realpath(path))
    mode = _mode_for(target)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", suffix=".part", dir=target.parent)
    except OSError as cause:
        raise _refused(path, cause) from cause
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.chmod(name, mode)
        os.replace(name, target)
    except OSError as cause:
        raise _refused(path, cause) from cause
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def _mode_for(target: Path) -> int:
    """Return the permissions that an ordinary ``open`` would leave; mkstemp's own are for the owner alone."""
    try:
        return target.stat().st_mode & 0o777
    except OSError:
        umask = os.umask(0o077)
        os.umask(umask)
        return 0o666 & ~umask


def _refused(path: Path, cause: OSError) -> ExportError:
    folder = path.parent
    if not folder.exists():
        hint = f"the folder {str(folder)!r} does not exist; create it with: mkdir -p {str(folder)!r}"
    elif path.is_dir():
        hint = "this is a folder; name a file in it"
    elif cause.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = f"make room on the disk of {str(folder)!r} or choose another with -o"
    elif not os.access(folder, os.W_OK):
        hint = f"the folder {str(folder)!r} is not writable; choose another with -o"
    else:
        hint = "choose another file with -o"
    return ExportError(f"{str(path)!r} cannot be written: {cause.strerror or cause}", hint=hint)


def first_scene(picture: Picture, suffix: str) -> Scene:
    """Return the page that formats with one page show.

    Raises:
        ExportError: the picture holds data only.
    """
    if not picture.scenes:
        raise ExportError(
            f"there is no drawn page to write as {suffix}", hint="-o graph.json, .md and .txt need no drawn page"
        )
    return picture.scenes[0]
