"""The helpers of this folder can be imported by name, and a fixture that nothing of ours stays behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.nn.modules import module as module_globals
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def nothing_left() -> Iterator[None]:
    before = _global_state()
    yield
    assert _global_state() == before


def _global_state() -> tuple[object, ...]:
    hooks = [
        len(value)
        for name, value in sorted(vars(module_globals).items())
        if name.startswith("_global_") and isinstance(value, dict)
    ]
    modes = (len(_get_current_function_mode_stack()), len(_get_current_dispatch_mode_stack()))
    return (*hooks, *modes, torch.is_grad_enabled(), torch.backends.mha.get_fastpath_enabled())
