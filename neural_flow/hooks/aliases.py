"""Which tensors of a module output share their memory with something that outlives the call."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from neural_flow import nested
from neural_flow.torch_private import keep_from_dynamo, storage_id


def shared_leaves(leaves: Sequence[torch.Tensor], inputs: Any, module: nn.Module | None) -> list[bool]:
    """Return for each leaf whether it shares memory with another leaf, an input, or a tensor of ``module``.

    A leaf whose memory cannot be told (batched, sparse) counts as shared.

    Args:
        leaves: tensors of a module output.
        inputs: any nest: what the module was called with.
        module: its parameters and buffers, at every depth, count as well.
    """
    others = [tensor for _, tensor in nested.tensor_leaves(inputs)]
    if torch.compiler.is_compiling():
        return _shared_while_compiling(leaves, others, module)
    if module is not None:
        others += [*module.parameters(), *module.buffers()]
    outside = {storage_id(tensor) for tensor in others}
    inside = [storage_id(leaf) for leaf in leaves]
    times = Counter(inside)
    return [memory is None or memory in outside or times[memory] > 1 for memory in inside]


def _shared_while_compiling(
    leaves: Sequence[torch.Tensor], others: Sequence[torch.Tensor], module: nn.Module | None
) -> list[bool]:
    """Compare what the tensors are views of: Dynamo traces no storages."""
    buffers = list(module.buffers()) if module is not None else []
    roots = [_root(tensor) for tensor in (*others, *buffers)]
    own = [_root(leaf) for leaf in leaves]
    return [
        isinstance(root, nn.Parameter)
        or any(root is other for other in roots)
        or any(root is other for other in own[:index] + own[index + 1 :])
        for index, root in enumerate(own)
    ]


def _root(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor._base is None else tensor._base


@keep_from_dynamo
def held_leaves(output: Any) -> list[bool]:
    """Return for each tensor that requires a gradient whether something besides ``output`` and one variable holds it.

    A layer or a forward hook that keeps the output would see its values change, but not its gradient, when an operation
    behind a gate works in place. Containers other than tuple, list and dict are not judged.

    Args:
        output: what a module returned. The caller has exactly one variable for it.
    """
    counts = _reference_counts(output)
    if type(output) not in (tuple, list, dict) and not isinstance(output, torch.Tensor):
        return [False] * (len(counts) - 1)
    # counted anew each time: a debugger or Dynamo changes how many references a call itself takes
    usual = _counts_of_fresh(output)
    is_held = counts[0] > usual[0]
    return [is_held or count > usual[-1] for count in (counts if isinstance(output, torch.Tensor) else counts[1:])]


def _reference_counts(output: Any) -> list[int]:
    """Return the references to ``output`` and, where it is no tensor, to each leaf that requires a gradient."""
    if isinstance(output, torch.Tensor):
        return [sys.getrefcount(output)]
    leaves = [leaf for _, leaf in nested.tensor_leaves(output) if leaf.requires_grad]
    return [sys.getrefcount(output), *[sys.getrefcount(leaves[index]) for index in range(len(leaves))]]


def _counts_of_fresh(like: Any) -> list[int]:
    """Return the counts for an output of the kind of ``like`` that nothing else holds, over as many calls."""
    tensor = [torch.empty(0, requires_grad=True)]
    if isinstance(like, torch.Tensor):
        output: Any = tensor.pop()
    else:
        output = {"": tensor.pop()} if isinstance(like, dict) else type(like)((tensor.pop(),))
    return _relay(output)


def _relay(output: Any) -> list[int]:
    return _reference_counts(output)
