"""A registry of named parts, filled by decorators, and the loader that imports a folder of them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from neural_flow.errors import UnknownNameError

T = TypeVar("T")


class Registry(Generic[T]):
    """Named parts of one kind. ``load`` imports the folder that holds them, on first look-up.

    Args:
        what: the kind in words, for error messages, such as ``"layout style"``.
        package: the package whose modules register parts when they are imported.
    """

    def __init__(self, what: str, package: str) -> None:
        self.what = what
        self._package = package
        self._parts: dict[str, T] = {}
        self._is_loaded = False

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds a part.

        Raises:
            ValueError: the name is taken; both owners are named.
        """

        def add(part: T) -> T:
            if name in self._parts and self._parts[name] is not part:
                raise ValueError(f"{self.what} {name!r} is registered twice: {self._parts[name]!r} and {part!r}")
            self._parts[name] = part
            return part

        return add

    def get(self, name: str) -> T:
        """Return the part called ``name``.

        Raises:
            UnknownNameError: no such part; lists the choices.
        """
        self._load()
        if name not in self._parts:
            raise UnknownNameError(self.what, name, self._parts)
        return self._parts[name]

    def names(self) -> tuple[str, ...]:
        """Return all names, sorted."""
        self._load()
        return tuple(sorted(self._parts))

    def items(self) -> Iterator[tuple[str, T]]:
        """Iterate over (name, part) pairs, sorted by name."""
        for name in self.names():
            yield name, self._parts[name]

    def _load(self) -> None:
        if not self._is_loaded:
            load_siblings(self._package)
            self._is_loaded = True


def load_siblings(package: str) -> None:
    """Import every public module of ``package``, in name order, so that its parts register themselves."""
    root = importlib.import_module(package)
    for info in sorted(pkgutil.iter_modules(root.__path__), key=lambda found: found.name):
        if not info.name.startswith("_"):
            importlib.import_module(f"{package}.{info.name}")
