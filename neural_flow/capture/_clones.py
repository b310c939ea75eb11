"""Clones of everything that a run may write: inputs, buffers, and tensors in plain attributes of modules."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from neural_flow.capture._storage_log import storage_of
from neural_flow.module_calls import ATOMS
from neural_flow.torch_private import failure_of, set_version

_MAX_CONTAINER_DEPTH = 4
_CONTAINERS = frozenset({list, dict, set, OrderedDict, defaultdict, deque})


class Cloner:
    """Clone tensors, each object once, so that what was one object before is one object after.

    Args:
        convert: returns the clone of one tensor; by default a detached copy on the same device.
    """

    def __init__(self, convert: Callable[[torch.Tensor], torch.Tensor] | None = None) -> None:
        self._convert = convert or _detached_copy
        self._clones: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._shared: dict[int, torch.UntypedStorage] = {}
        self._storages: dict[int, torch.UntypedStorage] = {}

    def share_storages(self, tensors: Iterable[torch.Tensor]) -> None:
        """Note which of ``tensors`` are views of one storage; their clones will be views of one storage too."""
        seen: dict[int, torch.UntypedStorage] = {}
        for tensor in tensors:
            storage = storage_of(tensor)
            if storage is None:
                continue
            if id(storage) in seen and storage.device.type != "meta":
                self._shared[id(storage)] = storage
            seen[id(storage)] = storage

    def clone(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the clone of ``tensor``."""
        known = self._clones.get(id(tensor))
        if known is None:
            clone = self._shared_view(tensor)
            if clone is None:
                clone = _lazy_copy(tensor) if is_lazy(tensor) else self._convert(tensor)
            if clone is not tensor and vars(tensor) and type(tensor) in (torch.Tensor, nn.Parameter):
                vars(clone).update(vars(tensor))
            known = self._clones[id(tensor)] = (tensor, clone)
        return known[1]

    def _shared_view(self, tensor: torch.Tensor) -> torch.Tensor | None:
        storage = storage_of(tensor) if self._shared else None
        if storage is None or id(storage) not in self._shared or type(tensor) is not torch.Tensor:
            return None
        if id(storage) not in self._storages:
            self._storages[id(storage)] = storage.clone()
        view = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return view.set_(self._storages[id(storage)], tensor.storage_offset(), tensor.shape, tensor.stride())


def _detached_copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone() if tensor.requires_grad else tensor.clone()


def _lazy_copy(tensor: Any) -> Any:
    """Return another tensor to be initialized: it becomes an ordinary one in place when it is first used."""
    return type(tensor)(requires_grad=tensor.requires_grad, device=tensor.device, dtype=tensor.dtype)


class StateSwap:
    """Put clones in the place of what modules own, and the very same objects back afterwards.

    Args:
        cloner: clones one tensor.
        convert_param: returns what stands for a parameter during the run; None leaves parameters in place.
    """

    def __init__(self, cloner: Cloner, convert_param: Callable[[nn.Parameter], nn.Parameter] | None = None) -> None:
        self._cloner = cloner
        self._convert_param = convert_param
        self._containers: dict[int, tuple[Any, Any]] = {}
        self._scripted: list[tuple[torch.Tensor, torch.Tensor, int]] = []
        self._params: dict[int, nn.Parameter] = {}

    def apply(self, held: Mapping[nn.Module, Iterable[str]]) -> None:
        """Swap. Registries and attribute dictionaries themselves must have been saved before.

        Args:
            held: for each module, the names of the attributes in which tensors can be.
        """
        for module, names in held.items():
            if isinstance(module, torch.jit.ScriptModule):
                for buffer in module.buffers(recurse=False):
                    self._scripted.append((buffer, buffer.detach().clone(), buffer._version))
                continue
            for name, param in module._parameters.items():
                if param is not None and (self._convert_param is not None or type(param) is not nn.Parameter):
                    module._parameters[name] = self._stand_in(param)
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = self._cloner.clone(buffer)
            attributes = vars(module)
            for name in names:
                attributes[name] = self._swapped(attributes[name], 0)

    def _stand_in(self, param: Any) -> Any:
        if id(param) not in self._params:
            if is_lazy(param):
                self._params[id(param)] = _lazy_copy(param)
            else:
                self._params[id(param)] = param if self._convert_param is None else self._convert_param(param)
        return self._params[id(param)]

    def _swapped(self, value: Any, depth: int) -> Any:
        if type(value) in ATOMS:
            return value
        if isinstance(value, torch.Tensor):
            return self._stand_in(value) if isinstance(value, nn.Parameter) else self._cloner.clone(value)
        if depth > _MAX_CONTAINER_DEPTH:
            return value
        if type(value) is tuple:
            if ATOMS.issuperset(map(type, value)):  # sizes and strides: by far the most
                return value
            items = tuple([self._swapped(item, depth + 1) for item in value])
            return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        if type(value) in _CONTAINERS and id(value) not in self._containers:
            self._swap_content(value, depth)
        return value

    def _swap_content(self, container: Any, depth: int) -> None:
        """Exchange the tensors in a container that others may hold too, so in place; its content is saved first."""
        self._containers[id(container)] = (container, container.copy())
        if isinstance(container, dict):
            for key, item in tuple(container.items()):
                swapped = self._swapped(item, depth + 1)
                if swapped is not item:
                    container[key] = swapped
        elif not isinstance(container, set):
            for index, item in enumerate(tuple(container)):
                swapped = self._swapped(item, depth + 1)
                if swapped is not item:
                    container[index] = swapped

    def restore(self) -> None:
        """Give containers and scripted modules their content back; attributes are restored by who saved them."""
        for container, content in self._containers.values():
            if isinstance(container, list):
                container[:] = content
            else:
                container.clear()
                container.extend(content) if isinstance(container, deque) else container.update(content)
        for buffer, copy, version in self._scripted:  # normalization writes them without counting a version
            with torch.no_grad():
                buffer.copy_(copy)
            if not failure_of("set_version"):
                set_version(buffer, version)
