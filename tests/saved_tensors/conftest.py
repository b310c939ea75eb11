from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.overrides import _get_current_function_mode_stack

from neural_flow.saved_tensors import _folders


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    torch.manual_seed(0)
    forward = nn.DataParallel.forward
    yield
    assert nn.DataParallel.forward is forward
    assert torch.is_grad_enabled()
    assert _get_current_function_mode_stack() == []
    for name in ("forward", "forward_pre", "backward", "backward_pre"):
        assert not getattr(torch_module, f"_global_{name}_hooks")
    assert is_unhooked()
    if remaining_files():
        gc.collect()  # tracebacks of expected errors hold graphs in cycles
    assert remaining_files() == []


def remaining_files() -> list[str]:
    """Return the files of saved tensors that this process has now."""
    return [file.name for folder, _ in _folders._folders.values() for file in folder.glob("*.pt")]


def is_unhooked() -> bool:
    """Whether this thread saves tensors without hooks now."""
    x = torch.ones(2, requires_grad=True)
    return x.exp().grad_fn._raw_saved_result.unpack_hook is None
