"""Walk the graph behind an output and list what its nodes saved, without unpacking anything."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd.graph import Node

from neural_flow.nested import tensor_leaves
from neural_flow.saved_tensors._storages import StorageNumbers, storage_nbytes_of, view_nbytes_of
from neural_flow.saved_tensors.rows import SavedTensorRow
from neural_flow.torch_private import require

MAX_NODES = 20_000


def list_saved_tensors(output: Any, *, max_nodes: int = MAX_NODES) -> tuple[SavedTensorRow, ...]:
    """List what each node behind ``output`` saved for backward.

    No unpack hook runs, no file is read, no checkpoint recomputes. What foreign hooks packed is listed by the type of
    what they made of it, without shape. A released node lists nothing.

    Args:
        output: a tensor of any dtype, shape and device, or any nest of tensors; it is not changed.
        max_nodes: number of nodes above which the walk refuses.

    Returns:
        Rows in the order of the walk: from the output to the leaves, breadth first.

    Raises:
        RuntimeError: the graph has more nodes. Walking a chain of 50,000 nodes from Python makes torch overflow its
            stack later, when the graph is freed; ``record_saved_tensors`` walks nothing.
    """
    require("saved tensor data", "list_saved_tensors")
    numbers = StorageNumbers()
    rows: list[SavedTensorRow] = []
    for index, node in enumerate(walk_nodes(output, max_nodes=max_nodes)):
        name = node.name()
        rows += [
            _row(name, index, attribute, data, numbers) for attribute, data in saved_values(node) if data is not None
        ]
    return tuple(rows)


def walk_nodes(output: Any, *, max_nodes: int = MAX_NODES) -> list[Node]:
    """Return the nodes of the graph behind ``output``, breadth first, each one once.

    Raises:
        RuntimeError: there are more than ``max_nodes``.
    """
    starts = [_start(tensor) for _, tensor in tensor_leaves(output)]
    found: dict[Node, None] = dict.fromkeys(node for node in starts if node is not None)
    waiting = list(found)
    for node in waiting:  # grows while it is read
        if len(waiting) > max_nodes:
            raise RuntimeError(
                f"the graph has more than {max_nodes} nodes: walking it from Python can crash the process when it is "
                "freed; use record_saved_tensors around the forward, or raise max_nodes for a graph that is wide "
                "rather than deep"
            )
        for following, _ in node.next_functions:
            if following is not None and following not in found:
                found[following] = None
                waiting.append(following)
    return waiting


def _start(tensor: torch.Tensor) -> Node | None:
    return tensor.grad_fn if isinstance(tensor, torch.Tensor) else None


@functools.cache
def _raw_names(kind: type) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))


def saved_values(node: Node) -> Iterator[tuple[str, Any]]:
    """Yield (attribute, what is kept for it): a tensor, what a pack hook returned, or None where nothing is left."""
    for raw_name in _raw_names(type(node)):
        name = raw_name.removeprefix("_raw_saved_")
        try:
            saved = getattr(node, raw_name)
        except RuntimeError:  # a list of saved tensors that was released
            continue
        if isinstance(saved, tuple | list):
            for index, one in enumerate(saved):
                yield f"{name}[{index}]", one.data
        else:
            yield name, saved.data
    for name, value in tuple(getattr(node, "__dict__", {}).items()):  # what a Function put on its ctx
        yield from tensor_leaves(value, f"ctx.{name}")


def _row(node: str, index: int, attribute: str, data: Any, numbers: StorageNumbers) -> SavedTensorRow:
    if isinstance(data, torch.Tensor):
        return describe(data, numbers.number_of(data), node=node, node_index=index, attribute=attribute)
    told = getattr(data, "saved_tensor_row", None)
    if isinstance(told, SavedTensorRow):
        tensor = data.saved_tensor
        return SavedTensorRow(
            node=node,
            node_index=index,
            attribute=attribute,
            shape=told.shape,
            dtype=told.dtype,
            device=told.device,
            nbytes=told.nbytes,
            storage=None if tensor is None else numbers.number_of(tensor),
            storage_nbytes=told.storage_nbytes,
            packed=told.packed,
            kind=told.kind,
        )
    return SavedTensorRow(node=node, node_index=index, attribute=attribute, packed=type(data).__name__.lstrip("_"))


def describe(tensor: torch.Tensor, storage: int | None, **fields: Any) -> SavedTensorRow:
    """Return the row of a tensor; ``fields`` are further fields of the row."""
    return SavedTensorRow(
        shape=shape_of(tensor),
        dtype=str(tensor.dtype).removeprefix("torch."),
        device=str(tensor.device),
        nbytes=view_nbytes_of(tensor),
        storage=storage,
        storage_nbytes=storage_nbytes_of(tensor),
        **fields,
    )


def shape_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the sizes as numbers; of a nested tensor a size that varies is -1."""
    return tuple(_size_of(tensor, axis) for axis in range(tensor.dim()))


def _size_of(tensor: torch.Tensor, axis: int) -> int:
    try:
        return int(tensor.size(axis))
    except (AttributeError, RuntimeError, ValueError):  # rows of different lengths have no number, or a symbol
        return -1
