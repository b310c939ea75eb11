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
from typing import Literal


def load_drawing(name: Literal["_raster", "_vector"]) -> ModuleType:
    """Return the module of this package that draws; matplotlib is imported at the first call."""
    with _settings_folder():
        return importlib.import_module(f"neural_flow.export.mpl.{name}")


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
    named = [os.environ.get("XDG_CONFIG_HOME"), os.environ.get("XDG_CACHE_HOME")]
    return all(_can_write(Path(name) if name else home) for name in named)


def _can_write(folder: Path) -> bool:
    # A folder that is missing is not made for the sake of a font list, even where we may.
    return folder.is_dir() and os.access(folder, os.W_OK)
