"""What is known of the bytes of one storage: who wrote all of them last, and the partial writes since then."""

from __future__ import annotations

import weakref

import torch

from neural_flow.capture._overlap import Region, do_overlap, does_cover
from neural_flow.records import ValueRef

Refs = tuple[ValueRef, ...]


class StorageLog:
    """Writes to one storage that no later write covers.

    Args:
        storage: kept by weak reference only.
        base: the values that fill the whole storage.
        time: op id from which ``base`` holds.
        param_id: the parameter that this storage belongs to, or None.
    """

    __slots__ = ("base", "base_time", "last_time", "param_id", "storage", "writes")

    def __init__(self, storage: torch.UntypedStorage, base: Refs, time: int, param_id: int | None = None) -> None:
        self.storage = weakref.ref(storage)
        self.base = base
        self.base_time = time
        self.last_time = time
        self.param_id = param_id
        self.writes: list[tuple[int, ValueRef, Region]] = []

    def write(self, ref: ValueRef, time: int, region: Region, nbytes: int) -> None:
        """Note that op ``time`` wrote ``region`` of a storage of ``nbytes`` bytes."""
        self.last_time = time
        if region.is_dense and region.start == 0 and region.end >= nbytes:
            self.base, self.base_time, self.writes = (ref,), time, []
            return
        self.writes = [old for old in self.writes if not does_cover(region, old[2])]
        self.writes.append((time, ref, region))

    def read(self, refs: Refs, time: int, region: Region) -> Refs:
        """Return what ``region`` holds for a tensor whose own value ``refs`` dates from op ``time``."""
        found = list(self.base if self.base_time > time else refs)
        for when, ref, written in self.writes:
            if when > time and do_overlap(written, region):
                if does_cover(written, region):
                    found.clear()
                found.append(ref)
        return tuple(dict.fromkeys(found))


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return the storage of ``tensor``, or None where it has none of its own (sparse, nested, wrapped)."""
    kind = type(tensor)
    if kind is not torch.Tensor and kind is not torch.nn.Parameter and hasattr(kind, "__tensor_flatten__"):
        return None
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):
        return None
