"""The module call stack: which module call is running now, and which call of that module it is."""

from __future__ import annotations

import inspect
import sys
import threading
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType, TracebackType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.utils.parametrize import is_parametrized
from torch.utils.hooks import RemovableHandle

from neural_flow.torch_private import failure_of, forget_global_forward_hook, hooked_call_kwargs

# Wrappers put a part of their own into the path of what they wrap; none of them is a module that a user wrote.
WRAPPER_PARTS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")

OWN_ATTRIBUTES = frozenset(vars(nn.Module()))
ATOMS = frozenset({int, float, bool, str, bytes, type(None), torch.Size, torch.device, torch.dtype})
_CONTAINERS = frozenset({list, tuple, dict, OrderedDict, defaultdict})
_MAX_HELD = 10_000  # longer lists are data: a vocabulary holds no modules


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
    if "_" not in path:
        return path
    return ".".join(part for part in path.split(".") if part not in WRAPPER_PARTS)


def is_wrapper(module: nn.Module) -> bool:
    """Return whether a module only wraps another one for compiling, sharding or checkpointing."""
    return bool(module._modules) and any(part in module._modules for part in WRAPPER_PARTS)


def has_parametrizations(module: nn.Module) -> bool:
    """Return whether ``torch.nn.utils.parametrize`` computes a parameter of this module."""
    return "parametrizations" in module._modules and is_parametrized(module)


def _parametrizations_of(module: nn.Module) -> nn.Module | None:
    return module._modules["parametrizations"] if has_parametrizations(module) else None


@dataclass(frozen=True, slots=True, eq=False)
class ModuleTree:
    """Every module that belongs to a model, walked once.

    Attributes:
        paths: the path of each module but wrappers and those that compute parameters.
        children: the children of each module that has any.
        held: for every module, wrappers and those that compute parameters too, the names of the attributes in which
            the user can keep more than numbers, text and tuples of these.
    """

    paths: dict[nn.Module, str]
    children: dict[nn.Module, list[nn.Module]]
    held: dict[nn.Module, tuple[str, ...]]

    def held_values(self) -> Iterator[Any]:
        """Yield what the attributes in ``held`` hold now."""
        for module, names in self.held.items():
            for name in names:
                yield vars(module).get(name)


def module_tree(model: nn.Module) -> ModuleTree:
    """Walk the modules of ``model``, also those kept in plain lists, tuples and dicts.

    A wrapper (compiled, sharded, checkpointed) has no path: what it wraps stands under its path.
    """
    tree = ModuleTree({}, {}, {})
    computing: list[nn.Module] = []
    waiting = [("", model)]
    while waiting:
        path, module = waiting.pop()
        if module in tree.held:
            continue
        tree.held[module] = names = _held_names(module)
        if not is_wrapper(module):
            tree.paths[module] = clean_path(path)
        if named := _named_children(module, names):
            tree.children[module] = [child for _, child in named]
            waiting += [(f"{path}.{name}" if path else name, child) for name, child in reversed(named)]
        if (computed := _parametrizations_of(module)) is not None:
            computing.append(computed)
    while computing:
        module = computing.pop()
        if module not in tree.held:
            tree.held[module] = names = _held_names(module)
            computing += [child for _, child in _named_children(module, names)]
    return tree


def module_paths(model: nn.Module) -> dict[nn.Module, str]:
    """Return the path of each module of ``model``, as ``module_tree`` does."""
    return module_tree(model).paths


def all_modules(model: nn.Module) -> list[nn.Module]:
    """Return every module that belongs to ``model``: wrappers, parametrizations and those in plain containers too."""
    return list(module_tree(model).held)


def _held_names(module: nn.Module) -> tuple[str, ...]:
    found: list[str] = []
    for name, value in vars(module).items():
        kind = type(value)
        if kind in ATOMS or name in OWN_ATTRIBUTES or (kind is tuple and ATOMS.issuperset(map(type, value))):
            continue
        found.append(name)
    return tuple(found)


def _named_children(module: nn.Module, names: tuple[str, ...]) -> list[tuple[str, nn.Module]]:
    """Return (name, child) for the children of a module, those in the containers called ``names`` included.

    Modules that compute a parameter (``parametrizations``) belong to the parameter and are left out.
    """
    found: list[tuple[str, nn.Module]] = []
    if module._modules:
        computed = _parametrizations_of(module)
        found += [
            (name, child) for name, child in module._modules.items() if child is not None and child is not computed
        ]
    for name in names:
        value = vars(module)[name]
        if type(value) in _CONTAINERS and value:
            found += _held_modules(value, name, 0)
    return found


def _held_modules(container: Any, prefix: str, depth: int) -> Iterator[tuple[str, nn.Module]]:
    if len(container) > _MAX_HELD:
        return
    for key, item in container.items() if isinstance(container, dict) else enumerate(container):
        if isinstance(item, nn.Module):
            yield f"{prefix}.{key}", item
        elif type(item) in _CONTAINERS and depth < 3:
            yield from _held_modules(item, f"{prefix}.{key}", depth + 1)


def _num_positional(kind: type[nn.Module]) -> int:
    """Return how many positional arguments leave no room for keywords in calls of modules of this class."""
    forward = getattr(kind, "forward", None)  # scripted modules have one only by name
    if not isinstance(forward, FunctionType) or issubclass(kind, torch.jit.ScriptModule):
        return sys.maxsize
    code = forward.__code__
    has_more = code.co_kwonlyargcount or code.co_flags & inspect.CO_VARKEYWORDS
    return sys.maxsize if has_more else code.co_argcount - 1


class ModuleCallStack:
    """Follow the module calls of one model in one thread, through global module hooks.

    A context manager; entering registers the hooks, leaving removes them. It does not nest with itself. Calls by
    other threads, of modules that are not the model's, and of ``forward`` without the call are not seen.

    Args:
        model: its modules are followed.
        on_enter: called as ``on_enter(frame, args, kwargs)`` before forward; kwargs is None where torch hides them.
        on_exit: called as ``on_exit(frame, args, kwargs, output)`` after forward; a result that is not None replaces
            the output. Not called for a call that raised.
        on_raise: called as ``on_raise(frame, args, kwargs, error)`` for a call that raised.
        on_foreign: called as ``on_foreign(module)`` before a call of a module that does not belong to the model.
        paths: the paths of the modules to follow, where they are known already.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        on_enter: Callable[[CallFrame, tuple[Any, ...], dict[str, Any] | None], None] | None = None,
        on_exit: Callable[[CallFrame, tuple[Any, ...], dict[str, Any], Any], Any] | None = None,
        on_raise: Callable[[CallFrame, tuple[Any, ...], dict[str, Any], BaseException | None], None] | None = None,
        on_foreign: Callable[[nn.Module], None] | None = None,
        paths: dict[nn.Module, str] | None = None,
    ) -> None:
        self.paths = module_paths(model) if paths is None else paths
        self.current: CallFrame | None = None
        self.num_calls = 0
        self._on_enter = on_enter
        self._on_exit = on_exit
        self._on_raise = on_raise
        self._on_foreign = on_foreign
        self._call_counts: dict[nn.Module, int] = {}
        self._thread_id = 0
        self._has_kwargs = False
        self._num_positional: dict[type[nn.Module], int] = {}
        self._pre_handle: RemovableHandle | None = None
        self._handle: RemovableHandle | None = None

    def __enter__(self) -> ModuleCallStack:
        self._thread_id = threading.get_ident()
        self._has_kwargs = not failure_of("hooked_call_kwargs")
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        # compiled modules warn of any global hook; these two are meant to run
        warnings.filterwarnings("ignore", message=r"Using `torch.compile\(module\)` when there are global hooks")
        self._pre_handle = register_module_forward_pre_hook(self._enter_call)
        # always_call: else a module that raises inside its parent's try would stay on the stack
        self._handle = register_module_forward_hook(self._exit_call, with_kwargs=True, always_call=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pre_handle is not None and self._handle is not None:
            self._pre_handle.remove()
            forget_global_forward_hook(self._handle)
            self._warnings.__exit__(kind, error, trace)
        self._pre_handle = self._handle = None
        self.current = None

    def _enter_call(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if threading.get_ident() != self._thread_id:
            return
        path = self.paths.get(module)
        if path is None:
            if self._on_foreign is not None:
                self._on_foreign(module)
            return
        index = self._call_counts.get(module, 0)
        self._call_counts[module] = index + 1
        frame = self.current = CallFrame(self.num_calls, path, index, module, self.current, sys.exception())
        self.num_calls += 1
        if self._on_enter is not None:
            kwargs: dict[str, Any] | None = None
            if self._has_kwargs:
                kind = type(module)
                limit = self._num_positional.get(kind)
                if limit is None:
                    limit = self._num_positional[kind] = _num_positional(kind)
                is_full = len(args) >= limit and "forward" not in vars(module)
                kwargs = {} if is_full else hooked_call_kwargs(1)
            self._on_enter(frame, args, kwargs)

    def _exit_call(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> Any:
        # torch hands kwargs on only where forward returned; after an exception it calls with (args, output)
        if threading.get_ident() != self._thread_id:
            return None
        frame = self.current
        if (frame is None or frame.module is not module) and module not in self.paths:
            return None
        kwargs, output = rest if len(rest) == 2 else ({}, rest[0])
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
