"""What autograd holds in place of a saved tensor while offloading is in effect."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from neural_flow.saved_tensors._guard import Witness
from neural_flow.saved_tensors._layouts import Form, lay_out
from neural_flow.saved_tensors._storages import is_sharing_memory, storages_of
from neural_flow.saved_tensors._stores import Stored
from neural_flow.saved_tensors.graph_walk import describe, shape_of
from neural_flow.saved_tensors.rows import SavedTensorRow
from neural_flow.torch_private import without_modes


class KeptValue:
    """A saved tensor that stays in memory, by reference, with its version."""

    __slots__ = ("_tensor", "_witness")

    def __init__(self, tensor: torch.Tensor, *, is_very_object: bool = False) -> None:
        # the tensor itself would make a cycle with the graph that holds this; one without a graph makes none
        self._tensor = tensor if is_very_object else tensor.detach()
        self._witness = Witness(tensor, is_memory_kept=True)

    @property
    def saved_tensor(self) -> torch.Tensor:
        """The tensor, for those who list the graph."""
        return self._tensor

    @property
    def saved_tensor_row(self) -> SavedTensorRow:
        """What it is, for those who list the graph."""
        return describe(self._tensor, None)

    def load(self) -> torch.Tensor:
        """Return the tensor, unless it was written since."""
        self._witness.check()
        return self._tensor


class StoredValue:
    """A saved tensor that lies elsewhere; what it lies in goes with this object."""

    __slots__ = ("__weakref__", "_form", "_piece", "_row", "_storages", "_stored", "_witness")

    def __init__(self, tensor: torch.Tensor, piece: torch.Tensor, stored: Stored, form: Form, place: str) -> None:
        self._piece = _outline(piece)
        self._stored = stored
        self._form = form
        self._row = describe(tensor, None, packed=place)
        self._storages = tuple(weakref.ref(storage) for storage in storages_of(tensor))
        self._witness = Witness(tensor)

    @property
    def saved_tensor(self) -> None:
        """None: it is not in memory."""
        return

    @property
    def saved_tensor_row(self) -> SavedTensorRow:
        """What it is, for those who list the graph."""
        return self._row

    def is_of(self, tensor: torch.Tensor, piece: torch.Tensor) -> bool:
        """Return whether this holds what ``tensor``, cut out as ``piece``, holds now.

        Memory and version nearly tell; a write through ``.data`` leaves the version, so the bytes are compared too.
        """
        storages = storages_of(tensor)
        return (
            self._witness.is_unchanged
            and len(storages) == len(self._storages)
            and all(ref() is storage for ref, storage in zip(self._storages, storages, strict=True))
            and self._stored.is_same(piece)
        )

    def load(self) -> torch.Tensor:
        """Return the tensor.

        Raises:
            RuntimeError: the store returned something else, or a reference to a tensor that was written since.
        """
        with torch.no_grad(), without_modes():
            piece = self._stored.load()
            found, expected = _outline(piece), self._piece
            if found != expected:
                raise RuntimeError(
                    f"the store's load() returned shape, dtype and device {_words(found)}, expected {_words(expected)}"
                )
            live = [storage for ref in self._storages if (storage := ref()) is not None]
            if is_sharing_memory(piece, live):
                self._witness.check()
            return lay_out(piece, self._form)


class PartedValue:
    """A subclass made of tensors (jagged nested tensors and the like), each of which is kept or stored on its own."""

    __slots__ = ("_context", "_parts", "_row", "_size", "_stride", "_type")

    def __init__(self, tensor: torch.Tensor, context: Any, parts: dict[str, KeptValue | StoredValue]) -> None:
        self._type: Any = type(tensor)
        self._context = context
        self._parts = parts
        self._size, self._stride = tensor.size(), tensor.stride()
        self._row = describe(tensor, None, packed="parts")

    @property
    def saved_tensor(self) -> None:
        """None: it is not in memory as a whole."""
        return

    @property
    def saved_tensor_row(self) -> SavedTensorRow:
        """What it is, for those who list the graph."""
        return self._row

    def load(self) -> torch.Tensor:
        """Return the tensor, made anew of its parts."""
        inner = {name: part.load() for name, part in self._parts.items()}
        with torch.no_grad(), without_modes():
            return self._type.__tensor_unflatten__(inner, self._context, self._size, self._stride)


def _outline(piece: torch.Tensor) -> tuple[Any, ...]:
    return shape_of(piece), piece.dtype, piece.device


def _words(found: tuple[Any, ...]) -> str:
    shape, dtype, device = found
    return f"{list(shape)} {str(dtype).removeprefix('torch.')} {device}"
