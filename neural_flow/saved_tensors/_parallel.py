"""Refuse DataParallel over several devices: its replicas run in threads that no hook of this thread reaches."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from torch import nn

_lock = threading.Lock()
_here = threading.local()
_num_active = 0
_forward: Callable[..., Any] | None = None


@contextmanager
def refusing_data_parallel(instrument: str) -> Generator[None]:
    """Make a DataParallel over two devices or more raise where this thread calls it.

    Raises:
        RuntimeError: from the call; the message names the fix.
    """
    names: list[str] = getattr(_here, "names", [])
    _here.names = [*names, instrument]
    _change(1)
    try:
        yield
    finally:
        _change(-1)
        _here.names = names


def _change(step: int) -> None:
    """Put the check in when the first context of the process opens, and take it out with the last one.

    Not a global module hook: that makes every module slower and breaks graphs of torch.compile.
    """
    global _num_active, _forward
    with _lock:
        _num_active += step
        if _num_active == 1 and _forward is None:
            _forward = nn.DataParallel.forward
            nn.DataParallel.forward = _checked(_forward)
        elif _num_active == 0 and _forward is not None:
            nn.DataParallel.forward = _forward
            _forward = None


def _checked(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def checked(self: nn.DataParallel[nn.Module], *args: Any, **kwargs: Any) -> Any:
        names = getattr(_here, "names", ())
        num_devices = len(getattr(self, "device_ids", ()))
        if names and num_devices > 1:
            raise RuntimeError(
                f"{names[-1]} does not reach the replicas of a DataParallel over {num_devices} devices: each one runs "
                "in a thread of its own, and hooks for saved tensors belong to one thread; enter the context inside "
                "forward of the wrapped module"
            )
        return forward(self, *args, **kwargs)

    return checked
