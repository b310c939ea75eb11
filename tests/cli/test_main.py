from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import neural_flow
from neural_flow.cli import rendering
from neural_flow.cli.main import main

Run = Callable[..., Any]
OPTIONS = (
    "-a", "--weights", "--unsafe-load", "--allow-download", "--seed", "--device", "--train", "--eval", "--autocast",
    "-i", "--input-size", "--inputs", "--batch-dim", "--sample", "--tokens", "--labels", "--detail", "--depth",
    "--select", "--exclude", "--type", "--max-stages", "--fold", "--no-fold", "--expand", "--collapse",
    "--topology", "--tracer", "--no-capture", "--capture-device", "--fake", "--attention", "--no-attention",
    "--heads", "--gradients", "--saved", "--color-by", "--stats", "--no-stats", "--strict", "--layout",
    "--direction", "--width", "--theme", "--transparent", "--cmap", "--norm", "--dpi", "--title", "--legend",
    "--no-legend", "--label", "--highlight", "--no-shapes", "--font", "--text-as-paths", "-o", "--format", "-q",
    "-v", "--debug",
)  # fmt: skip
PROBE = """
import sys
from neural_flow.cli.main import main
code = main(sys.argv[1:])
heavy = sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "numpy", "matplotlib", "PIL", "networkx"})
print("HEAVY", heavy, "CODE", code, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["render", "--help"], 0),
        (["--version"], 0),
        (["render", "--detial", "x"], 2),
        (["rendr"], 2),
        ([], 2),
    ],
)
def test_help_and_mistakes_never_import_torch(arguments: list[str], code: int) -> None:
    ran = subprocess.run([sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=True, cwd="/")
    assert f"HEAVY [] CODE {code}" in ran.stderr


def test_help_is_quick() -> None:
    def cpu_seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "neural_flow", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(cpu_seconds() for _ in range(3)) < 0.5  # 0.15 on an idle core: the slack is for busy machines


def test_the_version(run: Run) -> None:
    shown = run("--version").stdout
    assert shown.startswith(f"neural-flow {neural_flow.__version__} (torch {torch.__version__.partition('+')[0]}")


@pytest.mark.parametrize("width", ["20", "40", "200"])
@pytest.mark.parametrize("command", [[], ["render"], ["list"]])
def test_help_fits_any_terminal(run: Run, monkeypatch: pytest.MonkeyPatch, width: str, command: list[str]) -> None:
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setenv("NO_COLOR", "1")
    result = run(*command, "--help")
    assert result.code == 0
    assert "\x1b[" not in result.stdout


def test_a_narrow_terminal_breaks_no_word(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for width in ("30", "60", "80"):
        monkeypatch.setenv("COLUMNS", width)
        shown = run("render", "--help").stdout
        assert "…" not in shown
        assert "--allow-download" in shown


@pytest.mark.parametrize(
    ("option", "meant"),
    [("--bogus", None), ("--x", None), ("--out", "--output"), ("--themes", "--theme"), ("--colour-by", "--color-by")],
)
def test_only_an_option_that_is_near_is_suggested(run: Run, option: str, meant: str | None) -> None:
    result = run("render", "net.py", option)
    assert result.code == 2
    expected = f"did you mean {meant}?" if meant else "neural-flow render --help lists what it takes"
    assert result.lines["hint"] == expected


def test_every_option_of_the_contract_is_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = run("render", "--help").stdout
    assert [option for option in OPTIONS if option not in shown] == []


@pytest.mark.parametrize(
    ("arguments", "cause", "hint"),
    [
        (["render"], "Missing argument 'TARGET'", "render --help"),
        (["render", "net.py", "--detial", "op"], "no option --detial", "--detail"),
        (["render", "net.py", "--detail", "fine"], "'fine' is not one of", "render --help"),
        (["render", "net.py", "--depth", "deep"], "--depth", "render --help"),
        (["render", "net.py", "--dpi", "0"], "--dpi", "render --help"),
        (["rendr", "net.py"], "render", "neural-flow --help"),
        (["render", "net.py", "-o"], "-o", "render --help"),
    ],
)
def test_a_mistyped_command_costs_three_lines(run: Run, arguments: list[str], cause: str, hint: str) -> None:
    result = run(*arguments)
    assert result.code == 2
    assert result.stdout == ""
    assert list(result.lines) == ["error", "cause", "hint"]
    assert len(result.stderr.splitlines()) == 3
    assert cause in result.lines["cause"]
    assert hint in result.lines["hint"]


def test_a_bug_of_ours_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(params: Any) -> int:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(rendering, "run_render", fail)
    result = run("render", "net.py")
    assert result.code == 70
    assert "Traceback" in result.stderr
    assert "bug in neural-flow" in result.lines["error"]
    assert "report" in result.lines["hint"]


def test_an_interrupt_leaves_nothing_half_written(run: Run, folder: Path) -> None:
    (folder / "slow.py").write_text("raise KeyboardInterrupt")
    before = sorted(folder.iterdir())
    result = run("render", "slow.py")
    assert result.code == 130
    assert "Traceback" not in result.stderr
    assert [file for file in sorted(folder.iterdir()) if file.suffix != ""] == before


def test_debug_adds_the_traceback(run: Run, folder: Path) -> None:
    (folder / "bad.py").write_text("x = 1\nx.y")
    assert "Traceback" not in run("render", "bad.py").stderr
    assert 'bad.py", line 2' in run("render", "bad.py", "--debug").stderr


def test_a_reader_that_stops_is_no_error(folder: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "neural_flow", "list", "samples"]
    ran = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write_end)
    assert ran.returncode == 0
    assert "Traceback" not in ran.stderr
    assert "BrokenPipe" not in ran.stderr


@pytest.mark.parametrize("arguments", ["--help", "render --help", "rend·r", "render abs·nt.py"])
def test_a_narrow_encoding_is_no_bug(arguments: str, folder: Path) -> None:
    surroundings = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "neural_flow", *arguments.split()]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=surroundings)
    assert ran.returncode in (0, 2, 3)
    assert "Traceback" not in ran.stderr


def test_closed_streams_are_no_bug(folder: Path) -> None:
    for number in (1, 2):
        command = f"'{sys.executable}' -m neural_flow --version {number}>&-"
        ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
        assert ran.returncode == 0
        assert "Traceback" not in ran.stderr


def test_a_model_that_exits(run: Run, folder: Path) -> None:
    text = (folder / "net.py").read_text().replace('print("the model speaks")', "raise SystemExit(7)")
    (folder / "leaves.py").write_text(text)
    result = run("render", "leaves.py")
    assert result.code == 4
    assert "hint" in result.lines


def test_odd_surroundings(folder: Path) -> None:
    surroundings = {
        "PATH": os.environ["PATH"], "DISPLAY": ":99", "MPLBACKEND": "TkAgg", "NO_COLOR": "1", "COLUMNS": "20",
        "OMP_NUM_THREADS": "1", "MPLCONFIGDIR": str(folder / "absent"), "LC_ALL": "C",
    }  # fmt: skip
    command = [sys.executable, "-m", "neural_flow", "render", "net.py", "-o", "a.svg", "-o", "a.png"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=surroundings)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "a.svg\na.png\n"


def test_main_takes_the_arguments_of_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["neural-flow", "--version"])
    with contextlib.suppress(SystemExit):
        assert main() == 0
    assert "neural-flow" in capsys.readouterr().out
