"""What takes the place of tensors where a model is run for its shapes alone."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import nn

from neural_flow.torch_private import FakeTensor, FakeTensorMode


class StandIns(Protocol):
    """What takes the place of tensors during a run."""

    def tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the stand-in of an input, a buffer or an attribute."""
        ...

    def mode(self) -> AbstractContextManager[object]:
        """Return the context in which the model runs."""
        ...


class FakeStandIns:
    """Fake tensors: they know shape, dtype and device, and compute nothing.

    Args:
        tensors: parameters and buffers of the model; where they are fake already, their mode is taken.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        found: list[Any] = [tensor for tensor in tensors if isinstance(tensor, FakeTensor)]
        self._mode: Any = found[0].fake_mode if found else FakeTensorMode(allow_non_fake_inputs=True)

    def tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a fake tensor; a meta tensor gets one on the CPU, as if it had been loaded."""
        if isinstance(tensor, FakeTensor):
            return tensor
        with torch.no_grad():
            if tensor.device.type != "meta":
                return self._mode.from_tensor(tensor.detach())
            with self._mode:
                return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")

    def mode(self) -> AbstractContextManager[object]:
        """Return the fake tensor mode."""
        return self._mode


class MetaStandIns:
    """Tensors on the meta device, where fake tensors do not serve."""

    def tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the same shape and dtype on the meta device."""
        with torch.no_grad():
            return tensor.detach().to("meta")

    def mode(self) -> AbstractContextManager[object]:
        """Return a context in which new tensors are made on the meta device."""
        return torch.device("meta")


def stand_in_param(stand_ins: StandIns, param: nn.Parameter) -> nn.Parameter:
    """Return a parameter that stands for ``param``."""
    stand_in = stand_ins.tensor(param)
    return stand_in if isinstance(stand_in, nn.Parameter) else nn.Parameter(stand_in, requires_grad=param.requires_grad)
