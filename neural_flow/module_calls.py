"""The module call stack: which module call is running now, and which call of that module it is."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

# Wrappers put a part of their own into the path of what they wrap; none of them is a module that a user wrote.
WRAPPER_PARTS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


_OWN_DICTS = frozenset(vars(nn.Module()))


@dataclass(slots=True, eq=False)
class CallFrame:
    """One running call. ``call_id`` counts calls in the order they were entered."""

    call_id: int
    path: str
    call_index: int
    module: nn.Module
    parent: CallFrame | None
    exception_at_entry: BaseException | None = None


def clean_path(path: str) -> str:
    """Return ``path`` without the parts that wrappers put into it."""
    return ".".join(part for part in path.split(".") if part not in WRAPPER_PARTS)


def module_paths(model: nn.Module) -> dict[nn.Module, str]:
    """Return the path of each module of ``model``, also of modules kept in plain lists, tuples and dicts.

    A wrapper (compiled, sharded, checkpointed) is left out: what it wraps stands under its path.
    """
    paths: dict[nn.Module, str] = {}
    for path, module in _walk(model, "", set()):
        if any(part in module._modules for part in WRAPPER_PARTS):
            continue
        paths.setdefault(module, clean_path(path))
    return paths


def _walk(root: nn.Module, prefix: str, seen: set[nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    for path, module in root.named_modules(prefix=prefix):
        if module in seen:
            continue
        seen.add(module)
        yield path, module
        for name, value in vars(module).items():
            if name not in _OWN_DICTS and isinstance(value, list | tuple | dict):
                items = value.items() if isinstance(value, dict) else enumerate(value)
                for key, child in items:
                    if isinstance(child, nn.Module) and child not in seen:
                        yield from _walk(child, f"{path}.{name}.{key}" if path else f"{name}.{key}", seen)


class ModuleCallStack:
    """Follow the module calls of one model in one thread, through global module hooks.

    A context manager; entering registers the hooks, leaving removes them. It does not nest with itself. Calls by
    other threads, of modules that are not the model's, and of ``forward`` without the call are not seen.

    Args:
        model: its modules are followed.
        on_enter: called as ``on_enter(frame, args)`` before forward.
        on_exit: called as ``on_exit(frame, args, kwargs, output)`` after forward; a result that is not None replaces
            the output. Not called for a call that raised.
        on_raise: called as ``on_raise(frame, args, kwargs, error)`` for a call that raised.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        on_enter: Callable[[CallFrame, tuple[Any, ...]], None] | None = None,
        on_exit: Callable[[CallFrame, tuple[Any, ...], dict[str, Any], Any], Any] | None = None,
        on_raise: Callable[[CallFrame, tuple[Any, ...], dict[str, Any], BaseException | None], None] | None = None,
    ) -> None:
        self.paths = module_paths(model)
        self.current: CallFrame | None = None
        self.num_calls = 0
        self._on_enter = on_enter
        self._on_exit = on_exit
        self._on_raise = on_raise
        self._call_counts: dict[nn.Module, int] = {}
        self._thread_id = 0
        self._handles: list[Any] = []

    def __enter__(self) -> ModuleCallStack:
        self._thread_id = threading.get_ident()
        self._handles = [
            register_module_forward_pre_hook(self._enter_call),
            # always_call: else a module that raises inside its parent's try would stay on the stack
            register_module_forward_hook(self._exit_call, with_kwargs=True, always_call=True),
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.current = None

    def _enter_call(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if threading.get_ident() != self._thread_id or module not in self.paths:
            return
        index = self._call_counts.get(module, 0)
        self._call_counts[module] = index + 1
        frame = CallFrame(self.num_calls, self.paths[module], index, module, self.current, sys.exception())
        self.num_calls += 1
        self.current = frame
        if self._on_enter is not None:
            self._on_enter(frame, args)

    def _exit_call(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> Any:
        # torch hands kwargs on only where forward returned; after an exception it calls with (args, output)
        if threading.get_ident() != self._thread_id or module not in self.paths:
            return None
        kwargs, output = rest if len(rest) == 2 else ({}, rest[0])
        frame = self.current
        while frame is not None and frame.module is not module:  # calls that a BaseException ended leave frames behind
            frame = frame.parent
        if frame is None:
            return None
        self.current = frame.parent
        error = sys.exception()
        if error is not None and error is not frame.exception_at_entry:
            if self._on_raise is not None:
                self._on_raise(frame, args, kwargs, error)
            return None
        return self._on_exit(frame, args, kwargs, output) if self._on_exit is not None else None
