"""Private folders: nobody else can read them, and none outlives its process."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from neural_flow.saved_tensors import _folders

ROOT = Path(__file__).parents[2]

STEP = """
import os, sys, time
import torch
from neural_flow.saved_tensors import offload_saved_tensors
x = torch.randn(2000, requires_grad=True)
with offload_saved_tensors(folder=sys.argv[1]) as offload:
    y = x.exp().sin().tanh()
assert offload.num_files == 2
"""


BARE = """
import sys, time
from pathlib import Path
from neural_flow.saved_tensors._folders import private_folder
folder = private_folder(Path(sys.argv[1]))
for number in range(2):
    (folder / f"{number}.pt").write_bytes(b"x")
"""


def run(code: str, base: Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(base)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        **options,  # type: ignore[arg-type]  # handed on
    )


@pytest.fixture(autouse=True)
def own_folders_removed():
    before = set(_folders._folders)
    yield
    for key in set(_folders._folders) - before:
        folder, lock = _folders._folders.pop(key)
        os.close(lock)
        assert not folder.exists() or folder.is_dir()


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_folder_is_private_named_for_the_process_and_one(tmp_path):
    folder = _folders.private_folder(tmp_path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert folder.name.startswith(f"neural-flow-saved-{os.getpid()}-")
    assert _folders.private_folder(tmp_path) == folder
    assert _folders.sweep(tmp_path) == ()


def test_folder_that_someone_removed_is_made_again(tmp_path):
    folder = _folders.private_folder(tmp_path)
    (folder / ".lock").unlink()
    folder.rmdir()
    other = _folders.private_folder(tmp_path)
    assert other.is_dir()
    assert other != folder


def test_only_folders_of_dead_processes_are_swept(tmp_path):
    stale = tmp_path / f"neural-flow-saved-{dead_pid()}-abc"
    own = tmp_path / f"neural-flow-saved-{os.getpid()}-abc"
    other_name = tmp_path / f"neural-flow-other-{dead_pid()}-abc"
    file = tmp_path / f"neural-flow-saved-{dead_pid()}-file"
    link = tmp_path / f"neural-flow-saved-{dead_pid()}-link"
    for folder in (stale, own, other_name):
        folder.mkdir()
        (folder / "0.pt").write_bytes(b"x")
    file.write_bytes(b"x")
    link.symlink_to(other_name)
    _folders.private_folder(tmp_path)
    assert not stale.exists()
    assert (own / "0.pt").exists()
    assert (other_name / "0.pt").exists()
    assert file.exists()
    assert link.is_symlink()


def test_lock_decides_where_the_number_of_the_process_says_something_else(tmp_path):
    """A number may have been given to another process; in another container it means nothing."""
    held = tmp_path / f"neural-flow-saved-{dead_pid()}-held"
    released = tmp_path / f"neural-flow-saved-{os.getpid()}-released"
    held.mkdir()
    released.mkdir()
    lock = _folders._take_lock(held)
    os.close(_folders._take_lock(released))
    os.utime(released, (time.time() - 3600,) * 2)
    assert _folders.sweep(tmp_path) == (released,)
    assert held.exists()
    os.close(lock)
    assert _folders.sweep(tmp_path) == (held,)


@pytest.mark.parametrize("code", [BARE, pytest.param(STEP, marks=pytest.mark.slow)], ids=["folder", "offload"])
def test_nothing_is_left_after_a_normal_exit_with_the_graph_alive(tmp_path, code):
    done = run(code + "print(folder if 'folder' in dir() else offload.folder)", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_nothing_is_left_after_an_error_that_holds_the_graph(tmp_path):
    done = run(STEP + "raise RuntimeError('stop')", tmp_path)
    assert done.returncode == 1
    assert list(tmp_path.iterdir()) == []


def killed_in_the_middle(code: str, base: Path) -> Path:
    """Run ``code`` until it says that it is ready, run it again beside, kill the first, and return its folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", code + "print('ready', flush=True)\ntime.sleep(60)", str(base)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    (folder,) = base.iterdir()
    alive = run(code, base)
    assert (alive.returncode, alive.stderr) == (0, "")
    assert len(list(folder.glob("*.pt"))) == 2  # a living process keeps its files
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    return folder


@pytest.mark.parametrize("code", [BARE, pytest.param(STEP, marks=pytest.mark.slow)], ids=["folder", "offload"])
def test_what_a_killed_process_left_goes_when_the_next_one_starts(tmp_path, code):
    folder = killed_in_the_middle(code, tmp_path)
    assert folder.exists()
    assert run(code, tmp_path).returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_leaves_the_files_of_its_parent_alone(tmp_path):
    code = STEP + textwrap.dedent(
        """
        import gc
        child = os.fork()
        if child == 0:
            del y, x
            gc.collect()
            z = torch.ones(2000, requires_grad=True)
            with offload_saved_tensors(folder=sys.argv[1]) as own:
                z = z.exp()
            assert own.folder != offload.folder
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert len(list(offload.folder.glob("*.pt"))) == 2
        y.sum().backward()
        assert torch.isfinite(x.grad).all()
        """
    )
    done = run(code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []
