from __future__ import annotations

import io
import os
import sys
import warnings

import pytest
from rich.console import Console

from neural_flow.cli import console
from neural_flow.errors import NeuralFlowWarning, UsageError


def test_three_lines(capsys: pytest.CaptureFixture[str]) -> None:
    console.show_error(UsageError("what was done\nwhat was found", hint="what to type"), is_debug=False)
    assert capsys.readouterr().err.splitlines() == [
        "error: what was done",
        "cause: what was found",
        "hint:  what to type",
    ]


def test_the_cause_of_an_error_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    error = UsageError("what", hint="type")
    error.__cause__ = KeyError("a")
    console.show_error(error, is_debug=False)
    assert "cause: KeyError: 'a'" in capsys.readouterr().err
    error.__cause__ = RuntimeError("ValueError: as the model said\nover two lines")
    console.show_error(error, is_debug=False)
    assert "cause: ValueError: as the model said over two lines" in capsys.readouterr().err


def test_brackets_and_long_lines_stay_as_they_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    text = "-i x=1,3:int64[0,1000) [red]:smile: " + "word " * 40
    console.say("hint", text)
    assert capsys.readouterr().err == f"hint:  {text.strip()}\n"


def test_warnings_take_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    with console.shown_warnings():
        warnings.simplefilter("always")
        warnings.warn("ours", NeuralFlowWarning, stacklevel=1)
        warnings.warn("theirs", UserWarning, stacklevel=1)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "warning: ours"
    assert second.startswith("warning: UserWarning: theirs (test_console.py:")


def test_prints_go_to_stderr_and_the_result_to_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    with console.prints_to_stderr() as write:
        print("from python")
        write(b"the result\n")
        sys.stdout.flush()
    assert sys.stdout is before
    print("after")
    captured = capfd.readouterr()
    assert "the result" in captured.out
    assert "after" in captured.out
    assert "from" not in captured.out
    assert "from python" in captured.err


def test_descriptors_come_back_after_an_error() -> None:
    stdout, descriptors = sys.stdout, len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with pytest.raises(KeyError), console.prints_to_stderr():
        raise KeyError
    assert sys.stdout is stdout
    assert not descriptors or len(os.listdir("/proc/self/fd")) == descriptors


def test_results_reach_a_stdout_that_is_only_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with console.prints_to_stderr() as write:
        write("été".encode())
    assert sys.stdout.getvalue() == "été"


def test_progress_shows_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_terminal, is_quiet, is_shown in ((True, False, True), (True, True, False), (False, False, False)):
        stream = io.StringIO()
        fake = Console(file=stream, force_terminal=is_terminal, width=80)
        monkeypatch.setattr(console, "stderr_console", lambda fake=fake: fake)
        with console.PhaseProgress(2, is_quiet=is_quiet) as progress:
            for name in ("one", "two", "three"):
                progress.phase(name)
        assert ("three" in stream.getvalue()) == is_shown
        assert bool(stream.getvalue()) == is_shown
