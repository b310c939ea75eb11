"""torch's own control flow (cond, scan, while_loop, map), when it runs as plain Python inside a collect.

A mode that looks for these operators only opens a construct round the outermost one, so that its steps become rows of
one offer. Where a step begins is not to be seen, so each run of a site is the next row.
"""

from __future__ import annotations

import warnings
from typing import Any

from torch.overrides import TorchFunctionMode

from neural_flow import torch_private
from neural_flow.probe._frames import open_construct


class HopWatch(TorchFunctionMode):
    """Open a construct round each outermost higher-order operator."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run ``func``, inside a construct if it takes functions."""
        if not torch_private.is_higher_order(func):
            return func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", str(func))
        if name == "cond" and any(level.kind == "vmap" for level in torch_private.transform_levels()):
            warnings.warn(
                "torch.cond under vmap runs both branches for every lane, so probes in both offer all lanes; "
                "neural_flow.probe.cond offers only the lanes that a branch belongs to",
                stacklevel=3,
            )
        with open_construct(name, depth=1, has_own_steps=False):
            return func(*args, **(kwargs or {}))
