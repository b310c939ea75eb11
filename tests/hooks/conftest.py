from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.nn.modules import module as torch_module

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() is torch.float32
    assert torch.overrides._get_current_function_mode_stack() == []
    for name in ("forward", "forward_pre", "backward", "backward_pre"):
        assert not getattr(torch_module, f"_global_{name}_hooks")
