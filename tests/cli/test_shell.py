"""What a shell and a machine may do to a command: interrupts, full disks, folders that refuse, odd terminals."""

from __future__ import annotations

import errno
import io
import os
import pickle
import resource
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neural_flow.cli.main import main

Run = Callable[..., Any]
SLEEPY = """\
import sys
import time

import torch
from torch import nn


class Sleepy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        x = self.layer(x)
        open("running", "w").close()
        time.sleep(60)
        return x


example_inputs = torch.ones(1, 2)
"""


def interrupted(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Start a command, press Ctrl-C as soon as the model runs, and return what it left."""
    process = subprocess.Popen(
        [sys.executable, "-m", "neural_flow", *arguments], cwd=folder, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        while process.poll() is None and not (folder / "running").exists():
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.05)
        os.killpg(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)


def test_ctrl_c_leaves_nothing_half_written(folder: Path) -> None:
    (folder / "sleepy.py").write_text(SLEEPY)
    before = sorted(folder.iterdir())
    ran = interrupted(folder, "render", "sleepy.py", "-o", "a.svg", "-o", "b.json")
    assert ran.returncode == 130
    assert ran.stdout == ""
    assert "Traceback" not in ran.stderr
    assert "interrupted" in ran.stderr
    (folder / "running").unlink()
    left = [file for file in sorted(folder.iterdir()) if file.name != "__pycache__"]
    assert left == before


@pytest.mark.slow
def test_ctrl_c_ends_every_process_of_a_build(folder: Path) -> None:
    (folder / "sleepy.py").write_text(SLEEPY)
    entry = '[[tool.neural-flow.figures]]\nname = "{0}"\ntarget = "sleepy.py"\noutputs = ["{0}.svg"]\n'
    (folder / "pyproject.toml").write_text("".join(entry.format(name) for name in "abc"))
    ran = interrupted(folder, "build", "--jobs", "2")
    assert ran.returncode == 130
    assert "Traceback" not in ran.stderr
    assert {file.suffix for file in folder.iterdir()} == {"", ".py", ".toml"}


def test_a_full_disk(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("render", "net.py", "-o", "b.md", "-o", "big.svg").code == 0
    small, large = ((folder / name).stat().st_size for name in ("b.md", "big.svg"))
    assert small + 100 < large
    (folder / "b.md").unlink()
    (folder / "a.svg").write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (small + 100, hard))
    try:
        result = run("render", "net.py", "-o", "a.svg", "-o", "b.md")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert result.code == 6, result.stderr
    assert (folder / "a.svg").read_text() == "old"
    assert (folder / "b.md").exists(), "what fits is written"
    assert not [file for file in folder.iterdir() if file.suffix == ".part"]


class FullStream(io.StringIO):
    """A stdout on a full disk, which says so when it is written or flushed."""

    def __init__(self, *, is_buffered: bool) -> None:
        super().__init__()
        self._is_buffered = is_buffered

    def write(self, text: str) -> int:
        if self._is_buffered:
            return len(text)
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self) -> None:
        if self._is_buffered:
            raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("is_buffered", [True, False])
def test_a_full_stdout(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_buffered: bool
) -> None:
    for arguments in (["render", "net.py", "-o", "-", "--format", "svg"], ["list"]):
        if is_buffered and arguments[0] == "render":
            continue  # the figure goes past any buffer
        monkeypatch.setattr(sys, "stdout", FullStream(is_buffered=is_buffered))
        assert main(arguments) == 6
        shown = capsys.readouterr().err
        assert "stdout cannot be written: No space left on device" in shown
        assert "Traceback" not in shown


def test_a_folder_that_takes_no_files(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/proc")  # refuses root too
    result = run("render", str(folder / "net.py"))
    assert result.code == 6
    assert "net.svg" in result.lines["error"]
    assert "hint" in result.lines


@pytest.mark.parametrize("option", ["--weights", "-i"])
def test_a_malicious_pickle_does_not_run(run: Run, folder: Path, option: str) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(folder / "pwned"),)

    (folder / "bomb.pt").write_bytes(pickle.dumps({"x": Bomb()}))
    result = run("render", "net.py", option, "bomb.pt" if option == "--weights" else "x=@bomb.pt")
    assert result.code == 3
    assert not (folder / "pwned").exists()
    assert "hint" in result.lines


def test_names_are_data_in_every_format(run: Run, folder: Path) -> None:
    names = [
        "a<b>&\"c'",
        "$x_1$",
        "p|q`r`",
        "new:port{}",
        "</script><script>x",
        "\u202eright",
        "[link](x)",
        "%0A::error",
    ]
    (folder / "odd.py").write_text(
        "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n"
        f"        self.parts = nn.ModuleDict({{name: nn.Linear(2, 2) for name in {names!r}}})\n\n"
        "    def forward(self, x):\n        for part in self.parts.values():\n            x = part(x)\n"
        "        return x\n\n\n"
        "example_inputs = torch.ones(1, 2)\n"
    )
    files = ["o.svg", "o.html", "o.md", "o.json", "o.txt", "o.png", "o.pdf"]
    result = run("render", "odd.py", "--no-fold", *[word for file in files for word in ("-o", file)])
    assert result.code == 0, result.stderr
    ElementTree.parse(folder / "o.svg")
    page = (folder / "o.html").read_text()
    assert "<script>x" not in page
    assert "<b>&" not in page
    assert "::error" not in result.stderr.splitlines()
    for line in (folder / "o.md").read_text().splitlines():
        if line.startswith("|"):
            assert line.replace("\\|", "").count("|") == line.count(" | ") + 2
    why = run("why", "odd.py", "parts.a<b>&\"c'", "parts.$x_1$")
    assert why.code == 0, why.stderr


def test_a_terminal_of_any_kind_shows_the_table(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in (("COLUMNS", "20"), ("NO_COLOR", "1"), ("TERM", "dumb")):
        monkeypatch.setenv(variable, value)
    for arguments in (["list"], ["why", "net.py", "stem", "head"], ["check", "net.py", "--finite"]):
        result = run(*arguments)
        assert result.code == 0, result.stderr
        assert "\x1b" not in result.stdout + result.stderr


def test_progress_is_for_terminals_alone(run: Run, folder: Path) -> None:
    assert run("render", "net.py", "-o", "a.svg", "-q").stderr == "the model speaks\n" * 2
    noisy = run("render", "net.py", "-o", "a.svg", "-v").stderr
    assert len(noisy) > len("the model speaks\n" * 2)
    assert all(line.startswith(("note: ", "the model speaks")) for line in noisy.splitlines())


def test_a_shell_can_complete(folder: Path) -> None:
    surroundings = {
        **os.environ,
        "_NEURAL_FLOW_COMPLETE": "complete_bash",
        "COMP_WORDS": "neural-flow re",
        "COMP_CWORD": "1",
    }
    code = "import sys; from neural_flow.cli.main import main; sys.argv = ['neural-flow']; sys.exit(main())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=surroundings, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["render"]
    assert ran.stderr == ""
