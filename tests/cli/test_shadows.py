"""Files with the name of a library are no harm to ``python -m``, and are named where they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from neural_flow.cli.shadows import shadowing_file


def run_module(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    surroundings = {**os.environ, **variables}
    command = [sys.executable, "-m", "neural_flow", "list", "themes"]
    return subprocess.run(command, cwd=folder, env=surroundings, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["torch.py", "json.py", "copy.py", "random/__init__.py"])
def test_the_working_folder_stands_before_no_library(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("x = 1")
    ran = run_module(folder)
    assert (ran.returncode, ran.stdout) == (0, "dark\nlight\nprint\n"), ran.stderr


@pytest.mark.parametrize("name", ["torch.py", "torch/__init__.py"])
def test_a_file_that_is_taken_for_a_library_is_named(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("x = 1")
    command = [sys.executable, "-m", "neural_flow", "render", "net.py", "-o", "net.png", "-q"]
    surroundings = {**os.environ, "PYTHONPATH": str(folder)}
    ran = subprocess.run(command, cwd=folder, env=surroundings, capture_output=True, text=True, check=False)
    assert ran.returncode == 3, ran.stderr
    assert f"a file of yours is taken for the library torch: {folder / name}" in ran.stderr
    assert "bug in neural-flow" not in ran.stderr


def test_errors_of_other_kinds_have_no_such_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_mine_9.py").write_text("x = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    for code in ("1 / 0", "import torch; torch.nothing", "from json import nothing", "from only_mine_9 import y"):
        with pytest.raises((ArithmeticError, AttributeError, ImportError)) as caught:
            exec(code, {})
        assert shadowing_file(caught.value) is None
    sys.modules.pop("only_mine_9", None)
