"""Probes: values observed inside functions, and control flow that probes see through.

``scan``, ``while_loop``, ``cond`` and ``map`` are plain Python and nest in any order, also inside ``torch.func``.
"""

from __future__ import annotations

from neural_flow.probe._constructs import cond, map, scan, while_loop  # noqa: A004  (the name that torch and JAX give it)
from neural_flow.probe._core import ObserverHandle, Outcome, Probe, observe_every_emit

__all__ = ["ObserverHandle", "Outcome", "Probe", "cond", "map", "observe_every_emit", "scan", "while_loop"]
