"""One saved tensor as plain data, and a table of many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

SavedKind = Literal["parameter", "buffer", "input", "activation", "workspace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTensorRow:
    """One tensor that a node of the graph saved. No tensor is held.

    Attributes:
        node: class of the node (``AddmmBackward0``); None where it was not looked for or is gone.
        node_index: number of the node in the order of the walk, from 0; None likewise.
        attribute: the name that the node saved it under (``self``, ``indices[1]``, ``ctx.mask``); None likewise.
        shape: sizes; None where it is packed by foreign hooks, which are not asked.
        dtype: such as ``float32``; None likewise.
        device: such as ``cpu``; None likewise.
        nbytes: bytes of the elements of this tensor, a view counted by its own elements.
        storage: number of the memory that it lies in: equal for tensors that share memory; None where unknown.
        storage_nbytes: bytes of that memory.
        packed: what foreign hooks made of it (``Holder``); empty where it is kept as it is.
        path: path of the module whose call saved it, ``""`` the model itself, ``<root>`` outside of all calls.
        call_index: number of that call of the module, from 0.
        kind: what the memory belongs to.
        shared_with: the other calls that saved the same memory, such as ``encoder.0`` or ``act#1``.
        is_recomputed: whether it was saved during a backward pass, by a forward that ran a second time.
    """

    node: str | None = None
    node_index: int | None = None
    attribute: str | None = None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    device: str | None = None
    nbytes: int = 0
    storage: int | None = None
    storage_nbytes: int = 0
    packed: str = ""
    path: str = ""
    call_index: int = 0
    kind: SavedKind = "activation"
    shared_with: tuple[str, ...] = ()
    is_recomputed: bool = False

    @property
    def call(self) -> str:
        """The call as the graph file names it: the path, ``#k`` from the second call."""
        return call_name(self.path, self.call_index)


def call_name(path: str, call_index: int) -> str:
    """Return a call's name: the path of its module, ``#k`` from the second call on."""
    return f"{path}#{call_index}" if call_index else path


def unique_nbytes(rows: Iterable[SavedTensorRow]) -> int:
    """Return the bytes of the memory behind ``rows``, what several of them share counted once."""
    sizes = {
        ("storage", row.storage) if row.storage is not None else ("row", index): row.storage_nbytes
        for index, row in enumerate(rows)
    }
    return sum(sizes.values())


def format_nbytes(nbytes: float) -> str:
    """Return a number of bytes for people: ``1.5 kB``, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 999.5:
            return f"{nbytes:.3g} {unit}" if unit != "B" else f"{nbytes:.0f} B"
        nbytes /= 1000
    return f"{nbytes:.4g} TB"


def format_table(header: Sequence[str], cells: Sequence[Sequence[str]], right: Iterable[int] = ()) -> str:
    """Return a text table: columns two spaces apart, those numbered in ``right`` flush right."""
    flush = set(right)
    widths = [max(len(row[index]) for row in (header, *cells)) for index in range(len(header))]
    return "\n".join(
        "  ".join(
            text.rjust(width) if index in flush else text.ljust(width)
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (header, *cells)
    )
