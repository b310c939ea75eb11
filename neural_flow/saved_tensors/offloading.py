"""Keep what autograd saves in files, on the CPU or in a store of the user's, from forward until backward needs it."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from neural_flow.module_calls import all_modules
from neural_flow.saved_tensors._folders import private_folder
from neural_flow.saved_tensors._layouts import CannotStoreError, cut_out
from neural_flow.saved_tensors._parallel import refusing_data_parallel
from neural_flow.saved_tensors._storages import StorageKinds, owner_of
from neural_flow.saved_tensors._stores import CallableStore, CpuStore, FileStore, Load, Store
from neural_flow.saved_tensors._values import KeptValue, PartedValue, StoredValue
from neural_flow.torch_private import require, without_modes

Place = Literal["disk", "cpu"] | Callable[[torch.Tensor], Load]


class SavedTensorOffload(contextlib.ContextDecorator):
    """Keep saved tensors elsewhere while it is entered; made by ``offload_saved_tensors``.

    May be entered again and by several threads, so that a module may own one; also decorates a function. It is copied
    and pickled as its settings.

    Attributes:
        num_stored: tensors put elsewhere so far, each content once.
        num_kept: saved tensors that stayed in memory so far.
        kept: the same by reason: ``small``, ``parameter`` (or buffer, or a leaf that its owner keeps anyway), and one
            for each kind that cannot be stored.
    """

    def __init__(
        self,
        threshold: int = 1000,
        to: Place = "disk",
        *,
        threshold_nbytes: int | None = None,
        folder: str | Path | None = None,
        model: nn.Module | None = None,
    ) -> None:
        if not callable(to) and to not in ("disk", "cpu"):
            raise ValueError(f'to is "disk", "cpu" or a function store(tensor) -> load(), not {to!r}')
        require("storage objects", "offload_saved_tensors")
        self._settings: dict[str, Any] = {
            "threshold": threshold,
            "to": to,
            "threshold_nbytes": threshold_nbytes,
            "folder": folder,
            "model": model,
        }
        self.num_stored = 0
        self.kept: dict[str, int] = {}
        self._threshold = threshold
        self._threshold_nbytes = threshold_nbytes
        self._to: Place = to
        self._base = None if folder is None else Path(folder)
        self._model = model
        self._store: Store | None = CallableStore(to) if callable(to) else CpuStore() if to == "cpu" else None
        self._files: FileStore | None = None
        self._owned = StorageKinds()
        self._stored: weakref.WeakValueDictionary[tuple[Any, ...], StoredValue] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        self._here = threading.local()

    @property
    def num_kept(self) -> int:
        """Number of saved tensors that stayed in memory so far."""
        return sum(self.kept.values())

    @property
    def num_files(self) -> int:
        """Number of files that exist now."""
        return 0 if self._files is None else self._files.num_files

    @property
    def folder(self) -> Path | None:
        """Where the files are; None before it is entered, and where nothing goes to disk."""
        return None if self._files is None else self._files.folder

    def __enter__(self) -> Self:
        if self._to == "disk":
            folder = private_folder(self._base)
            with self._lock:
                if self._files is None or self._files.folder != folder:
                    self._files = FileStore(folder)
        if self._model is not None:
            for module in all_modules(self._model):
                for tensor in (*module._parameters.values(), *module._buffers.values()):
                    if tensor is not None:
                        self._owned.note(tensor, "parameter")
        stack = contextlib.ExitStack()
        with contextlib.ExitStack() as entering:
            entering.enter_context(refusing_data_parallel("offload_saved_tensors"))
            entering.enter_context(saved_tensors_hooks(self._pack, _unpack))
            stack = entering.pop_all()
        self._here.stacks = [*getattr(self._here, "stacks", ()), stack]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stack: contextlib.ExitStack = self._here.stacks[-1]
        self._here.stacks = self._here.stacks[:-1]
        stack.close()

    def __reduce__(self) -> Any:
        return _rebuilt, (self._settings,)

    def _pack(self, tensor: torch.Tensor) -> KeptValue | StoredValue | PartedValue:
        with without_modes():
            reason = self._reason_to_keep(tensor)
            if reason is None:
                try:
                    return self._put_parts_away(tensor) if _has_parts(tensor) else self._put_away(tensor)
                except CannotStoreError as error:
                    reason = str(error)
            with self._lock:
                self.kept[reason] = self.kept.get(reason, 0) + 1
        return KeptValue(tensor)

    def _reason_to_keep(self, tensor: torch.Tensor) -> str | None:
        owner = owner_of(tensor)
        if isinstance(owner, nn.Parameter | nn.Buffer) or (owner.is_leaf and owner.requires_grad):
            self._owned.note(tensor, "parameter")  # what is saved next may be an alias that autograd does not know
            return "parameter"
        if self._owned.kind_of(tensor) is not None:
            return "parameter"
        if self._threshold_nbytes is not None:
            return "small" if tensor.numel() * tensor.element_size() < self._threshold_nbytes else None
        return "small" if tensor.numel() < self._threshold else None

    def _put_parts_away(self, tensor: Any) -> PartedValue:
        """Store the values of a tensor; what says where they belong (offsets, lengths) must stay the same objects."""
        names, context = tensor.__tensor_flatten__()
        parts: dict[str, KeptValue | StoredValue] = {}
        for name in names:
            part = getattr(tensor, name)
            is_value = part.is_floating_point() or part.is_complex()
            is_stored = is_value and self._reason_to_keep(part) is None
            parts[name] = self._put_away(part) if is_stored else KeptValue(part, is_very_object=not is_value)
        return PartedValue(tensor, context, parts)

    def _put_away(self, tensor: torch.Tensor) -> StoredValue:
        piece, form = cut_out(tensor)
        key = _key(tensor)
        if key is not None:
            known = self._stored.get(key)
            if known is not None and known.is_of(tensor, piece):
                return known
        store = self._store or self._files
        assert store is not None
        value = StoredValue(tensor, piece, store.put(piece), form, self._to if isinstance(self._to, str) else "store")
        with self._lock:
            self.num_stored += 1
            if key is not None:
                self._stored[key] = value
        return value


def offload_saved_tensors(
    threshold: int = 1000,
    to: Place = "disk",
    *,
    threshold_nbytes: int | None = None,
    folder: str | Path | None = None,
    model: nn.Module | None = None,
) -> SavedTensorOffload:
    """Keep large saved tensors out of memory from forward until backward needs them.

    ::

        with offload_saved_tensors() as offload:
            loss = model(x).sum()
        loss.backward()

    Gradients are those without it, bit for bit: dtype, shape, strides, layout, conjugate and negative bits and device
    come back as they were. A tensor that several nodes save is stored once; a view is stored without the rest of its
    memory. Parameters, leaves that require a gradient, and their views stay in memory, where their owner keeps them
    anyway; so does what cannot be stored, and it is counted. A stored tensor keeps the value that was saved, a kept one
    raises in backward if it was written since. The peak falls only as far as nothing else keeps the tensors alive.

    Files lie in a folder of this process (mode 0700) and go as soon as the graph lets go of them; the folder goes when
    the process exits, and what killed processes left goes when the next one starts.

    The effect is local to the thread. Contexts nest; the innermost is in effect. Restored on leaving: the pair of
    saved-tensor hooks that was there before.

    Args:
        threshold: number of elements from which on a tensor is stored.
        to: ``"disk"``, ``"cpu"``, or a function ``store(tensor) -> load``, whose ``load()`` returns an equal tensor of
            the same shape, dtype and device, any number of times. It is given a tensor of any shape that owns its
            memory, must not write into it, and copies it if it keeps it.
        threshold_nbytes: number of bytes from which on a tensor is stored, instead of ``threshold``.
        folder: where the private folder is made; None takes the system's folder for temporary files.
        model: its buffers and frozen parameters are known to be kept by it, and stay in memory too.

    Raises:
        ValueError: ``to`` is none of these.
        OSError: in forward: a file cannot be written; the message says what to do.
        RuntimeError: in backward: a file is gone or damaged; no wrong gradient is computed. In forward: a
            DataParallel over two devices or more is called inside; enter the context inside its module's forward.
    """
    return SavedTensorOffload(threshold, to, threshold_nbytes=threshold_nbytes, folder=folder, model=model)


def _has_parts(tensor: torch.Tensor) -> bool:
    return type(tensor) is not torch.Tensor and hasattr(tensor, "__tensor_flatten__")


def _unpack(value: KeptValue | StoredValue | PartedValue) -> torch.Tensor:
    return value.load()


def _rebuilt(settings: dict[str, Any]) -> SavedTensorOffload:
    return SavedTensorOffload(**settings)


def _key(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    """Return what tells one content from another as long as the memory lives; None where strides do not say it."""
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        return None
    return (
        id(tensor.untyped_storage()),
        tensor.storage_offset(),
        tuple(tensor.shape),
        tensor.stride(),
        tensor.dtype,
        tensor.is_conj(),
        tensor.is_neg(),
        tensor._version,
    )
