"""Torch's pair of hooks for saved tensors, with the version check kept: for a region, or for one saved tensor."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.graph import Node, saved_tensors_hooks

from neural_flow.saved_tensors._guard import GuardedPair, PackHook, UnpackHook
from neural_flow.torch_private import require

_NAME = re.compile(r"(\w+)(?:\[(\d+)\])?")


@contextmanager
def saved_tensor_hooks(pack_hook: PackHook, unpack_hook: UnpackHook) -> Generator[None]:
    """Pack and unpack every tensor that this thread saves for backward inside the context.

    Torch's ``saved_tensors_hooks``, with two additions. A tensor that ``pack_hook`` keeps by reference and that is
    written in place later raises in backward, as it does without hooks; a copy gives the gradient of the saved value.
    And a ``pack_hook`` that returns its argument leaks nothing.

    Contexts nest: only the innermost pair runs. Restored on leaving: the pair that was there before.

    Args:
        pack_hook: called once for each saved tensor, as ``pack_hook(tensor)``, with autograd off. It gets the very
            tensor, of any dtype, shape and device, must not write into it, and may return anything.
        unpack_hook: called as ``unpack_hook(packed)`` each time the tensor is needed, maybe in another thread. It
            must not write into what it is given, and returns a tensor of the same content, dtype, shape and device.

    Raises:
        RuntimeError: in backward, what is said above; the message names a hook that wrote into its input.
        Exception: what a hook raises leaves forward or backward as it is.
    """
    pair = GuardedPair(pack_hook, unpack_hook)
    with saved_tensors_hooks(pair.pack, pair.unpack):
        yield


def register_saved_tensor_hooks(grad_fn: Node, name: str, pack_hook: PackHook, unpack_hook: UnpackHook) -> None:
    """Pack one tensor that ``grad_fn`` has saved: at once, with the same promises as ``saved_tensor_hooks``.

    Torch has no way to take such hooks off again; they go with the node.

    Args:
        grad_fn: a node of the graph, such as ``y.grad_fn``.
        name: the name that it saved the tensor under, such as ``self``, ``result``, or ``indices[1]`` where it saved
            several: as ``list_saved_tensors`` names it.
        pack_hook: called now, with a detached alias of the tensor.
        unpack_hook: called each time the tensor is needed.

    Raises:
        AttributeError: the node saved nothing under this name; the message lists what it saved.
        RuntimeError: the tensor was released already, has hooks already, is None, or was written after it was saved.
    """
    require("saved tensor data", "register_saved_tensor_hooks")
    saved = _find(grad_fn, name)
    if saved.data is not None and saved.unpack_hook is None:
        _check_unwritten(grad_fn, name)
    pair = GuardedPair(pack_hook, unpack_hook)
    saved.register_hooks(pair.pack, pair.unpack)


def _find(grad_fn: Node, name: str) -> Any:
    match = _NAME.fullmatch(name)
    names = [one.removeprefix("_raw_saved_") for one in dir(grad_fn) if one.startswith("_raw_saved_")]
    if match is None or match[1] not in names:
        raise AttributeError(
            f"{grad_fn.name()} saved no tensor under the name {name!r}; it saved: {', '.join(names) or 'nothing'}"
        )
    saved = getattr(grad_fn, f"_raw_saved_{match[1]}")
    if not isinstance(saved, tuple | list):
        if match[2] is not None:
            raise AttributeError(
                f"{grad_fn.name()} saved one tensor under the name {match[1]!r}: leave [{match[2]}] out"
            )
        return saved
    index = int(match[2]) if match[2] is not None else 0 if len(saved) == 1 else -1
    if not 0 <= index < len(saved):
        raise AttributeError(
            f"{grad_fn.name()} saved {len(saved)} tensors under the name {match[1]!r}: "
            f"write {match[1]}[0] to {match[1]}[{len(saved) - 1}]"
        )
    return saved[index]


def _check_unwritten(grad_fn: Node, name: str) -> None:
    """Let torch compare versions, as it does where a tensor without hooks is read; afterwards it would not."""
    bare = name.partition("[")[0]
    saved = getattr(grad_fn, f"_raw_saved_{bare}")
    if isinstance(saved, tuple | list) and any(one.unpack_hook is not None for one in saved):
        return
    with torch.no_grad():
        getattr(grad_fn, "saved_tensors" if bare == "tensors" else f"_saved_{bare}")
