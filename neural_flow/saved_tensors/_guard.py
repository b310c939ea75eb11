"""The version check that torch drops when a saved tensor has hooks.

Every tensor has a counter that goes up with each write in place, and all its aliases share it. A pack hook that keeps
the tensor by reference must therefore remember the count, and unpacking must compare: else a write after saving gives
a wrong gradient without a word.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch

from neural_flow.nested import tensor_leaves
from neural_flow.saved_tensors._storages import is_sharing_memory, storages_of

PackHook = Callable[[torch.Tensor], Any]
UnpackHook = Callable[[Any], torch.Tensor]

_NO_MEMORY: dict[tuple[torch.dtype, torch.device], torch.Tensor] = {}


class Witness:
    """The version that a tensor had, and a way to read the one that it has now, without keeping its memory alive."""

    __slots__ = ("_counter", "_version", "_what")

    def __init__(self, tensor: torch.Tensor, *, is_memory_kept: bool = False) -> None:
        self._counter = _counter_of(tensor, is_memory_kept)
        self._version = tensor._version
        self._what = tensor.dtype, () if tensor.is_nested else tensor.shape

    @property
    def is_unchanged(self) -> bool:
        """Whether no write in place happened since; True where it cannot be told."""
        return self._counter is None or self._counter._version == self._version

    def check(self) -> None:
        """Refuse a tensor that was written after it was saved.

        Raises:
            RuntimeError: in torch's own words.
        """
        if self._counter is not None and self._counter._version != self._version:
            dtype, shape = self._what
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"[{dtype} {list(shape)}] is at version {self._counter._version}; expected version "
                f"{self._version} instead. Hint: it was kept by reference; a pack hook that returns a copy keeps the "
                "value that was saved."
            )


def _counter_of(tensor: torch.Tensor, is_memory_kept: bool) -> torch.Tensor | None:
    counter = tensor.detach()
    if is_memory_kept:
        return counter
    if type(counter) is not torch.Tensor:
        return None
    key = (tensor.dtype, tensor.device)
    if key not in _NO_MEMORY:
        _NO_MEMORY[key] = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    try:
        counter.data = _NO_MEMORY[key]  # keeps the counter, lets go of the memory
    except RuntimeError:  # sparse, nested and opaque tensors cannot change their memory
        return None
    return counter


class GuardedPair:
    """A pack and an unpack hook with the version check around them.

    Args:
        pack_hook: as torch has it.
        unpack_hook: as torch has it.
    """

    def __init__(self, pack_hook: PackHook, unpack_hook: UnpackHook) -> None:
        self._pack_hook = pack_hook
        self._unpack_hook = unpack_hook

    def pack(self, tensor: torch.Tensor) -> GuardedValue:
        """Return what the pack hook returned, with the version of ``tensor``."""
        value = self._pack_hook(tensor)
        storages = storages_of(tensor)
        is_kept = any(leaf is tensor or is_sharing_memory(leaf, storages) for leaf in _tensors_in(value))
        # the tensor itself would make a cycle that no collector sees: it owns the graph that owns the packed value
        value = tensor.detach() if value is tensor else value
        return GuardedValue(value, Witness(tensor, is_memory_kept=is_kept), is_kept, storages)

    def unpack(self, packed: GuardedValue) -> torch.Tensor:
        """Return what the unpack hook returns.

        Raises:
            RuntimeError: the tensor was kept by reference and has changed, or the hook changed its input in place.
        """
        if packed.is_kept:
            packed.witness.check()
        before = [(leaf, leaf._version) for leaf in _tensors_in(packed.value)]
        result = self._unpack_hook(packed.value)
        for leaf, version in before:
            if leaf._version != version:
                raise RuntimeError(
                    f"the unpack hook {_name_of(self._unpack_hook)} modified its input in place: a saved tensor may be "
                    "unpacked many times and must have the same content each time; return a new tensor "
                    "(x * 2, not x.mul_(2))"
                )
        if isinstance(result, torch.Tensor) and is_sharing_memory(result, packed.live_storages()):
            packed.witness.check()
        return result


class GuardedValue:
    """What autograd keeps for one saved tensor."""

    __slots__ = ("_storages", "is_kept", "value", "witness")

    def __init__(self, value: Any, witness: Witness, is_kept: bool, storages: list[torch.UntypedStorage]) -> None:
        self.value = value
        self.witness = witness
        self.is_kept = is_kept
        self._storages = tuple(weakref.ref(storage) for storage in storages)

    def live_storages(self) -> list[torch.UntypedStorage]:
        """Return the storages that the tensor lay in when it was saved, as far as they still live."""
        return [storage for ref in self._storages if (storage := ref()) is not None]


def _tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for held in _held_by(value) for _, leaf in tensor_leaves(held)]


def _held_by(value: Any) -> list[Any]:
    """Return ``value``, or what a function holds: the values that it closes over, the arguments that it was given."""
    if isinstance(value, functools.partial):
        return [*_held_by(value.func), *value.args, *value.keywords.values()]
    if isinstance(value, MethodType):
        return [value.__self__]
    if isinstance(value, FunctionType):
        cells = value.__closure__ or ()
        return [*[cell.cell_contents for cell in cells if _is_filled(cell)], *(value.__defaults__ or ())]
    return [value]


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # reading is the test
    except ValueError:
        return False
    return True


def _name_of(hook: Callable[..., Any]) -> str:
    return getattr(hook, "__qualname__", None) or repr(hook)
