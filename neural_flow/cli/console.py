"""What goes to stderr: progress, notes, warnings and errors. stdout carries the result alone."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from neural_flow.errors import ExportError, NeuralFlowError, NeuralFlowWarning

REPORT_HINT = "report it in the project's issues, with this text and the model, or a small one that shows it"
_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim", "cause": "bold", "hint": "green"}


def stderr_console() -> Console:
    """Return a console on the stderr of this moment; NO_COLOR, pipes and dumb terminals are plain."""
    return Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)


def say(kind: str, text: str) -> None:
    """Write ``kind: text`` to stderr on one line."""
    label = Text(f"{kind}: ".ljust(7) if kind in ("error", "cause", "hint") else f"{kind}: ", _STYLES.get(kind, ""))
    with contextlib.suppress(OSError, ValueError):  # a closed stderr must not hide the result
        stderr_console().print(label + Text(" ".join(text.split())))


def show_error(error: NeuralFlowError, *, is_debug: bool) -> None:
    """Write the three lines of an error: what was done, what was found, what to type next; code to copy below."""
    if is_debug:
        _show_traceback(error)
    what, _, found = str(error).partition("\n")
    say("error", what)
    if found:
        say("cause", found)
    elif error.__cause__ is not None:
        say("cause", _cause_text(error.__cause__))
    hint, _, code = error.hint.partition("\n")
    if hint:
        say("hint", hint)
    if code:  # lines to copy into a file: as they are
        with contextlib.suppress(OSError, ValueError):
            stderr_console().print(Text(code))


def show_bug(error: BaseException) -> None:
    """Write the traceback of an error that no user can have made, and where to report it."""
    _show_traceback(error)
    say("error", "this is a bug in neural-flow, not in your model")
    say("cause", _cause_text(error))
    say("hint", REPORT_HINT)


def show_shadow(error: BaseException, file: Path) -> None:
    """Say which file of the user's is taken for a library, so that the library cannot be loaded."""
    name = file.parent.name if file.name == "__init__.py" else file.stem
    say("error", f"a file of yours is taken for the library {name}: {file}")
    say("cause", _cause_text(error))
    say("hint", "give the file another name, or run neural-flow from another folder")


def _cause_text(error: BaseException) -> str:
    text = str(error)
    head = text.partition(":")[0]
    is_typed = head.isidentifier() and head.endswith(("Error", "Exception", "Interrupt", "Warning"))
    return text if is_typed else f"{type(error).__name__}: {text}" if text else type(error).__name__


def _show_traceback(error: BaseException) -> None:
    sys.stderr.write("".join(traceback.format_exception(error)))


@contextlib.contextmanager
def shown_warnings() -> Generator[None]:
    """Show each warning as one line on stderr; ours without their class, those of other code with their place."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        del file, line
        if issubclass(category, NeuralFlowWarning):
            say("warning", str(message))
        else:
            say("warning", f"{category.__name__}: {message} ({Path(filename).name}:{lineno})")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


class PhaseProgress:
    """A bar on stderr that counts phases, only where stderr is a terminal. A context manager.

    Args:
        num_phases: how many there will be, about; a phase more moves the end.
        is_quiet: show nothing.
    """

    def __init__(self, num_phases: int, *, is_quiet: bool) -> None:
        console = stderr_console()
        self._num_phases = num_phases
        self._num_done = 0
        self._task: TaskID | None = None
        self._progress: Progress | None = None
        if console.is_terminal and not is_quiet:
            columns = (
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.completed}/{task.total}"),
                TimeElapsedColumn(),
            )
            # the model's own prints are already led to stderr; rich must not lead them a second time
            self._progress = Progress(
                *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
            )

    def __enter__(self) -> PhaseProgress:
        if self._progress is not None:
            self._progress.start()
            self._task = self._progress.add_task("starting", total=self._num_phases)
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def phase(self, name: str) -> None:
        """Begin the phase called ``name``."""
        if self._progress is not None and self._task is not None:
            total = max(self._num_phases, self._num_done + 1)
            self._progress.update(self._task, description=name, completed=self._num_done, total=total)
        self._num_done += 1


@contextlib.contextmanager
def usable_streams() -> Generator[None]:
    """Write what a narrow encoding lacks as escapes, and swallow what goes to a closed stream; restore both on exit."""
    with contextlib.ExitStack() as stack:
        for name in ("stdout", "stderr"):
            stream: TextIO | None = getattr(sys, name)
            if stream is None:
                sink = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
                setattr(sys, name, sink)
                stack.callback(setattr, sys, name, None)
            elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
                stream.reconfigure(errors="backslashreplace")
                stack.callback(stream.reconfigure, errors="strict")
        yield


@contextlib.contextmanager
def prints_to_stderr() -> Generator[Callable[[bytes], None]]:
    """Lead everything printed inside to stderr, from C code and child processes too; yield a writer to real stdout."""
    real = sys.stdout
    descriptor = _descriptor(real)
    stderr_descriptor = _descriptor(sys.stderr)
    saved = os.dup(descriptor) if descriptor is not None and stderr_descriptor is not None else None
    real.flush()

    def write(data: bytes) -> None:
        try:
            if saved is not None:
                with os.fdopen(os.dup(saved), "wb") as stream:
                    stream.write(data)
            elif hasattr(real, "buffer"):
                real.buffer.write(data)
                real.flush()
            else:
                real.write(data.decode())
        except BrokenPipeError:
            raise
        except OSError as error:
            raise stdout_refused(error) from error

    try:
        if saved is not None and descriptor is not None and stderr_descriptor is not None:
            os.dup2(stderr_descriptor, descriptor)
        with contextlib.redirect_stdout(sys.stderr):
            yield write
    finally:
        if saved is not None and descriptor is not None:
            os.dup2(saved, descriptor)
            os.close(saved)


def stdout_refused(cause: OSError) -> ExportError:
    """Return the error of a stdout that takes no more, as on a full disk."""
    return ExportError(f"stdout cannot be written: {cause.strerror or cause}", hint="free space there, or use -o FILE")


def _descriptor(stream: TextIO) -> int | None:
    """Return the file descriptor of a standard stream; None where it has been replaced, as in notebooks and tests."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None
    return descriptor if descriptor in (1, 2) else None
