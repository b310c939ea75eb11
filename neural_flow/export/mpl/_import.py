"""Import of the drawing code, and with it of matplotlib, without a word on stderr and without a trace on disk."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from types import ModuleType


def load_canvas() -> ModuleType:
    """Return the module that draws; matplotlib is imported at the first call."""
    with _settings_folder():
        return importlib.import_module("neural_flow.export.mpl._canvas")


@contextlib.contextmanager
def _settings_folder() -> Generator[None]:
    """Where the user has no writable home, lend matplotlib a folder for the time of its import."""
    if "matplotlib" in sys.modules or os.environ.get("MPLCONFIGDIR") or _has_writable_home():
        yield
        return
    with tempfile.TemporaryDirectory(prefix="neural-flow-") as folder:
        os.environ["MPLCONFIGDIR"] = folder
        try:
            yield
        finally:
            os.environ.pop("MPLCONFIGDIR", None)


def _has_writable_home() -> bool:
    try:
        home = Path.home()
    except RuntimeError:
        return False
    folders = [Path(os.environ.get(name) or home / rest) for name, rest in (
        ("XDG_CONFIG_HOME", ".config"), ("XDG_CACHE_HOME", ".cache"),
    )]  # fmt: skip
    return all(os.access(_nearest_existing(folder / "matplotlib"), os.W_OK) for folder in folders)


def _nearest_existing(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder
