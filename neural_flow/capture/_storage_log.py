"""What is known of the bytes of one storage: who wrote all of them last, and the partial writes since then."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch

from neural_flow.capture._overlap import Region, do_fill, do_overlap, does_cover
from neural_flow.capture._write_set import WriteSet
from neural_flow.records import ValueRef

Refs = tuple[ValueRef, ...]

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
_MAX_PARTS = 64  # more writes than this are not checked for filling a view together


class StorageLog:
    """Writes to one storage that no later write covers.

    Args:
        storage: kept by weak reference only.
        base: the values that fill the whole storage.
        time: the op that made it; ``last_time`` is the last op that wrote it.
        param_id: the parameter that this storage belongs to, or None.

    Attributes:
        parts: what ``base`` was put together from (the arguments of a cat), and where each lies; empty if from one.
        writes: what was written since.
    """

    __slots__ = ("base", "last_time", "param_id", "parts", "storage", "writes")

    def __init__(self, storage: torch.UntypedStorage, base: Refs, time: int, param_id: int | None = None) -> None:
        self.storage = weakref.ref(storage)
        self.base = base
        self.last_time = time
        self.param_id = param_id
        self.parts: Sequence[tuple[Refs, Region]] = ()
        self.writes: WriteSet | tuple[()] = ()

    def fill(self, refs: Refs, time: int) -> None:
        """Note that op ``time`` wrote the whole storage."""
        self.last_time = time
        self.base, self.parts, self.writes = refs, (), ()

    def write(self, ref: ValueRef, time: int, region: Region, nbytes: int) -> None:
        """Note that op ``time`` wrote ``region`` of a storage of ``nbytes`` bytes."""
        if region.is_dense and region.start == 0 and region.end >= nbytes:
            self.fill((ref,), time)
            return
        self.last_time = time
        if not isinstance(self.writes, WriteSet):
            self.writes = WriteSet()
        self.writes.add(ref, region)

    def read(self, region: Region) -> Refs:
        """Return the values that ``region`` holds."""
        base = self.base
        if self.parts and (narrow := self.part_refs(region)) is not None:
            base = narrow
        found: list[tuple[ValueRef, Region]] = []
        for write in self.writes.overlapping(region) if self.writes else ():
            if does_cover(write[1], region):
                base, found = (), []
            found.append(write)
        if base and 1 < len(found) <= _MAX_PARTS and do_fill([written for _, written in found], region):
            base = ()
        return tuple(dict.fromkeys((*base, *(ref for ref, _ in found))))

    def part_refs(self, region: Region) -> Refs | None:
        """Return the values of the parts that ``region`` overlaps; None where it overlaps all of them."""
        found = [refs for refs, part in self.parts if do_overlap(part, region)]
        return None if len(found) == len(self.parts) else tuple(dict.fromkeys(ref for refs in found for ref in refs))


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return the storage of ``tensor``, or None where it has none of its own (sparse, nested, wrapped, lazy)."""
    if type(tensor) not in _PLAIN and hasattr(type(tensor), "__tensor_flatten__"):
        return None
    try:
        return tensor.untyped_storage()
    except (RuntimeError, ValueError, NotImplementedError):
        return None
