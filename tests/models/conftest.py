"""A folder with model files to load, and the three lines that a user would read of an error."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Return a function that writes a file into the working folder of the test."""
    monkeypatch.chdir(tmp_path)

    def write_file(name: str, text: str) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return Path(name)

    return write_file


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """Check that a test of a loader leaves the interpreter as it was."""
    path, argv, modules = list(sys.path), list(sys.argv), set(sys.modules)
    dtype, random_state = torch.get_default_dtype(), torch.get_rng_state()
    yield
    assert sys.path == path
    assert sys.argv == argv
    assert torch.get_default_dtype() == dtype
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.is_grad_enabled()
    files = {name: str(getattr(sys.modules[name], "__file__", "") or "") for name in set(sys.modules) - modules}
    # an environment of tests, or the checkout, may itself stand in the temporary folder
    own = [name for name, file in files.items() if file.startswith("/tmp") and "site-packages" not in file]
    assert not [name for name in own if name.partition(".")[0] != "neural_flow"]
