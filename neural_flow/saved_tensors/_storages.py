"""The memory behind a tensor: which storages it lies in, how large they are, and which number each one has."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import torch

from neural_flow.torch_private import wrapped_tensors

_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


def parts_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the tensors that hold the elements of ``tensor``: itself, or what it is made of."""
    if tensor.layout is torch.sparse_coo:
        return [tensor._values(), tensor._indices()]
    if tensor.layout in _COMPRESSED:
        return [getattr(tensor, name)() for name in reversed(_COMPRESSED[tensor.layout])]
    inner = wrapped_tensors(tensor)
    return [part for one in inner for part in parts_of(one)] if inner else [tensor]


def storages_of(tensor: torch.Tensor) -> list[torch.UntypedStorage]:
    """Return the distinct storages of a tensor, none where it has no memory that can be told.

    A storage is one Python object as long as its memory lives, whoever holds it.
    """
    found: list[torch.UntypedStorage] = []
    for part in parts_of(tensor):
        try:
            storage = part.untyped_storage()
        except (NotImplementedError, RuntimeError):  # opaque, or without a storage of its own
            continue
        if not any(storage is one for one in found):
            found.append(storage)
    return found


def is_sharing_memory(one: torch.Tensor, storages: Iterable[torch.UntypedStorage]) -> bool:
    """Return whether a tensor lies in the memory of these storages, also as an alias made through NumPy or DLPack."""
    return any(mine is other or _is_overlapping(mine, other) for mine in storages_of(one) for other in storages)


def _is_overlapping(one: torch.UntypedStorage, other: torch.UntypedStorage) -> bool:
    if one.device != other.device or one.device.type == "meta":
        return False
    try:
        start, other_start = one.data_ptr(), other.data_ptr()
    except RuntimeError:  # fake tensors have no address
        return False
    return start < other_start + other.nbytes() and other_start < start + one.nbytes()


def storage_nbytes_of(tensor: torch.Tensor) -> int:
    """Return the bytes of all storages that a tensor lies in."""
    storages = storages_of(tensor)
    return sum(storage.nbytes() for storage in storages) if storages else view_nbytes_of(tensor)


def view_nbytes_of(tensor: torch.Tensor) -> int:
    """Return the bytes of the elements of a tensor, those of its index tensors included; each counts once a view."""
    parts = parts_of(tensor)
    if len(parts) == 1:
        return tensor.numel() * tensor.element_size()
    return sum(part.numel() * part.element_size() for part in parts)


class StorageNumbers:
    """Number storages from 0 as they are met, without keeping any of them alive.

    A new storage gets a new number, even where it lies at the address of one that is gone.
    """

    def __init__(self) -> None:
        self.num_storages = 0
        self._known: dict[int, tuple[weakref.ref[torch.UntypedStorage], int]] = {}

    def number_of(self, tensor: torch.Tensor) -> int | None:
        """Return the number of the storage that holds the values of ``tensor``; None where there is none."""
        storages = storages_of(tensor)
        if not storages:
            return None
        storage = storages[0]
        known = self._known.get(id(storage))
        if known is not None and known[0]() is storage:
            return known[1]
        number = self.num_storages
        self.num_storages += 1
        self._known[id(storage)] = (weakref.ref(storage), number)
        return number


class StorageKinds:
    """Remember what some storages belong to, without keeping any of them alive."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[torch.UntypedStorage], str]] = {}

    def note(self, tensor: torch.Tensor, kind: str) -> None:
        """Remember ``kind`` for the memory of ``tensor``; what was noted first stays."""
        for storage in storages_of(tensor):
            known = self._known.get(id(storage))
            if known is None or known[0]() is not storage:
                self._known[id(storage)] = (weakref.ref(storage), kind)

    def kind_of(self, tensor: torch.Tensor) -> str | None:
        """Return what was noted for the memory of ``tensor``."""
        for storage in storages_of(tensor):
            known = self._known.get(id(storage))
            if known is not None and known[0]() is storage:
                return known[1]
        return None


def owner_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor whose memory ``tensor`` is a view of, as far as autograd knows; else itself."""
    return tensor if tensor._base is None else tensor._base
