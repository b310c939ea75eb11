"""Let go of a deep autograd graph that was walked from Python: torch frees such a graph by recursion."""

from __future__ import annotations

import threading
from typing import Any

_BYTES_PER_NODE = 2048  # about 300 are used


class Disposal:
    """Holds what stands at the end of a graph, and drops it on exit. A context manager.

    Once ``deepen`` was called, a thread with a stack of the right size does the dropping. Enter it before anything else
    that may hold a part of the graph, so that this is dropped last.
    """

    def __init__(self) -> None:
        self.held: list[Any] = []
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Disposal:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
        self.held.clear()

    def deepen(self, num_nodes: int) -> None:
        """Make ready for a graph of ``num_nodes`` nodes.

        Raises:
            RuntimeError: the system gives no such stack.
        """
        usual = threading.stack_size()
        thread = threading.Thread(target=self._drop, name="neural-flow-disposal")
        try:
            threading.stack_size(num_nodes * _BYTES_PER_NODE)
            thread.start()
        except (RuntimeError, ValueError) as error:
            raise RuntimeError(f"this system gives no stack for a graph of {num_nodes:,} nodes") from error
        finally:
            threading.stack_size(usual)
        self._thread = thread

    def _drop(self) -> None:
        self._is_over.wait()
        self.held.clear()
