"""Gradients in the structure of a module output, and the check that what a hook returns can take their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch

from neural_flow import nested
from neural_flow.hooks.registry import BackwardHook, HookKind, HookReturnError, hook_name, none_returned

Gradients: TypeAlias = Sequence[torch.Tensor | None]


class GradientMeta(NamedTuple):
    """What the gradient of one leaf must look like: ``shape``, ``dtype`` and ``device`` of the leaf."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: torch.Tensor) -> GradientMeta:
        """Return the meta of ``tensor``."""
        return cls(tensor.shape, tensor.dtype, tensor.device)


class OutputStructure:
    """The structure of a module output that is no single tensor, without its tensors.

    Args:
        output: any nest of tensors.
        is_gated: of each tensor leaf of ``output``, in order, whether it passes the gate.

    Raises:
        TypeError: the output holds a set of tensors, equal names, or a container that cannot be rebuilt.
    """

    def __init__(self, output: Any, is_gated: Sequence[bool]) -> None:
        refuse_sets(output)
        leaves = nested.tensor_leaves(output)
        self.is_gated = is_gated
        self.names = [name for name, _ in leaves]
        if len(set(self.names)) < len(self.names):
            raise TypeError("backward hooks need to tell the tensors of the module output apart; two have equal names")
        self.metas = [GradientMeta.of(leaf) for _, leaf in leaves]
        try:
            self.template = _filled(output, [torch.empty(0, dtype=leaf.dtype) for _, leaf in leaves])
        except Exception as error:
            raise TypeError(
                f"backward hooks put other tensors into the module output, which {type(output).__name__} refuses"
            ) from error
        self.kept: Gradients = [None] * len(leaves)
        try:
            _filled(self.template, self.kept)
        except Exception:  # a container that cannot hold None, such as PackedSequence, keeps its index tensors
            self.kept = [None if gated else leaf for gated, (_, leaf) in zip(self.is_gated, leaves, strict=True)]

    def replace_gated(self, output: Any, gated: Sequence[torch.Tensor]) -> Any:
        """Return ``output`` with its gated leaves replaced, in order."""
        rest = iter(gated)
        leaves = [leaf for _, leaf in nested.tensor_leaves(output)]
        return _filled(
            output,
            [next(rest) if is_gated else leaf for is_gated, leaf in zip(self.is_gated, leaves, strict=True)],
        )

    def run(self, hook: BackwardHook, grads: Gradients) -> Gradients:
        """Return what ``hook`` makes of ``grads``, one gradient a gated leaf.

        Raises:
            HookReturnError: the hook returned None, or another structure, or what cannot be the gradient of a leaf.
        """
        rest = iter(grads)
        by_leaf = [next(rest) if is_gated else kept for is_gated, kept in zip(self.is_gated, self.kept, strict=True)]
        result = hook(_filled(self.template, by_leaf))
        if result is None:
            raise none_returned(HookKind.backward, hook)
        found = dict(nested.tensor_leaves(result))
        new: list[torch.Tensor | None] = []
        for name, given, meta, is_gated in zip(self.names, by_leaf, self.metas, self.is_gated, strict=True):
            if is_gated:
                new.append(self._checked_leaf(hook, found.pop(name, None), given, meta, name))
            elif given is not None:
                found.pop(name, None)
        if found:
            raise HookReturnError(
                f"backward hook {hook_name(hook)} returned a gradient at {_where(next(iter(found)))!r}, where the "
                "module output has no tensor that requires one",
                hint="return the structure that the hook was given",
            )
        return new

    def _checked_leaf(
        self, hook: BackwardHook, value: torch.Tensor | None, given: torch.Tensor | None, meta: GradientMeta, name: str
    ) -> torch.Tensor | None:
        if value is None and given is None:
            return None
        if value is None:
            raise HookReturnError(
                f"backward hook {hook_name(hook)} returned no tensor at {_where(name)!r}, where it was given a "
                "gradient, so the gradient would be lost",
                hint="return the structure that the hook was given; torch.zeros_like stops a gradient",
            )
        return checked_gradient(hook, value, meta, name)


def checked_gradient(hook: BackwardHook, value: Any, meta: GradientMeta, name: str = "") -> torch.Tensor:
    """Return ``value`` if it can be the gradient of a leaf with this meta.

    PyTorch itself casts a gradient of another dtype without a word.

    Raises:
        HookReturnError: it is no tensor, or its shape, dtype or device differ.
    """
    at = f" at {name!r}" if name else ""
    if not isinstance(value, torch.Tensor):
        raise HookReturnError(
            f"backward hook {hook_name(hook)} returned {type(value).__name__}{at} instead of a tensor",
            hint="return the gradient to go on with",
        )
    for what, found, expected in zip(GradientMeta._fields, GradientMeta.of(value), meta, strict=True):
        if found != expected:
            raise HookReturnError(
                f"backward hook {hook_name(hook)} returned a gradient of {what} {_text(found)}{at}, expected "
                f"{_text(expected)}",
                hint="the gradient has the shape, dtype and device of the module output",
            )
    return value


def refuse_sets(value: Any) -> None:
    """Refuse sets of tensors, whose order changes when their tensors are replaced.

    Raises:
        TypeError: ``value`` is or holds a set with tensors in it.
    """
    if isinstance(value, set | frozenset) and nested.tensor_leaves(value):
        raise TypeError("backward hooks cannot follow tensors through a set, which has no order; return a list")
    if isinstance(value, list | tuple):
        for child in value:
            refuse_sets(child)
    elif isinstance(value, Mapping):
        for child in value.values():
            refuse_sets(child)


def _filled(value: Any, leaves: Sequence[torch.Tensor | None]) -> Any:
    """Return ``value`` with its tensor leaves replaced, in order."""
    rest = iter(leaves)
    return nested.map_tensors(value, lambda _: next(rest))


def _where(name: str) -> str:
    return name or "the top"


def _text(value: Any) -> str:
    return str(list(value)) if isinstance(value, torch.Size) else str(value)
