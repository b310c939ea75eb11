"""The passes that run the model: metadata, activations, attention, and the session that leaves no trace."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neural_flow.capture.attention import AttentionTracer
    from neural_flow.capture.dataflow import DataflowTracer

__all__ = ["AttentionTracer", "DataflowTracer"]

_HOMES = {"AttentionTracer": "attention", "DataflowTracer": "dataflow"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'neural_flow.capture' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"neural_flow.capture.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
