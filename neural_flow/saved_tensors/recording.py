"""Record what a model saves for backward, by the module call that saved it, without keeping any tensor."""

from __future__ import annotations

import dataclasses
import sys
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from neural_flow.module_calls import CallFrame, ModuleCallStack, all_modules
from neural_flow.nested import tensor_leaves
from neural_flow.saved_tensors._guard import Witness
from neural_flow.saved_tensors._parallel import refusing_data_parallel
from neural_flow.saved_tensors._storages import StorageKinds, StorageNumbers, owner_of, storage_nbytes_of
from neural_flow.saved_tensors.graph_walk import MAX_NODES, describe, saved_values, walk_nodes
from neural_flow.saved_tensors.rows import (
    SavedKind,
    SavedTensorRow,
    format_nbytes,
    format_table,
    unique_nbytes,
)
from neural_flow.torch_private import graph_task_id

OUTSIDE = "<root>"
MAX_SHARED_SHOWN = 8
"""Calls named in one line of the table; a row of the record has them all."""
_CHECKPOINT = "torch/utils/checkpoint.py"
_HEADER = ("call", "kind", "shape", "dtype", "bytes", "memory", "node", "shared with")


class RecordedValue:
    """What autograd keeps for one recorded tensor: an alias of it, its version, and the number of its row."""

    __slots__ = ("__weakref__", "_record", "_witness", "number", "saved_tensor")

    def __init__(self, tensor: torch.Tensor, number: int, record: SavedTensorRecord) -> None:
        self.saved_tensor = tensor.detach()  # the tensor itself would make a cycle with the graph that holds this
        self.number = number
        self._witness = Witness(tensor, is_memory_kept=True)
        self._record = weakref.ref(record)

    @property
    def saved_tensor_row(self) -> SavedTensorRow | None:
        """The row of the record, if the record still lives."""
        record = self._record()
        return None if record is None else record.row(self.number)

    def unpacked(self) -> torch.Tensor:
        """Return the tensor, unless it was written since."""
        self._witness.check()
        return self.saved_tensor


class SavedTensorRecord:
    """What was saved, in the order of saving. Prints as a table; holds no tensor.

    ``record_saved_tensors`` makes one for a model. To attribute to something else than module calls, make one with
    another ``owner`` and put its ``pack`` and ``unpack`` into effect.

    Args:
        owner: returns (path, call index) of what runs now.
    """

    def __init__(self, owner: Callable[[], tuple[str, int]]) -> None:
        self._owner = owner
        self._rows: list[SavedTensorRow] = []
        self._numbers = StorageNumbers()
        self._kinds = StorageKinds()

    def note_model(self, model: nn.Module) -> None:
        """Tell the memory of the parameters and buffers of ``model`` from activations."""
        modules = all_modules(model)
        for kind in ("parameter", "buffer"):
            for module in modules:
                held = module._parameters if kind == "parameter" else module._buffers
                for tensor in held.values():
                    if tensor is not None:
                        self._kinds.note(tensor, kind)

    def note_inputs(self, *values: Any) -> None:
        """Tell the memory of the tensors in these nests from activations."""
        for _, tensor in tensor_leaves(values):
            self._kinds.note(tensor, "input")

    def pack(self, tensor: torch.Tensor) -> RecordedValue:
        """Add a row; a pack hook."""
        path, call_index = self._owner()
        is_in_backward = graph_task_id() != -1
        self._rows.append(
            describe(
                tensor,
                self._numbers.number_of(tensor),
                path=path,
                call_index=call_index,
                kind=self._kind_of(tensor),
                is_recomputed=is_in_backward and (path != OUTSIDE or _is_in_checkpoint()),
            )
        )
        return RecordedValue(tensor, len(self._rows) - 1, self)

    @staticmethod
    def unpack(value: RecordedValue) -> torch.Tensor:
        """Return the tensor; an unpack hook.

        Raises:
            RuntimeError: it was written in place since it was saved.
        """
        return value.unpacked()

    def storages_in(self, value: Any) -> dict[int, int]:
        """Return the number and bytes of each storage behind the tensors of a nest."""
        leaves = [leaf for _, leaf in tensor_leaves(value)]
        numbered = [(self._numbers.number_of(leaf), leaf) for leaf in leaves]
        return {number: storage_nbytes_of(leaf) for number, leaf in numbered if number is not None}

    def row(self, number: int) -> SavedTensorRow:
        """Return one row as it was recorded, without what it shares."""
        return self._rows[number]

    @property
    def rows(self) -> tuple[SavedTensorRow, ...]:
        """All rows, in the order of saving."""
        calls: dict[int | None, dict[str, None]] = {}
        for row in self._rows:
            calls.setdefault(row.storage, {})[row.call] = None
        others: dict[tuple[int | None, str], tuple[str, ...]] = {}
        for storage, found in calls.items():
            known = tuple(found) if storage is not None else ()
            for place, call in enumerate(known if len(known) > 1 else ()):
                others[storage, call] = known[:place] + known[place + 1 :]
        return tuple(
            row
            if (shared_with := others.get((row.storage, row.call))) is None
            else dataclasses.replace(row, shared_with=shared_with)
            for row in self._rows
        )

    @property
    def total_nbytes(self) -> int:
        """Bytes of the memory that saving keeps alive, each storage once; parameters and buffers live anyway."""
        return unique_nbytes(row for row in self._rows if row.kind not in ("parameter", "buffer"))

    @property
    def param_nbytes(self) -> int:
        """Bytes of the parameters and buffers among what was saved."""
        return unique_nbytes(row for row in self._rows if row.kind in ("parameter", "buffer"))

    @property
    def nbytes_by_kind(self) -> dict[str, int]:
        """Bytes by kind, each storage once."""
        kinds = dict.fromkeys(row.kind for row in self._rows)
        return {kind: unique_nbytes(row for row in self._rows if row.kind == kind) for kind in kinds}

    @property
    def nbytes_by_call(self) -> dict[str, int]:
        """Bytes by call, parameters and buffers left out; memory that several calls saved counts for the first."""
        by_call: dict[str, int] = {}
        seen: set[int] = set()
        for row in self._rows:
            if row.kind not in ("parameter", "buffer"):
                is_new = row.storage is None or row.storage not in seen
                by_call[row.call] = by_call.get(row.call, 0) + (row.storage_nbytes if is_new else 0)
                if row.storage is not None:
                    seen.add(row.storage)
        return by_call

    def join_nodes(self, output: Any, *, max_nodes: int = MAX_NODES) -> int:
        """Find the nodes and attributes of the rows in the graph behind ``output``, and return how many were found.

        Rows whose node is released or not behind ``output`` keep None. Nothing is unpacked.

        Raises:
            RuntimeError: the graph has more than ``max_nodes`` nodes, as for ``list_saved_tensors``.
        """
        num_found = 0
        for index, node in enumerate(walk_nodes(output, max_nodes=max_nodes)):
            for attribute, value in saved_values(node):
                if isinstance(value, RecordedValue) and value._record() is self:  # our own slot
                    num_found += 1
                    row = self._rows[value.number]
                    self._rows[value.number] = dataclasses.replace(
                        row,
                        node=node.name(),
                        node_index=index,
                        attribute=attribute,
                        kind=_refined_kind(row.kind, attribute, value.saved_tensor),
                    )
        return num_found

    def _kind_of(self, tensor: torch.Tensor) -> SavedKind:
        owner = owner_of(tensor)
        if isinstance(owner, nn.Parameter):
            self._kinds.note(tensor, "parameter")
        kind = self._kinds.kind_of(tensor)
        if kind is None:
            is_block = tensor.dtype is torch.uint8 and tensor.dim() == 1 and not tensor.requires_grad
            kind = "workspace" if is_block else "activation"
        return cast(SavedKind, kind)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<SavedTensorRecord: {len(self)} saved tensors, {format_nbytes(self.total_nbytes)}>"

    def __str__(self) -> str:
        cells = [_cells(row) for row in self.rows]
        kinds = ", ".join(f"{kind} {format_nbytes(nbytes)}" for kind, nbytes in self.nbytes_by_kind.items())
        table = format_table(_HEADER, cells, right=(4, 5))
        return f"{table}\n{format_nbytes(self.total_nbytes)} beside parameters and buffers ({kinds or 'nothing saved'})"


@contextmanager
def record_saved_tensors(model: nn.Module) -> Generator[SavedTensorRecord]:
    """Record what this thread saves for backward inside the context, by the call of ``model`` that saves it.

    ::

        with record_saved_tensors(model) as record:
            loss = model(x).sum()
        record.join_nodes(loss)
        print(record)

    The record keeps no tensor and stays readable afterwards; gradients are those without it, and so is the version
    check. Tensors that an inner pair of hooks packs are not seen: inside a checkpoint these are all but its inputs.
    Restored on leaving: module hooks and the pair of saved-tensor hooks that was there before.

    Args:
        model: the module whose calls, parameters, buffers and inputs are told apart. It is not changed.

    Yields:
        The record.

    Raises:
        RuntimeError: a DataParallel over two devices or more is called inside.
    """

    def owner() -> tuple[str, int]:
        frame = calls.current
        return (OUTSIDE, 0) if frame is None else (frame.path, frame.call_index)

    def note_inputs(frame: CallFrame, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
        if frame.parent is None:
            record.note_inputs(args, kwargs)

    record = SavedTensorRecord(owner)
    record.note_model(model)
    calls = ModuleCallStack(model, on_enter=note_inputs)
    with refusing_data_parallel("record_saved_tensors"), calls, saved_tensors_hooks(record.pack, record.unpack):
        yield record


def _refined_kind(kind: SavedKind, attribute: str, tensor: torch.Tensor) -> SavedKind:
    """Return ``workspace`` for side results that only backward reads: masks, indices, inverse deviations.

    Torch names the results of an operator ``result0``, ``result1``, ... where it has several; users see the first.
    """
    is_side_result = attribute[:6] == "result" and attribute[6:].isdigit() and attribute != "result0"
    return "workspace" if kind == "activation" and is_side_result else kind


def _is_in_checkpoint() -> bool:
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.replace("\\", "/").endswith(_CHECKPOINT):
            return True
        frame = frame.f_back
    return False


def _cells(row: SavedTensorRow) -> tuple[str, ...]:
    node = "" if row.node is None else f"{row.node}.{row.attribute}"
    shape = "×".join(map(str, row.shape or ())) or "scalar"
    marks = ["recomputed"] * row.is_recomputed + list(row.shared_with[:MAX_SHARED_SHOWN])
    if len(row.shared_with) > MAX_SHARED_SHOWN:
        marks.append(f"and {len(row.shared_with) - MAX_SHARED_SHOWN} more")
    call = row.call or "(model)"
    return (
        call,
        row.kind,
        shape,
        row.dtype or "",
        format_nbytes(row.nbytes),
        format_nbytes(row.storage_nbytes),
        node,
        ", ".join(marks),
    )
