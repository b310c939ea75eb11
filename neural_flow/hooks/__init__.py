"""Module hooks: run functions before a module, after it, and on the gradient of its output.

``with_hooks(layer)`` returns a wrapper, used in place of the layer, and the object that registers hooks on it. The
layer and its class stay as they are. The rest of the package is not needed: this instrument stands alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neural_flow.hooks.gate import BackwardHookGate, gate_outputs
    from neural_flow.hooks.registry import (
        BackwardHook,
        ForwardHook,
        ForwardPreHook,
        HookHandle,
        HookKind,
        HookRegistry,
        HookReturnError,
        Hooks,
    )
    from neural_flow.hooks.wrapper import HookedModule, hooks_of, layer_of, with_hooks

__all__ = [
    "BackwardHook",
    "BackwardHookGate",
    "ForwardHook",
    "ForwardPreHook",
    "HookHandle",
    "HookKind",
    "HookRegistry",
    "HookReturnError",
    "HookedModule",
    "Hooks",
    "gate_outputs",
    "hooks_of",
    "layer_of",
    "with_hooks",
]

_HOMES = {
    "BackwardHookGate": "gate",
    "gate_outputs": "gate",
    "HookedModule": "wrapper",
    "hooks_of": "wrapper",
    "layer_of": "wrapper",
    "with_hooks": "wrapper",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'neural_flow.hooks' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"neural_flow.hooks.{_HOMES.get(name, 'registry')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
