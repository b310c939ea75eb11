"""Every error that neural-flow raises on purpose, and the exit code of each.

::

    NeuralFlowError(Exception)                     .hint, .exit_code
    ├── UsageError(ValueError)              2      an option or shape text is malformed
    │   └── UnknownNameError(LookupError)   2      not in a registry; lists the choices and the nearest
    ├── ModelLoadError(ImportError)         3      the target could not be imported or built, or its weights do not fit
    ├── SampleInputError(ValueError)        3      inputs could not be made, or do not fit forward's signature
    ├── ForwardError(RuntimeError)          4      the model raised; carries where, and the input shapes at that moment
    ├── SelectionError(ValueError)          5      nothing to draw, or --strict refused a fallback
    └── ExportError(OSError)                6      the file cannot be written
    NeuralFlowWarning(UserWarning)
    ├── TopologyFallbackWarning                    a topology source was unavailable and another one answered
    └── CaptureSkippedWarning                      a stage has no picture, and why
    TopologyUnavailable(Exception)                 between a topology source and the chain; never reaches a user

Each class is also the built-in that a caller would catch. The message says what was being done, to which module
path, what was found and what was expected; the hint says what to type next.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class NeuralFlowError(Exception):
    """Base of every error raised on purpose. Tracebacks show the hint as a note."""

    exit_code = 70

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self._hint = ""
        self.hint = hint

    @property
    def hint(self) -> str:
        """What to type next; empty where nobody can tell."""
        return self._hint

    @hint.setter
    def hint(self, text: str) -> None:
        others = [note for note in getattr(self, "__notes__", ()) if note != f"hint: {self._hint}"]
        self._hint = text
        self.__notes__ = [*others, f"hint: {text}"] if text else others


class UsageError(NeuralFlowError, ValueError):
    """Raised when an option or a shape text is malformed."""

    exit_code = 2


class UnknownNameError(UsageError, LookupError):
    """Raised when a name is in no registry; lists the choices and the nearest match."""

    def __init__(self, what: str, name: str, choices: Iterable[str]) -> None:
        known = sorted(choices)
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "choose one of the known ones"
        super().__init__(f"unknown {what} {name!r}\nknown: {', '.join(known)}", hint=hint)
        self.choices = tuple(known)


class ModelLoadError(NeuralFlowError, ImportError):
    """Raised when the target cannot be imported or built, or its weights do not fit."""

    exit_code = 3


class SampleInputError(NeuralFlowError, ValueError):
    """Raised when inputs cannot be made, or do not fit the signature of forward."""

    exit_code = 3


class ForwardError(NeuralFlowError, RuntimeError):
    """Raised when the model itself raised.

    Attributes:
        module: path of the innermost module that was running (``""`` is the root).
        call: index of that call of the module.
        input_shapes: one text per tensor input of that call, such as ``float32 [1, 3, 8, 8]``.
        topology: what had run before the error, or None.
        drawing: the partial drawing, or None.
    """

    exit_code = 4

    def __init__(
        self, message: str, *, hint: str = "", module: str = "", call: int = 0, input_shapes: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, hint=hint)
        self.module = module
        self.call = call
        self.input_shapes = input_shapes
        self.topology: Any = None
        self.drawing: Any = None


class SelectionError(NeuralFlowError, ValueError):
    """Raised when there is nothing to draw, or ``--strict`` refused a fallback."""

    exit_code = 5


class ExportError(NeuralFlowError, OSError):
    """Raised when a file cannot be written."""

    exit_code = 6


class NeuralFlowWarning(UserWarning):
    """Base of every warning."""


class TopologyFallbackWarning(NeuralFlowWarning):
    """A topology source was unavailable, so another one answered."""


class CaptureSkippedWarning(NeuralFlowWarning):
    """A stage has no picture; the text says why."""


class UnusedOptionWarning(NeuralFlowWarning):
    """An option names something that is not in the figure."""


class TopologyUnavailable(Exception):
    """Raised by a topology source that cannot answer; the fallback chain catches it."""


def causes_of(error: BaseException) -> list[BaseException]:
    """Return ``error`` and what it was raised from or during, the newest first."""
    chain: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and all(following is not known for known in chain):
        chain.append(following)
        following = following.__cause__ or following.__context__
    return chain
