"""Path globs and class names: which calls a selector means."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from neural_flow.errors import SelectionError
from neural_flow.records import Trace

WRAPPER_PARTS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "module")
NUM_NEAREST = 3
MIN_LIKENESS = 0.6
"""Below, two names share letters by chance."""


@lru_cache(maxsize=256)
def compile_glob(pattern: str) -> re.Pattern[str]:
    """Return the expression of a path glob: ``*`` and ``?`` stay inside one segment, ``**`` crosses dots."""
    pieces = re.split(r"(\*\*|\*|\?|\[[^\]]*\])", pattern)
    text = ""
    for piece in pieces:
        if piece == "**":
            text += ".*"
        elif piece == "*":
            text += "[^.]*"
        elif piece == "?":
            text += "[^.]"
        elif piece.startswith("[") and piece.endswith("]") and len(piece) > 2:
            text += (
                "[" + ("^" if piece[1] in "!^" else "") + re.escape(piece[1:-1].lstrip("!^")).replace(r"\-", "-") + "]"
            )
        else:
            text += re.escape(piece)
    return re.compile(text + r"\Z", re.DOTALL)


def strip_wrappers(path: str) -> str:
    """Return a path or glob without the parts that wrappers put into it."""
    return ".".join(part for part in path.split(".") if part not in WRAPPER_PARTS)


def matches_path(pattern: str, path: str) -> bool:
    """Return whether a glob means a path, with or without the parts of wrappers on either side."""
    if compile_glob(pattern).match(path):
        return True
    bare_pattern, bare_path = strip_wrappers(pattern), strip_wrappers(path)
    if not bare_pattern and pattern:
        return not bare_path
    return (bare_pattern, bare_path) != (pattern, path) and compile_glob(bare_pattern).match(bare_path) is not None


def matches_class(pattern: str, class_name: str, qualified_name: str) -> bool:
    """Return whether a class name, bare or qualified or a glob of either, means a class."""
    return fnmatchcase(class_name, pattern) or fnmatchcase(qualified_name, pattern)


class Selector:
    """Answer which calls of a trace selectors mean."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._qualified = {module.path: module.qualified_name for module in trace.modules}

    def by_path(self, option: str, patterns: Sequence[str]) -> set[int]:
        """Return the calls whose path matches one of the globs.

        Raises:
            SelectionError: a glob matches no call.
        """
        return self._collect(option, patterns, self._paths_like)

    def by_class(self, option: str, patterns: Sequence[str]) -> set[int]:
        """Return the calls of modules of the classes.

        Raises:
            SelectionError: a class has no call.
        """
        return self._collect(option, patterns, self._classes_like, is_class=True)

    def by_either(self, option: str, patterns: Sequence[str]) -> set[int]:
        """Return the calls whose path or class matches.

        Raises:
            SelectionError: a pattern matches nothing.
        """
        return self._collect(option, patterns, lambda p: self._paths_like(p) or self._classes_like(p))

    def _collect(
        self, option: str, patterns: Sequence[str], find: Callable[[str], set[int]], *, is_class: bool = False
    ) -> set[int]:
        found: set[int] = set()
        for pattern in patterns:
            calls = find(pattern)
            if not calls:
                self._fail(option, pattern, is_class)
            found |= calls
        return found

    def _paths_like(self, pattern: str) -> set[int]:
        return {call.call_id for call in self._trace.calls if matches_path(pattern, call.path)}

    def _classes_like(self, pattern: str) -> set[int]:
        return {
            call.call_id
            for call in self._trace.calls
            if matches_class(pattern, call.class_name, self._qualified.get(call.path, call.class_name))
        }

    def _fail(self, option: str, pattern: str, is_class: bool) -> None:
        paths = list(dict.fromkeys(call.path for call in self._trace.calls if call.path))
        not_run = [
            module.path
            for module in self._trace.modules
            if module.path
            and (
                matches_class(pattern, module.class_name, module.qualified_name)
                if is_class
                else matches_path(pattern, module.path)
            )
        ]
        if not_run:
            raise SelectionError(
                f"{option} {pattern!r} matches {not_run[0]!r}, but it did not run with these inputs",
                hint=f"modules that ran: {_listing(paths)}",
            )
        classes = list(dict.fromkeys(call.class_name for call in self._trace.calls))
        near = nearest(pattern, classes if is_class else [*paths, *classes])
        listed = f"classes that ran: {_listing(classes)}" if is_class else f"modules that ran: {_listing(paths)}"
        hint = f"nearest: {', '.join(near)}" if near else listed
        raise SelectionError(f"{option} {pattern!r} matches no module that ran", hint=hint)


def nearest(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names most like a pattern, best first."""
    known = list(dict.fromkeys(names))
    bare = pattern.replace("*", "").strip(".")
    near = difflib.get_close_matches(bare, known, n=NUM_NEAREST, cutoff=MIN_LIKENESS)
    last = bare.rpartition(".")[2].lower()
    inside = [name for name in known if len(last) > 1 and last in name.lower()]
    return list(dict.fromkeys([*near, *inside]))[:NUM_NEAREST]


def _listing(paths: list[str]) -> str:
    shown = ", ".join(paths[:6])
    return shown + (", ..." if len(paths) > 6 else "")
