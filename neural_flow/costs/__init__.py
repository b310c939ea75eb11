"""What a model costs, as data: memory of a training step by stage, and the summary of its modules."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neural_flow.costs.memory import MemoryRow, MemoryTable, WhatIf, memory_table
    from neural_flow.costs.summary import SummaryRow, SummaryTable, summary_table

__all__ = ["MemoryRow", "MemoryTable", "SummaryRow", "SummaryTable", "WhatIf", "memory_table", "summary_table"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'neural_flow.costs' has no attribute {name!r}")
    home = "summary" if "ummary" in name else "memory"
    value = getattr(importlib.import_module(f"neural_flow.costs.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
