"""What every loader needs: where in the user's code an error arose, seeds, and commands that can be pasted."""

from __future__ import annotations

import contextlib
import random
import shlex
import sysconfig
import traceback
from collections.abc import Generator, Sequence
from pathlib import Path

import numpy as np
import torch

PROGRAM = "neural-flow"
PACKAGE_FOLDER = Path(__file__).resolve().parent.parent
_LIBRARY_FOLDERS = tuple(
    Path(folder).resolve()
    for key in ("stdlib", "platstdlib", "purelib", "platlib")
    if (folder := sysconfig.get_path(key))
)


def is_library_file(file: str | Path) -> bool:
    """Return whether ``file`` belongs to Python, to an installed package or to neural-flow, not to the user."""
    if str(file).startswith("<"):
        return True
    path = Path(file).resolve()
    if path.is_relative_to(PACKAGE_FOLDER):
        return not path.is_relative_to(PACKAGE_FOLDER / "sample_models")
    return "site-packages" in path.parts or any(path.is_relative_to(folder) for folder in _LIBRARY_FOLDERS)


def describe_error(error: BaseException) -> str:
    """Return ``Type: message (file:line)`` on one line, the place being the innermost one in the user's own code."""
    text = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    described = f"{type(error).__name__}: {text}" if text else type(error).__name__
    place = _user_place(error)
    return f"{described} ({place})" if place else described


def _user_place(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{short_path(error.filename)}:{error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not is_library_file(frame.filename):
            return f"{short_path(frame.filename)}:{frame.lineno}"
    return ""


def short_path(file: str | Path) -> str:
    """Return ``file`` relative to the working folder where it lies below, else as it is."""
    path = Path(file)
    with contextlib.suppress(ValueError, OSError):
        return str(path.resolve().relative_to(Path.cwd()))
    return str(path)


def render_command(target: str, *options: str) -> str:
    """Return a ``neural-flow render`` command that a shell reads as meant."""
    return shlex.join([PROGRAM, "render", target, *options])


def listed(names: Sequence[str], limit: int = 6) -> str:
    """Return ``a, b, c`` and how many more there are."""
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


@contextlib.contextmanager
def seeded(seed: int) -> Generator[None]:
    """Seed Python, numpy and torch inside; restore all their generators on exit. Nests."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    has_cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    devices = list(range(torch.cuda.device_count())) if has_cuda else []
    with torch.random.fork_rng(devices=devices):
        try:
            random.seed(seed)
            np.random.seed(seed % 2**32)
            torch.manual_seed(seed)
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)
