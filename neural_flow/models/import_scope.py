"""Import the user's files as ``python file.py`` would, and leave the interpreter as it was."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from neural_flow.models._base import is_library_file


class ImportScope:
    """The import state that the user's files need: their folders first on ``sys.path`` and their own modules loaded.

    A folder that they put on ``sys.path`` themselves counts as one of theirs.

    A context manager; it nests and may be entered again. On exit ``sys.path``, ``sys.argv``, the working folder,
    torch's default dtype and grad mode are as before, and every module from the user's folders has left
    ``sys.modules``: two files with their own ``utils.py`` never meet. Entering again brings back the same modules, so
    that an import inside ``forward`` works.

    Args:
        folders: what goes first on ``sys.path``, in this order.
        program: what the user's code sees as ``sys.argv[0]``.
    """

    def __init__(self, folders: list[Path], program: str) -> None:
        self._folders = [folder.resolve() for folder in folders]
        self._program = program
        self._added: list[Path] = []
        self._modules: dict[str, ModuleType] = {}
        self._inside: _InterpreterState | None = None
        self._outside: _InterpreterState | None = None
        self._evicted: dict[str, ModuleType] = {}
        self._before: dict[str, ModuleType] = {}
        self._depth = 0

    def __enter__(self) -> ImportScope:
        self._depth += 1
        if self._depth > 1:
            return self
        self._outside = _InterpreterState.now()
        if self._inside is None:
            sys.path[:0] = [str(folder) for folder in self._folders]
            sys.argv = [self._program]
        else:
            self._inside.restore()
        self._evicted = {name: sys.modules.pop(name) for name in self._names_in_the_way()}
        self._before = dict(sys.modules)
        sys.modules.update(self._modules)
        importlib.invalidate_caches()
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth or self._outside is None:
            return
        self._inside = _InterpreterState.now()
        self._added = [
            Path(folder).resolve() for folder in self._inside.path if folder not in self._outside.path and folder
        ]
        self._modules = {
            name: module
            for name, module in list(sys.modules.items())
            if self._before.get(name) is not module and self._is_own(module)
        }
        for name in self._modules:
            del sys.modules[name]
            if name in self._before:
                sys.modules[name] = self._before[name]
        sys.modules.update(self._evicted)
        self._before, self._evicted = {}, {}
        self._outside.restore()

    @property
    def files(self) -> tuple[Path, ...]:
        """The user's files that were imported in this scope, sorted; complete once the scope has been left."""
        found = (_file_of(module) for module in self._modules.values())
        return tuple(sorted({Path(file) for file in found if file and Path(file).is_file()}))

    def run_file(self, file: Path) -> ModuleType:
        """Run ``file`` as a module and return it; its ``__name__`` is never ``"__main__"``.

        Raises:
            Exception: whatever the file raises; ``SystemExit`` too.
        """
        package = package_name(file) if _has_relative_import(file) else ""
        if package:
            return importlib.import_module(f"{package}.{file.stem}")
        name = file.stem.replace(".", "_")
        while name in sys.modules or name in sys.stdlib_module_names:
            name = f"_{name}"
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise ImportError(f"Python has no loader for {file.name}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            sys.modules.pop(name, None)
            raise
        return module

    def _names_in_the_way(self) -> list[str]:
        """Return loaded modules of other folders that would answer to a name that a file of ours has."""
        own = {name for folder in self._folders for name in _importable_names(folder)}
        return [
            name
            for name, module in list(sys.modules.items())
            if name != "__main__"
            and name.partition(".")[0] in own
            and _file_of(module)
            and not is_library_file(_file_of(module))
        ]

    def _is_own(self, module: Any) -> bool:
        file = _file_of(module)
        if not file or is_library_file(file):
            return False
        path = Path(file).resolve()
        return any(path.is_relative_to(folder) for folder in (*self._folders, *self._added))


class _InterpreterState:
    """What user code may change at import: paths, arguments, the working folder, torch's defaults."""

    @classmethod
    def now(cls) -> _InterpreterState:
        state = cls()
        state.path, state.argv, state.folder = list(sys.path), list(sys.argv), os.getcwd()
        state.dtype, state.grad = torch.get_default_dtype(), torch.is_grad_enabled()
        return state

    def restore(self) -> None:
        sys.path[:], sys.argv = self.path, list(self.argv)
        os.chdir(self.folder)
        torch.set_default_dtype(self.dtype)
        torch.set_grad_enabled(self.grad)

    path: list[str]
    argv: list[str]
    folder: str
    dtype: torch.dtype
    grad: bool


def package_name(file: Path) -> str:
    """Return the dotted name of the package that holds ``file``; empty where its folder is no package."""
    return ".".join(reversed([folder.name for folder in _package_folders(file)]))


def folders_for(file: Path) -> list[Path]:
    """Return what ``sys.path`` needs: the folder of ``file``, and the one above the package that it lies in."""
    packages = list(_package_folders(file))
    return [file.parent, packages[-1].parent] if packages else [file.parent]


def _package_folders(file: Path) -> Iterator[Path]:
    folder = file.resolve().parent
    while (folder / "__init__.py").exists() and folder.name.isidentifier():
        yield folder
        folder = folder.parent


def _has_relative_import(file: Path) -> bool:
    """Return whether ``file`` can only run inside its package. Running ``__init__`` files unasked may cost or fail."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return False
    return any(isinstance(node, ast.ImportFrom) and node.level > 0 for node in ast.walk(tree))


def _importable_names(folder: Path) -> Iterator[str]:
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.suffix == ".py" or (entry / "__init__.py").exists():
            yield entry.stem


def _file_of(module: Any) -> str:
    """Return the file of a module, or its folder for a package without ``__init__``; empty for built-in ones."""
    try:
        file = getattr(module, "__file__", None)
        if file is None and (folders := list(getattr(module, "__path__", ()))):
            file = folders[0]
    except Exception:  # lazy modules of other libraries may fail at any attribute
        return ""
    return file if isinstance(file, str) else ""
