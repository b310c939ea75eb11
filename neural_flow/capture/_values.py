"""Where the value in every live tensor came from.

Nothing is written onto a tensor. What a tensor holds is kept in a side table by object identity, beside a weak
reference that tells a reused identity from a living one. A second table follows storages, because a value can be
written through one view and read through another, and because some code makes a new tensor object of old bytes.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch

from neural_flow.capture._overlap import region_of
from neural_flow.capture._storage_log import Refs, StorageLog, storage_of
from neural_flow.records import ValueRef


class ValueTable:
    """The values that tensors hold, as references to op outputs.

    Args:
        params: the parameters of the model; their index is their id.
        constants: tensors that exist before the run (buffers, plain attributes): they have no source.
    """

    def __init__(self, params: Sequence[torch.Tensor], constants: Sequence[torch.Tensor]) -> None:
        self.param_ids = {id(param): index for index, param in enumerate(params)}
        self._constants = {id(constant) for constant in constants}
        self._pinned = [*params, *constants]  # while these live, no other tensor can have their identity
        self._pinned_storages: list[torch.UntypedStorage] = []
        self._tags: dict[int, tuple[weakref.ref[torch.Tensor], Refs, int]] = {}
        self._storages: dict[int, StorageLog] = {}
        self._has_writes = False
        for index, tensor in enumerate(self._pinned):
            storage = storage_of(tensor)
            if storage is not None and id(storage) not in self._storages:
                self._pinned_storages.append(storage)
                param_id = index if index < len(params) else None
                self._storages[id(storage)] = StorageLog(storage, (), -1, param_id)

    def read(self, tensor: torch.Tensor, view: torch.Tensor | None = None) -> Refs | None:
        """Return the values that ``tensor`` holds: () for a constant or a parameter, None where nobody saw it made.

        Args:
            tensor: the tensor that is read.
            view: where only the bytes of this view of it are read.
        """
        tag = self._tags.get(id(tensor))
        if tag is not None and tag[0]() is tensor:
            if not self._has_writes:
                return tag[1]
            return self._read_bytes(tensor, tag[1], tag[2], tensor if view is None else view)
        is_known = id(tensor) in self.param_ids or id(tensor) in self._constants
        if is_known:
            return self._read_bytes(tensor, (), -1, tensor if view is None else view) if self._has_writes else ()
        log = self.log_of(tensor)
        if log is None:
            return None
        return self._read_bytes(tensor, log.base, log.base_time, tensor if view is None else view)

    def _read_bytes(self, tensor: torch.Tensor, refs: Refs, time: int, view: torch.Tensor) -> Refs:
        log = self.log_of(tensor)
        if log is None or log.last_time <= time:
            return refs
        try:
            return log.read(refs, time, region_of(view if storage_of(view) is log.storage() else tensor))
        except RuntimeError:
            return tuple(dict.fromkeys((*refs, *log.base, *(ref for _, ref, _ in log.writes))))

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

    def tag(self, tensor: torch.Tensor, refs: Refs, time: int) -> None:
        """Note that ``tensor`` holds ``refs`` since op ``time``."""
        self._tags[id(tensor)] = (weakref.ref(tensor), refs, time)
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):
            return
        log = self._storages.get(id(storage))
        if log is None or log.storage() is not storage:
            self._storages[id(storage)] = StorageLog(storage, refs, time)

    def write(self, target: torch.Tensor, ref: ValueRef, time: int) -> None:
        """Note that op ``time`` wrote ``ref`` into the bytes of ``target``."""
        storage = storage_of(target)
        if storage is None:
            return
        log = self._storages.get(id(storage))
        if log is None or log.storage() is not storage:
            log = self._storages[id(storage)] = StorageLog(storage, (), -1)
        try:
            region = region_of(target)
        except RuntimeError:
            return
        self._has_writes = True
        log.write(ref, time, region, storage.nbytes())
