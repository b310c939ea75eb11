"""Where each output of a model comes from: the last ops that made it, and the names of the modules that ran them."""

from __future__ import annotations

from dataclasses import dataclass

from neural_flow.records import Leaf, OpNode, Trace

_VIEWS = frozenset((
    "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "permute", "transpose", "swapaxes", "movedim",
    "t", "T", "mT", "getitem", "select", "slice", "narrow", "contiguous", "clone", "detach", "to", "float", "double",
    "half", "alias", "expand", "unbind", "split", "chunk",
))  # fmt: skip
_MAX_OPS = 12


@dataclass(frozen=True, slots=True)
class Origin:
    """Names of the modules that made an output, innermost first, and its last ops, the last one first."""

    makers: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()


def output_origins(trace: Trace | None) -> tuple[Origin, ...]:
    """Return the origin of each output leaf; an op that looks at values differently is no part of it."""
    return tuple(_origin(leaf, trace) for leaf in trace.outputs) if trace is not None else ()


def _origin(leaf: Leaf, trace: Trace) -> Origin:
    ops: list[str] = []
    names: dict[str, None] = {}
    current = leaf.refs[0][0] if leaf.refs else None
    while current is not None and len(ops) < _MAX_OPS:
        op = trace.ops[current]
        word = op_word(op.target)
        if op.role == "op" and word not in _VIEWS:
            ops.append(word)
            names |= dict.fromkeys(_names(op, trace))
            # what reads parameters or several values is where the output begins
            if op.params or len(op.parents) != 1:
                break
        elif op.role not in ("op", "alias"):
            break
        current = op.parents[0][0] if op.parents else None
    names |= {trace.class_name: None}
    return Origin(tuple(names), tuple(ops))


def _names(op: OpNode, trace: Trace) -> list[str]:
    """Return the components of the path of the module that ran an op, innermost first, numbers aside."""
    if op.call_id is None:
        return []
    return [part for part in reversed(trace.calls[op.call_id].path.split(".")) if part and not part.isdigit()]


def op_word(target: str) -> str:
    """Return the bare word of a target: ``torch.nn.functional.relu_`` and ``aten.relu.default`` are both ``relu``."""
    parts = target.split(".")
    if parts[0] == "aten" and len(parts) > 1:
        parts = parts[:2]
    return parts[-1].strip("_")
