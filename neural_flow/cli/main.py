"""The entry point, and the only place that turns errors into exit codes."""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

import typer
import typer.main

from neural_flow.cli.app import app
from neural_flow.cli.console import (
    say,
    show_bug,
    show_error,
    show_shadow,
    shown_warnings,
    stdout_refused,
    usable_streams,
)
from neural_flow.cli.defaults import defaults_for
from neural_flow.cli.shadows import shadowing_file
from neural_flow.errors import ExportError, ForwardError, ModelLoadError, NeuralFlowError

EXIT_BUG = 70
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
EXIT_INTERRUPTED = 130
NARROW = 78
"""Columns below which help is plain text: a table would break words there."""
COMPLETION_VARIABLE = "_NEURAL_FLOW_COMPLETE"
"""Set by the shell while it asks what could come next."""
# typer has carried its own copy of click since 0.26: its errors are reached through the one that typer exports
_COMMAND_LINE_ERROR: type[Any] = typer.BadParameter.__mro__[2]


def main(argv: Sequence[str] | None = None) -> int:
    """Run neural-flow on ``argv`` (those of the process without its name, if None) and return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    with usable_streams():
        return _answer(arguments)


def _answer(arguments: list[str]) -> int:
    is_debug = "--debug" in arguments
    try:
        with shown_warnings():
            code = _run(arguments)
        _flush_stdout()
        return code
    except NeuralFlowError as error:
        show_error(error, is_debug=is_debug)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        say("error", "interrupted; nothing half-written is left")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _close_stdout()
        return 0  # whoever read the result has read enough
    except SystemExit as stop:
        return _after_exit(stop)
    except OSError as error:
        if error.errno not in NO_SPACE:
            show_bug(error)
            return EXIT_BUG
        _close_stdout()
        show_error(stdout_refused(error), is_debug=is_debug)
        return ExportError.exit_code
    except Exception as error:
        if isinstance(error, _COMMAND_LINE_ERROR):
            _show_command_line_error(error, arguments)
            return 2
        if (file := shadowing_file(error)) is not None:
            show_shadow(error, file)
            return ModelLoadError.exit_code
        show_bug(error)
        return EXIT_BUG


def _flush_stdout() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _close_stdout()
        raise stdout_refused(error) from error


def _run(arguments: list[str]) -> int:
    command: Any = typer.main.get_command(app)
    if shutil.get_terminal_size().columns < NARROW:
        for one in (command, *command.commands.values()):
            one.rich_markup_mode = None
    defaults = defaults_for(command.commands) if _runs_something(arguments) else {}
    result = command.main(args=arguments, prog_name="neural-flow", standalone_mode=False, default_map=defaults)
    if result == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0


def _runs_something(arguments: list[str]) -> bool:
    """Return whether defaults matter; help and the version answer in a folder with a broken pyproject too."""
    return bool(arguments) and not {"--help", "-h", "--version"} & set(arguments)


def _show_command_line_error(error: Any, arguments: list[str]) -> None:
    found = str(error.format_message())
    if not found:  # no command at all: the help has been shown
        return
    context = getattr(error, "ctx", None)
    names = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
    command = arguments[:1] if arguments[:1] and arguments[0] in names else []
    path = context.command_path if context is not None else " ".join(["neural-flow", *command])
    near: list[str] = []
    if possibilities := getattr(error, "possibilities", None):
        found = f"there is no option {error.option_name}"
        near = _near_options(error.option_name, list(possibilities))
    say("error", f"cannot read the command line of {path}")
    say("cause", found)
    say("hint", f"did you mean {near[0]}?" if near else f"{path} --help lists what it takes")


def _near_options(option: str, known: list[str]) -> list[str]:
    """Return the option that was meant, if one is near; dashes, which all of them share, do not count."""
    by_word = {name.lstrip("-"): name for name in sorted(known)}
    begun = [name for word, name in by_word.items() if len(option) > 3 and word.startswith(option.lstrip("-"))]
    return begun[:1] or [
        by_word[word] for word in difflib.get_close_matches(option.lstrip("-"), by_word, n=1, cutoff=0.7)
    ]


def _after_exit(stop: SystemExit) -> int:
    """Return the exit code after something below has left the program: typer on a closed pipe, or the user's code."""
    if isinstance(stop.__context__, BrokenPipeError):
        _close_stdout()
        return 0
    if COMPLETION_VARIABLE in os.environ:
        return stop.code if isinstance(stop.code, int) else 0
    say("error", "the model's code left the program")
    say("cause", f"SystemExit: {stop.code}")
    say("hint", "take sys.exit() out of what runs when the model is called")
    return ForwardError.exit_code


def _close_stdout() -> None:
    """Point stdout nowhere, so that Python's own flush at exit does not fail again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
