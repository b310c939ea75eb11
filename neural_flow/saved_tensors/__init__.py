"""Saved tensors: see what autograd keeps for backward, tell which call saved it, and keep it elsewhere.

``list_saved_tensors`` reads a finished graph, ``record_saved_tensors`` watches a model, ``offload_saved_tensors``
moves what is saved to files or to the CPU, and ``saved_tensor_hooks`` is torch's pair with the version check kept. The
rest of the package is not needed: this instrument stands alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neural_flow.saved_tensors.graph_walk import list_saved_tensors
    from neural_flow.saved_tensors.hook_pairs import register_saved_tensor_hooks, saved_tensor_hooks
    from neural_flow.saved_tensors.offloading import SavedTensorOffload, offload_saved_tensors
    from neural_flow.saved_tensors.recording import SavedTensorRecord, record_saved_tensors
    from neural_flow.saved_tensors.rows import SavedTensorRow

__all__ = [
    "SavedTensorOffload",
    "SavedTensorRecord",
    "SavedTensorRow",
    "list_saved_tensors",
    "offload_saved_tensors",
    "record_saved_tensors",
    "register_saved_tensor_hooks",
    "saved_tensor_hooks",
]

_HOMES = {
    "SavedTensorOffload": "offloading",
    "SavedTensorRecord": "recording",
    "SavedTensorRow": "rows",
    "list_saved_tensors": "graph_walk",
    "offload_saved_tensors": "offloading",
    "record_saved_tensors": "recording",
    "register_saved_tensor_hooks": "hook_pairs",
    "saved_tensor_hooks": "hook_pairs",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'neural_flow.saved_tensors' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"neural_flow.saved_tensors.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
