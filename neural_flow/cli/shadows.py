"""Files of the user's that carry the name of a library and are taken for it, such as a ``torch.py`` beside the model.

Nothing here imports torch: it may be what cannot be imported.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from neural_flow.errors import causes_of

_FOLDERS = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_OWN = Path(__file__).resolve().parents[1]


def shadowing_file(error: BaseException) -> Path | None:
    """Return the file of the user's that stood in the way of a library when ``error`` was raised, if one did."""
    for cause in causes_of(error):
        for name, file in _suspects(cause):
            if not _is_installed(file) and _is_library_name(name, Path(file)):
                return Path(file)
    return None


def _suspects(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield (top-level name, file) of the module that lacked what was asked of it."""
    if isinstance(error, ImportError) and error.name:
        top = error.name.partition(".")[0]
        found = PathFinder.find_spec(top)
        if found is not None and found.origin:
            yield top, found.origin
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType) and error.obj.__file__:
        yield error.obj.__name__, error.obj.__file__


def _is_library_name(name: str, file: Path) -> bool:
    """Return whether a library answers to ``name`` where the folder of ``file`` is not looked at."""
    if "." in name:
        return False
    package = file.parent.parent if file.name == "__init__.py" else file.parent
    elsewhere = [folder for folder in sys.path if Path(folder or ".").resolve() != package.resolve()]
    found = PathFinder.find_spec(name, elsewhere)
    return name in sys.stdlib_module_names or (
        found is not None and found.origin is not None and _is_installed(found.origin)
    )


def _is_installed(file: str) -> bool:
    path = Path(file).resolve()
    return "site-packages" in path.parts or any(path.is_relative_to(folder) for folder in (*_FOLDERS, _OWN))
