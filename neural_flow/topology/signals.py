"""Which values are the signal that a net works on, and which are masks, ids, positions and other plumbing."""

from __future__ import annotations

from collections.abc import Sequence

from neural_flow.records import ValueRef
from neural_flow.topology._base import FlowOp
from neural_flow.topology.op_names import is_carrier, is_gatherer, is_heavy, is_view

FLOATING = ("float", "bfloat", "complex", "qint", "quint")
"""How the names of dtypes begin that stand for real numbers; a quantized tensor holds such numbers as steps."""


def _is_floating(dtype: str) -> bool:
    return dtype.startswith(FLOATING)


def is_integer(dtype: str) -> bool:
    """Return whether values of ``dtype`` are whole numbers, which can name a place or a code."""
    return dtype.startswith(("int", "uint"))


def weighted_ops(ops: Sequence[FlowOp]) -> list[bool]:
    """Return for each op whether its result depends on a weight of two or more dims, read directly or through views.

    In a net without any such op, every op but views counts, else nothing in it would be signal.
    """
    is_weight = [False] * len(ops)  # the op only reshapes parameters
    weighted = [False] * len(ops)
    for index, op in enumerate(ops):
        if op.is_weighted is not None:
            weighted[index] = op.is_weighted
            continue
        from_weights = any(is_weight[parent] for parent, _ in op.parents)
        is_heavy_op = op.role == "opaque" or is_heavy(op.target)
        is_weight[index] = (
            op.role == "op"
            and not is_heavy_op
            and (op.reads_weight or from_weights)
            and all(is_weight[parent] for parent, _ in op.parents)
        )
        weighted[index] = is_heavy_op and (op.reads_weight or from_weights or op.role == "opaque")
    if any(weighted):
        return weighted
    return [op.role == "op" and not is_view(op.target) for op in ops]


def signal_values(ops: Sequence[FlowOp], weighted: Sequence[bool]) -> list[tuple[bool, ...]]:
    """Return for each op and output whether it is signal; one entry, valid for all outputs, where shapes are unknown.

    Signal is a floating value with a signal parent, a floating model input, or the result of a weighted op.
    """
    signals: list[tuple[bool, ...]] = []
    for index, op in enumerate(ops):
        has_source = (
            weighted[index]
            or op.role in ("input", "unknown", "opaque")
            or any(is_signal(signals, parent) for parent in op.parents)
        )
        if not op.outputs:
            signals.append((has_source,))
        else:
            signals.append(tuple(has_source and _is_floating(meta.dtype) for meta in op.outputs))
    return signals


def is_signal(signals: Sequence[tuple[bool, ...]], ref: ValueRef) -> bool:
    """Return whether one value is signal."""
    flags = signals[ref[0]]
    return flags[ref[1]] if ref[1] < len(flags) else flags[0]


def made_of_signal(ops: Sequence[FlowOp], signals: Sequence[tuple[bool, ...]]) -> list[bool]:
    """Return for each op whether it is, or was computed from, signal: predicted ids are, a mask is not."""
    made = [False] * len(ops)
    for index, op in enumerate(ops):
        made[index] = any(signals[index]) or any(made[parent] for parent, _ in op.parents)
    return made


def looked_up_values(
    ops: Sequence[FlowOp], weighted: Sequence[bool], signals: Sequence[tuple[bool, ...]]
) -> set[tuple[int | None, ValueRef]]:
    """Return (owner of the reader, value) pairs: the ids or pixels that alone feed a weighted op.

    Such ids are what a language model reads: they are no plumbing, although they are no signal either. Numbers may
    be computed with on the way (the step of a diffusion model becomes waves), ids only handed on. A mask that goes
    into attention beside the signal does not count.
    """
    found: set[tuple[int | None, ValueRef]] = set()
    used: dict[int, set[int | None]] = {}  # by op, the owners that look its result up
    for index in range(len(ops) - 1, -1, -1):
        op = ops[index]
        if not op.parents or any(is_signal(signals, parent) for parent in op.parents):
            continue
        readers = used.get(index, ())
        is_reading = weighted[index] or (op.owner in readers if op.owner is not None else bool(readers))
        if is_reading and (weighted[index] or is_carrier(op.target) or is_gatherer(op.target) or _is_number(op)):
            for parent in op.parents:
                if not _is_bool(ops, parent):
                    found.add((op.owner, parent))
                    used.setdefault(parent[0], set()).add(op.owner)
    return found


def is_floating_value(ops: Sequence[FlowOp], ref: ValueRef) -> bool:
    """Return whether one value is known to be of real numbers."""
    outputs = ops[ref[0]].outputs
    return ref[1] < len(outputs) and _is_floating(outputs[ref[1]].dtype)


def _is_number(op: FlowOp) -> bool:
    return bool(op.outputs) and all(_is_floating(meta.dtype) for meta in op.outputs)


def _is_bool(ops: Sequence[FlowOp], ref: ValueRef) -> bool:
    outputs = ops[ref[0]].outputs
    return ref[1] < len(outputs) and outputs[ref[1]].dtype == "bool"
