"""Every private PyTorch API that neural-flow touches, each with a self-test.

``require`` runs the self-test of an API once and raises a clear error where this torch lacks it, so that only the
instrument that needs it refuses. Nothing here is needed by ``render`` without a fallback.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

_SELF_TESTS: dict[str, Callable[[], bool]] = {}
_RESULTS: dict[str, str] = {}


def self_test(name: str) -> Callable[[Callable[[], bool]], Callable[[], bool]]:
    """Return a decorator that registers a self-test: a function that returns True where the API works as we use it."""

    def add(test: Callable[[], bool]) -> Callable[[], bool]:
        _SELF_TESTS[name] = test
        return test

    return add


def failure_of(name: str) -> str:
    """Return why the private API ``name`` cannot be used here; empty where it works. Tested once a process."""
    if name not in _RESULTS:
        try:
            _RESULTS[name] = "" if _SELF_TESTS[name]() else "it answers differently"
        except Exception as error:  # any failure of a private API means the same: not usable here
            _RESULTS[name] = f"{type(error).__name__}: {error}"
    return _RESULTS[name]


def require(name: str, instrument: str) -> None:
    """Refuse ``instrument`` where the private API ``name`` does not work.

    Raises:
        RuntimeError: this torch lacks the API, or it behaves differently.
    """
    if reason := failure_of(name):
        raise RuntimeError(
            f"{instrument} cannot work on torch {torch.__version__}: its private API {name!r} fails ({reason}); "
            "use the torch version that the neural-flow README names"
        )


def self_test_names() -> tuple[str, ...]:
    """Return the names of all registered self-tests, sorted."""
    return tuple(sorted(_SELF_TESTS))
