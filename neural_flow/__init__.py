"""Draw a PyTorch model as it really runs.

The public names resolve on first use, so that ``import neural_flow`` and ``neural-flow --help`` never import torch.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "AttentionTracer": "neural_flow.capture.attention",
    "DataflowTracer": "neural_flow.capture.dataflow",
    "BackwardHookGate": "neural_flow.hooks",
    "HookHandle": "neural_flow.hooks",
    "HookKind": "neural_flow.hooks",
    "HookRegistry": "neural_flow.hooks",
    "Hooks": "neural_flow.hooks",
    "gate_outputs": "neural_flow.hooks",
    "hooks_of": "neural_flow.hooks",
    "with_hooks": "neural_flow.hooks",
    "Probe": "neural_flow.probe",
    "list_saved_tensors": "neural_flow.saved_tensors",
    "offload_saved_tensors": "neural_flow.saved_tensors",
    "record_saved_tensors": "neural_flow.saved_tensors",
    "register_saved_tensor_hooks": "neural_flow.saved_tensors",
    "saved_tensor_hooks": "neural_flow.saved_tensors",
    "ForwardError": "neural_flow.errors",
    "NeuralFlowError": "neural_flow.errors",
    "NeuralFlowWarning": "neural_flow.errors",
    "activations": "neural_flow.pipeline",
    "render": "neural_flow.pipeline",
    "trace": "neural_flow.pipeline",
    "Topology": "neural_flow.results",
    "Drawing": "neural_flow.results",
    "assert_architecture": "neural_flow.testing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'neural_flow' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(["__version__", *_HOMES])
