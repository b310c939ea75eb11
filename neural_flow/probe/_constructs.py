"""Control flow that probes see through: ``scan``, ``while_loop``, ``cond`` and ``map``, in plain Python.

They nest in any order and depth, also inside function transforms. All emissions of one site inside the outermost
construct make one offer: a row for each execution, in the order in which loops written by hand would reach them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from neural_flow import nested, torch_private
from neural_flow.probe._frames import Frame, open_construct
from neural_flow.probe._lanes import open_lanes, split_lanes


def scan(function: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any) -> tuple[Any, Any]:
    """Run ``carry, y = function(carry, x)`` over the rows of ``xs``; return the last carry and the stacked ``y``.

    Args:
        function: one step; the carry is one nest, handed on whole.
        init: the first carry.
        xs: a nest of tensors ``[N, ...]``, all with the same N; step k gets the nest of their rows k.

    Returns:
        The last carry and a nest of tensors ``[N, ...]``; None in place of the nest where N is 0.

    Raises:
        ValueError: ``xs`` holds no tensor, or their first sizes differ.
    """
    carry, ys = init, list[Any]()
    with open_construct("scan", depth=1) as frame:
        for x in _rows(xs, "scan"):
            frame.next_step(mask=frame.mask)
            carry, y = run_body(frame, function, carry, x)
            ys.append(y)
    return carry, _stacked(ys)


def map(function: Callable[[Any], Any], xs: Any) -> Any:  # noqa: A001  (the name that torch and JAX give it)
    """Run ``function`` on each row of ``xs`` and stack the results.

    Args and errors are those of ``scan``.
    """
    with open_construct("map", depth=1) as frame:
        results: list[Any] = []
        for x in _rows(xs, "map"):
            frame.next_step(mask=frame.mask)
            results.append(run_body(frame, function, x))
    return _stacked(results)


def while_loop(condition: Callable[[Any], Any], body: Callable[[Any], Any], init: Any) -> Any:
    """Run ``carry = body(carry)`` while ``condition(carry)`` holds; return the last carry.

    Under ``vmap``, where lanes stop at different steps, a lane that stopped keeps its carry and offers no row.

    Args:
        condition: returns a bool or a boolean tensor of one element; it must not emit.
        body: one step; the carry is one nest, handed on whole.
        init: the first carry.
    """
    carry = init
    with open_construct("while_loop", depth=1) as frame:
        while True:
            frame.is_predicate = True
            holds = run_body(frame, condition, carry)
            frame.is_predicate = False
            mask = _lane_mask(holds)
            if not _any(holds, mask):
                return carry
            frame.next_step(mask=mask)
            new = run_body(frame, body, carry)
            carry = new if mask is None else _chosen(holds, new, carry)


def cond(predicate: Any, if_true: Callable[..., Any], if_false: Callable[..., Any], *operands: Any) -> Any:
    """Return ``if_true(*operands)`` where ``predicate`` holds, else ``if_false(*operands)``.

    Only the branch that is taken runs. Under ``vmap``, where lanes take different branches, both run, each lane keeps
    the result of its own, and a branch offers rows only for the lanes that took it.

    Args:
        predicate: a bool or a boolean tensor of one element.
        if_true: one branch.
        if_false: the other, with a result of the same structure.
        operands: handed to either.
    """
    mask = _lane_mask(predicate)
    with open_construct("cond", depth=1) as frame:
        if mask is None:
            is_true = bool(predicate)
            frame.next_step(branch=0 if is_true else 1)
            return run_body(frame, if_true if is_true else if_false, *operands)
        frame.next_step(branch=0, mask=mask)
        yes = run_body(frame, if_true, *operands)
        frame.step, frame.branch, frame.mask, frame.counts = 0, 1, ~mask, {}
        no = run_body(frame, if_false, *operands)
    return _chosen(predicate, yes, no)


def run_body(frame: Frame, function: Callable[..., Any], *args: Any) -> Any:
    """Run the body of a construct; places of sites are counted from this call on."""
    frame.mark_runner()
    return function(*args)


def _rows(xs: Any, name: str) -> list[Any]:
    leaves = [leaf for _, leaf in nested.tensor_leaves(xs)]
    lengths = {leaf.shape[0] if leaf.dim() else None for leaf in leaves}
    if len(lengths) != 1 or None in lengths:
        found = ", ".join(str(list(leaf.shape)) for leaf in leaves) or "no tensor"
        raise ValueError(f"neural_flow.probe.{name} takes tensors [N, ...] with one N as xs, not {found}")
    return [nested.map_tensors(xs, lambda leaf, k=k: leaf[k]) for k in range(leaves[0].shape[0])]


def _stacked(results: list[Any]) -> Any:
    if not results:
        return None
    columns = zip(*([leaf for _, leaf in nested.tensor_leaves(result)] for result in results), strict=True)
    stacks = iter([torch.stack(column) for column in columns])
    return nested.map_tensors(results[0], lambda _: next(stacks))


def _lane_mask(predicate: Any) -> torch.Tensor | None:
    """Return which lanes a predicate holds for, ``[*lanes]``; None where it is one for all."""
    if not isinstance(predicate, torch.Tensor):
        return None
    lanes = open_lanes()
    if not lanes.levels or not any(axis in lanes.levels for axis in torch_private.unwrap_transforms(predicate)[1]):
        return None
    with torch_private.without_modes(), torch.no_grad():
        plain = split_lanes(predicate, lanes)
        with torch_private.outside_transforms():
            return plain.reshape(lanes.sizes).to(torch.bool)


def _any(holds: Any, mask: torch.Tensor | None) -> bool:
    if mask is None:
        return bool(holds)
    with torch_private.without_modes(), torch_private.outside_transforms():
        return bool(mask.any())


def _chosen(predicate: torch.Tensor, yes: Any, no: Any) -> Any:
    others = iter([leaf for _, leaf in nested.tensor_leaves(no)])
    return nested.map_tensors(yes, lambda leaf: torch.where(predicate.to(torch.bool), leaf, next(others)))
