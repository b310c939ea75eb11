"""Where the value in every live tensor came from.

Nothing is written onto a tensor. What a tensor holds is kept in a side table by object identity, beside a weak
reference that tells a reused identity from a living one. A second table follows storages, because a value can be
written through one view and read through another, and because some code makes a new tensor object of old bytes.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import torch

from neural_flow.capture._overlap import region_of, regions_along
from neural_flow.capture._storage_log import Refs, StorageLog, storage_of
from neural_flow.records import ValueRef
from neural_flow.torch_private import wrapped_tensors


class ValueTable:
    """The values that tensors hold, as references to op outputs.

    Args:
        params: the parameters of the model; their index is their id.
        constants: tensors that exist before the run (buffers, plain attributes): they have no source.
        packed: ids of the parameters that an object packs, by its identity.

    Attributes:
        still: parameters and constants that nothing can have written yet: their identities, with the id of a parameter
            or None.
    """

    def __init__(
        self,
        params: Sequence[torch.Tensor],
        constants: Sequence[torch.Tensor],
        packed: Mapping[int, tuple[int, ...]] = MappingProxyType({}),
    ) -> None:
        self.packed = packed
        self.param_ids = {id(param): index for index, param in enumerate(params)}
        self._constants = {id(constant) for constant in constants}
        self.still: dict[int, int | None] = {**dict.fromkeys(self._constants), **self.param_ids}
        self._pinned = [*params, *constants]  # while these live, no other tensor can have their identity
        self._pinned_storages: list[torch.UntypedStorage] = []
        self._tags: dict[int, tuple[weakref.ref[torch.Tensor], Refs, int, StorageLog | None, bool]] = {}
        self._storages: dict[int, StorageLog] = {}
        self._has_writes = False
        for index, tensor in enumerate(self._pinned):
            self._pin(tensor, index if index < len(params) else None)

    def add_constants(self, tensors: Iterable[torch.Tensor]) -> None:
        """Note more tensors that exist since before the run."""
        for tensor in tensors:
            if not self.is_tagged(tensor):
                self._constants.add(id(tensor))
                self._pinned.append(tensor)
                self._pin(tensor, None)
                if not self._has_writes:
                    self.still[id(tensor)] = None

    def _pin(self, tensor: torch.Tensor, param_id: int | None) -> None:
        storage = storage_of(tensor)
        if storage is None:
            return
        log = self._storages.get(id(storage))
        if log is None or log.storage() is not storage:
            self._pinned_storages.append(storage)
            self._storages[id(storage)] = StorageLog(storage, (), -1, param_id)
        elif log.last_time >= 0:
            self._note_write()

    def _note_write(self) -> None:
        """Note that the bytes of a parameter or constant may have been written."""
        self._has_writes = True
        self.still.clear()

    def read(self, tensor: torch.Tensor, view: torch.Tensor | None = None) -> Refs | None:
        """Return the values that ``tensor`` holds: () for a constant or a parameter, None where nobody saw it made.

        Args:
            tensor: the tensor that is read.
            view: where only the bytes of this view of it are read.
        """
        tag = self._tags.get(id(tensor))
        if tag is not None and tag[0]() is tensor:
            _, refs, time, log, is_view = tag
            if log is None:
                return refs
            storage = tensor.untyped_storage() if type(tensor) is torch.Tensor else storage_of(tensor)
            if log.storage() is storage:  # else it was given other bytes, unseen
                if log.last_time <= time and not (is_view and log.writes):
                    if view is not None and log.parts and (narrow := self.read_part(tensor, view)) is not None:
                        return narrow
                    return refs
                return _read_log(log, tensor, view)
        elif id(tensor) in self.param_ids or id(tensor) in self._constants:
            log = self.log_of(tensor) if self._has_writes else None
            return () if log is None or log.last_time < 0 else _read_log(log, tensor, view)
        log = self.log_of(tensor)
        if log is not None:
            return _read_log(log, tensor, view)
        return self._read_inner(tensor)

    def read_part(self, tensor: torch.Tensor, view: torch.Tensor) -> Refs | None:
        """Return the values that ``view`` shows, where ``tensor``, put together from parts, holds more than these."""
        log = self.log_of(tensor)
        if log is None or not log.parts or log.writes or storage_of(view) is not log.storage():
            return None
        try:
            narrow = log.part_refs(region_of(view))
            return None if narrow is None or narrow == log.part_refs(region_of(tensor)) else narrow
        except RuntimeError:
            return None

    def note_parts(self, tensor: torch.Tensor, dim: int, sizes: Sequence[int], refs: Sequence[Refs]) -> None:
        """Note that ``tensor``, just made, holds these values one after the other along ``dim``."""
        log = self.log_of(tensor)
        if log is None or log.writes:
            return
        try:
            log.parts = list(zip(refs, regions_along(tensor, dim, sizes), strict=True))
        except RuntimeError:
            return

    def _read_inner(self, tensor: torch.Tensor) -> Refs | None:
        """Return what the tensors hold that ``tensor`` wraps: under function transforms, in subclasses."""
        found = [refs for refs in map(self.read, wrapped_tensors(tensor)) if refs is not None]
        return tuple(dict.fromkeys(ref for refs in found for ref in refs)) if found else None

    def read_by_address(self, tensor: torch.Tensor) -> Refs | None:
        """Return the values of the living storage at the same address: foreign code made a tensor of its bytes."""
        try:
            address = tensor.untyped_storage().data_ptr()
        except (RuntimeError, NotImplementedError):
            return None
        for log in self._storages.values() if address else ():
            storage = log.storage()
            if storage is not None and storage.device.type != "meta" and storage.data_ptr() == address:
                return _read_log(log, tensor, None)
        return None

    def is_made(self, tensor: torch.Tensor) -> bool:
        """Return whether this very object was seen being made or written."""
        tag = self._tags.get(id(tensor))
        return tag is not None and tag[0]() is tensor

    def holds(self, tensor: torch.Tensor, refs: Refs) -> bool:
        """Return whether ``refs``, as ``read`` returned them, are what this very object was tagged with."""
        tag = self._tags.get(id(tensor))
        return tag is not None and tag[1] is refs and tag[0]() is tensor

    def is_tagged(self, tensor: torch.Tensor) -> bool:
        """Return whether this very object was seen being made, or exists since before the run."""
        tag = self._tags.get(id(tensor))
        if tag is not None and tag[0]() is tensor:
            return True
        return id(tensor) in self.param_ids or id(tensor) in self._constants

    def param_of(self, tensor: torch.Tensor) -> int | None:
        """Return the id of the parameter that ``tensor`` is, or of which it is an alias that nobody saw made."""
        param_id = self.param_ids.get(id(tensor))
        if param_id is not None or self.is_tagged(tensor):
            return param_id
        log = self.log_of(tensor)
        return None if log is None else log.param_id

    def written_param_ids(self) -> set[int]:
        """Return the ids of the parameters that were written during the run."""
        written = {log.param_id for log in self._storages.values() if log.param_id is not None and log.last_time >= 0}
        return written | {param_id for identity, param_id in self.param_ids.items() if identity in self._tags}

    def param_under(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the parameter whose bytes ``tensor`` shows, or None."""
        param_id = self.param_ids.get(id(tensor))
        if param_id is None:
            log = self.log_of(tensor)
            param_id = None if log is None else log.param_id
        return None if param_id is None else self._pinned[param_id]

    def log_of(self, tensor: torch.Tensor) -> StorageLog | None:
        """Return what is known of the storage of ``tensor``."""
        storage = storage_of(tensor)
        if storage is None:
            return None
        log = self._storages.get(id(storage))
        return log if log is not None and log.storage() is storage else None

    def join(self, tensor: torch.Tensor, refs: Refs, time: int) -> None:
        """Note that ``tensor`` holds ``refs`` besides what it holds, since op ``time``."""
        refs = tuple(dict.fromkeys((*(self.read(tensor) or ()), *refs)))
        self.tag(tensor, refs, time)
        log = self.log_of(tensor)
        if log is not None and not log.writes:
            log.base = refs

    def tag(self, tensor: torch.Tensor, refs: Refs, time: int, *, can_be_view: bool = False) -> None:
        """Note that ``tensor`` holds ``refs`` since op ``time``.

        Args:
            tensor: what was made or written.
            refs: the value.
            time: the op that made it.
            can_be_view: where it only shows bytes that were there before, it stands for what was written into them:
                of a buffer that was filled in parts, a view is no value of its own.
        """
        identity = id(tensor)
        if identity in self.still:
            del self.still[identity]
        storage = storage_of(tensor)
        if storage is None:
            self._tags[identity] = (weakref.ref(tensor), refs, time, None, False)
            for inner in wrapped_tensors(tensor):
                if not self.is_tagged(inner):
                    self.tag(inner, refs, time)
            return
        log = self._storages.get(id(storage))
        if log is None or log.storage() is not storage:
            log = self._storages[id(storage)] = StorageLog(storage, refs, time)
            can_be_view = False
        self._tags[identity] = (weakref.ref(tensor), refs, time, log, can_be_view)

    def write(self, target: torch.Tensor, ref: ValueRef, time: int) -> None:
        """Note that op ``time`` wrote ``ref`` into the bytes of ``target``."""
        storage = storage_of(target)
        if storage is None:
            return
        log = self._storages.get(id(storage))
        if log is None or log.storage() is not storage:
            log = self._storages[id(storage)] = StorageLog(storage, (), -1)
        if log.last_time < 0:
            self._note_write()
        try:
            if target.is_contiguous() and target.nbytes == storage.nbytes():  # then it can begin nowhere else
                log.fill((ref,), time)
            else:
                log.write(ref, time, region_of(target), storage.nbytes())
        except RuntimeError:
            return


def _read_log(log: StorageLog, tensor: torch.Tensor, view: torch.Tensor | None) -> Refs:
    if view is None or storage_of(view) is not log.storage():
        view = tensor
    try:
        return log.read(region_of(view))
    except RuntimeError:  # a view without strides: whatever was written may be in it
        return tuple(dict.fromkeys((*log.base, *(ref for ref, _ in log.writes))))
