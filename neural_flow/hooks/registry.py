"""What is registered on one wrapped module: the hooks, their kinds and their handles."""

from __future__ import annotations

import inspect
import itertools
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

ForwardPreHook: TypeAlias = Callable[[Any], Any]
"""``hook(x) -> x``: receives the input of the module and returns the input to go on with."""

ForwardHook: TypeAlias = Callable[[Any, Any], Any]
"""``hook(x, y) -> y``: receives the input that the layer saw and the output; returns the output to go on with."""

BackwardHook: TypeAlias = Callable[[Any], Any]
"""``hook(g) -> g``: receives the gradient with respect to the module output; returns the gradient to go on with."""

_registry_ids = itertools.count()
_registries: weakref.WeakValueDictionary[int, HookRegistry] = weakref.WeakValueDictionary()


class HookKind(IntEnum):
    """The three kinds of registration.

    ``HookKind.from_("backward")`` reads a field name or an integer. ``from`` is a keyword of Python, so that the same
    function is reached by that name only as ``getattr(HookKind, "from")``.
    """

    forward_pre = 0
    forward = 1
    backward = 2

    @classmethod
    def from_(cls, value: int | str) -> HookKind:
        """Return the kind of an integer or of a field name.

        Raises:
            ValueError: ``value`` is neither 0, 1, 2 nor exactly one of the three names.
        """
        if isinstance(value, int) and not isinstance(value, bool) and value in (0, 1, 2):
            return cls(value)
        if isinstance(value, str) and value in cls.__members__:
            return cls[value]
        raise ValueError(f"no hook kind {value!r}: use 0, 1, 2, 'forward_pre', 'forward' or 'backward'")


setattr(HookKind, "from", HookKind.from_)


class HookReturnError(TypeError):
    """Raised when a hook returns what cannot take the place of the value that it was given.

    Args:
        message: which hook, and what it returned.
        hint: what to write in the hook.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.hint = hint


class HookRegistry:
    """Hold the hooks of one wrapped module, in registration order. The wrapper and every handle share it.

    ``pre``, ``post`` and ``back`` map the id of a registration to its hook. They are replaced on every change and never
    changed in place, so that a pass that runs while another thread registers keeps what it started with. A registry is
    not copied: the copy and the pickle of one are empty.
    """

    def __init__(self) -> None:
        self.next_id = 0
        self.is_empty = True
        self.pre: Mapping[int, ForwardPreHook] = {}
        self.post: Mapping[int, ForwardHook] = {}
        self.back: Mapping[int, BackwardHook] = {}
        self.registry_id = next(_registry_ids)
        self._lock = threading.Lock()
        _registries[self.registry_id] = self

    def add(self, kind: HookKind, hook: Callable[..., Any]) -> HookHandle:
        """Register ``hook`` behind the others of its kind and return its handle.

        Raises:
            TypeError: ``hook`` is not callable, or cannot be called with the arguments of its kind.
        """
        check_hook(kind, hook)
        with self._lock:
            handle = HookHandle(self, kind, self.next_id)
            self.next_id += 1
            self._replace(kind, {**self._of(kind), handle.id: hook})
        return handle

    def discard(self, kind: HookKind, hook_id: int) -> None:
        """Take a registration out; nothing happens where it is out already."""
        with self._lock:
            hooks = self._of(kind)
            if hook_id in hooks:
                self._replace(kind, {key: hook for key, hook in hooks.items() if key != hook_id})

    def _of(self, kind: HookKind) -> Mapping[int, Callable[..., Any]]:
        return (self.pre, self.post, self.back)[kind]

    def _replace(self, kind: HookKind, hooks: Mapping[int, Callable[..., Any]]) -> None:
        setattr(self, ("pre", "post", "back")[kind], hooks)
        self.is_empty = not (self.pre or self.post or self.back)

    def __reduce__(self) -> tuple[type[HookRegistry], tuple[()]]:
        return HookRegistry, ()

    def __copy__(self) -> HookRegistry:
        return HookRegistry()

    def __deepcopy__(self, memo: dict[int, Any]) -> HookRegistry:
        # through the memo, a Hooks object that is copied along with its wrapper stays the Hooks of that wrapper's copy
        memo[id(self)] = copy = HookRegistry()
        return copy

    def __repr__(self) -> str:
        return f"HookRegistry(pre={list(self.pre)}, post={list(self.post)}, back={list(self.back)})"


@dataclass(frozen=True, slots=True)
class HookHandle:
    """Remove one registration.

    Attributes:
        registry: where the hook is registered.
        kind: what kind of hook it is.
        id: the number of the registration, unique in its registry.
    """

    registry: HookRegistry
    kind: HookKind
    id: int

    def remove(self) -> None:
        """Unregister the hook. Later passes do not run it; calling this again has no effect."""
        self.registry.discard(self.kind, self.id)


@dataclass(frozen=True, slots=True)
class Hooks:
    """Register hooks on a wrapped module.

    Attributes:
        registry: shared with the wrapper and every handle.
    """

    registry: HookRegistry

    def add_forward_pre_hook(self, hook: ForwardPreHook) -> HookHandle:
        """Register ``hook(x) -> x``, which may replace the input of the module.

        ``x`` is the first positional argument of the call; without one, the keyword that comes first in the signature
        of forward. All other arguments pass through untouched.

        Raises:
            TypeError: ``hook`` cannot be called with one argument.
        """
        return self.registry.add(HookKind.forward_pre, hook)

    def add_forward_hook(self, hook: ForwardHook) -> HookHandle:
        """Register ``hook(x, y) -> y``, which may replace the output; ``x`` is the input that the layer saw.

        Raises:
            TypeError: ``hook`` cannot be called with two arguments.
        """
        return self.registry.add(HookKind.forward, hook)

    def add_backward_hook(self, hook: BackwardHook) -> HookHandle:
        """Register ``hook(g) -> g``, which may replace the gradient with respect to the module output.

        ``g`` is a tensor where the output is one; else it has the structure of the output, with None where no gradient
        arrived. The hook runs in a backward pass if it was registered when the forward ran and still is when backward
        reaches the module. It must not change ``g`` in place: other parts of the graph may hold the same tensor.

        Raises:
            TypeError: ``hook`` cannot be called with one argument.
        """
        return self.registry.add(HookKind.backward, hook)


_CALLS = ("hook(x)", "hook(x, y)", "hook(g)")
_RETURNS = ("return x", "return y", "return g")
_TORCH_HINTS = (
    "unlike those of register_forward_pre_hook, which take (module, args), it gets no module and the input itself, not "
    "a tuple; write `def hook(x): return x`",
    "unlike those of register_forward_hook, which take (module, args, output), it gets no module; write "
    "`def hook(x, y): return y`",
    "unlike those of register_full_backward_hook, which take (module, grad_input, grad_output), it gets only the "
    "gradient with respect to the output; write `def hook(g): return g`",
)


def check_hook(kind: HookKind, hook: Callable[..., Any]) -> None:
    """Refuse a hook that could not be called, while the line that registers it is still on the stack.

    Raises:
        TypeError: ``hook`` is not callable, or cannot take the arguments of its kind.
    """
    if not callable(hook):
        raise TypeError(f"a {kind.name} hook is a function called as {_CALLS[kind]}, not {type(hook).__name__}")
    try:
        signature = inspect.signature(hook)
    except (TypeError, ValueError):  # builtins do not always tell their signature
        return
    try:
        signature.bind(*range(2 if kind is HookKind.forward else 1))
    except TypeError:
        raise TypeError(
            f"{kind.name} hook {hook_name(hook)} takes {signature}, but is called as {_CALLS[kind]}: "
            f"{_TORCH_HINTS[kind]}"
        ) from None


def hook_name(hook: Callable[..., Any]) -> str:
    """Return how an error names ``hook``: its qualified name, and where it was defined."""
    function = inspect.unwrap(getattr(hook, "func", hook))
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", type(hook).__name__)
    return f"'{name}' ({code.co_filename}:{code.co_firstlineno})" if code is not None else f"'{name}'"


def none_returned(kind: HookKind, hook: Callable[..., Any]) -> HookReturnError:
    """Return the error for a hook that returned None where a value must go on."""
    return HookReturnError(
        f"{kind.name} hook {hook_name(hook)} returned None, so the value would be lost",
        hint=f"a hook always returns what to go on with: end it with `{_RETURNS[kind]}`",
    )


def run_forward_pre_hooks(hooks: Mapping[int, ForwardPreHook], x: Any) -> Any:
    """Return what ``hooks`` make of the input ``x``, each fed with the result of the previous one."""
    for hook in hooks.values():
        given, x = x, hook(x)
        if x is None and given is not None:
            raise none_returned(HookKind.forward_pre, hook)
    return x


def run_forward_hooks(hooks: Mapping[int, ForwardHook], x: Any, y: Any) -> Any:
    """Return what ``hooks`` make of the output ``y`` for the input ``x``."""
    for hook in hooks.values():
        given, y = y, hook(x, y)
        if y is None and given is not None:
            raise none_returned(HookKind.forward, hook)
    return y


def registry_of(registry_id: int) -> HookRegistry | None:
    """Return the living registry with this id."""
    return _registries.get(registry_id)
