"""One private folder a process, removed when it exits, and the sweep of folders whose process is dead."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import stat
import sys
import tempfile
import threading
import time
from pathlib import Path

if sys.platform != "win32":
    import fcntl
else:
    fcntl = None

PREFIX = "neural-flow-saved-"
_NAME = re.compile(re.escape(PREFIX) + r"(\d+)-\w+")
_LOCK_NAME = ".lock"
_SECONDS_TO_LOCK = 60.0

_guard = threading.Lock()
_folders: dict[tuple[int, Path], tuple[Path, int]] = {}


def private_folder(base: Path | None = None) -> Path:
    """Return this process's folder below ``base`` (default: the system's temporary folder), mode 0700.

    It is made on first use, after folders that dead processes left there were removed; made again where someone has
    removed it; and removed when this process exits.
    """
    root = Path(tempfile.gettempdir()) if base is None else base.absolute()
    with _guard:
        known = _folders.get((os.getpid(), root))
        if known is not None and known[0].is_dir():
            return known[0]
        if known is not None:
            os.close(known[1])
        if not any(pid == os.getpid() for pid, _ in _folders):
            atexit.register(remove_own_folders)
        sweep(root)
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=root))
        _folders[os.getpid(), root] = (folder, _take_lock(folder))
        return folder


def remove_own_folders() -> None:
    """Remove the folders of this process, not those that a parent process made before it forked."""
    with _guard:
        for pid, root in tuple(_folders):
            if pid == os.getpid():
                folder, lock = _folders.pop((pid, root))
                shutil.rmtree(folder, ignore_errors=True)
                with contextlib.suppress(OSError):
                    os.close(lock)


def sweep(root: Path) -> tuple[Path, ...]:
    """Remove the folders below ``root`` whose process is dead, and return them; those of other users stay."""
    removed: list[Path] = []
    with contextlib.suppress(OSError):
        for folder in root.iterdir():
            match = _NAME.fullmatch(folder.name)
            if match is not None and _is_ours(folder) and not _is_alive(folder, int(match[1])):
                shutil.rmtree(folder, ignore_errors=True)
                removed.append(folder)
    return tuple(removed)


def _is_ours(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        found = folder.lstat()
        return stat.S_ISDIR(found.st_mode) and (not hasattr(os, "getuid") or found.st_uid == os.getuid())
    return False


def _take_lock(folder: Path) -> int:
    """Lock a file in ``folder`` until this process ends, however it ends.

    The number of a process says little: it is used again later, and containers that share a temporary folder count
    on their own.
    """
    lock = os.open(folder / _LOCK_NAME, os.O_CREAT | os.O_RDWR, 0o600)
    if fcntl is not None:
        with contextlib.suppress(OSError):  # file systems without locks: the number of the process decides
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lock


def _is_alive(folder: Path, pid: int) -> bool:
    try:
        lock = os.open(folder / _LOCK_NAME, os.O_RDWR)
    except OSError:
        return _is_running(pid)
    try:
        if fcntl is None:
            return _is_running(pid)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return _is_running(pid)
    finally:
        os.close(lock)
    return _is_running(pid) and _age(folder) < _SECONDS_TO_LOCK


def _age(folder: Path) -> float:
    """Return how many seconds ago something was last made in ``folder``: a new one is not locked at once."""
    with contextlib.suppress(OSError):
        return time.time() - folder.stat().st_mtime
    return 0.0


def _is_running(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # signal 0 would end the process there; a folder too many is the smaller harm
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
