"""Traces without dataflow: module calls alone, as a chain in execution order."""

from __future__ import annotations

import dataclasses

from neural_flow.records import ModuleCall, OpNode, TensorMeta, Trace, ValueRef

UNKNOWN_OUTPUT = TensorMeta(shape=(), dtype="float32")


def chained(trace: Trace) -> Trace:
    """Return the trace with one op for each call that made no further call, each reading the one before.

    Where nothing saw the ops, execution order is all there is. The op of a module with weights of two or more
    dimensions stands for its work; others only hand the signal on.
    """
    modules = {module.path: module for module in trace.modules}
    num_children = [0] * len(trace.calls)
    for call in trace.calls:
        if call.parent_id is not None:
            num_children[call.parent_id] += 1
    ops: list[OpNode] = [
        OpNode(op_id=k, target="input", outputs=(leaf.meta,), role="input") for k, leaf in enumerate(trace.inputs)
    ]
    last: tuple[ValueRef, ...] = tuple((k, 0) for k in range(len(ops)))
    first_op: dict[int, int] = {}
    end_op: dict[int, int] = {}
    for call in trace.calls:
        first_op[call.call_id] = len(ops)
        if num_children[call.call_id]:
            continue
        module = modules.get(call.path)
        params = module.param_ids if module is not None else ()
        is_heavy = any(len(trace.params[p].shape) >= 2 for p in params)
        ops.append(
            OpNode(
                op_id=len(ops), target="linear" if is_heavy else "identity", parents=last, params=params,
                outputs=call.outputs or (UNKNOWN_OUTPUT,), call_id=call.call_id,
            )
        )  # fmt: skip
        last = ((len(ops) - 1, 0),)
    for call in reversed(trace.calls):
        end = max(end_op.get(call.call_id, 0), first_op[call.call_id] + (not num_children[call.call_id]))
        end_op[call.call_id] = end
        if call.parent_id is not None:
            end_op[call.parent_id] = max(end_op.get(call.parent_id, 0), end)
    calls = tuple(_ranged(call, first_op[call.call_id], end_op[call.call_id], ops) for call in trace.calls)
    outputs = tuple(dataclasses.replace(leaf, refs=last) for leaf in trace.outputs)
    inputs = tuple(dataclasses.replace(leaf, refs=((k, 0),)) for k, leaf in enumerate(trace.inputs))
    return dataclasses.replace(trace, calls=calls, ops=tuple(ops), outputs=outputs, inputs=inputs)


def _ranged(call: ModuleCall, first: int, end: int, ops: list[OpNode]) -> ModuleCall:
    output_refs = (((end - 1, 0),),) if end > first else ()
    input_refs = (ops[first].parents,) if end > first else ()
    return dataclasses.replace(call, first_op_id=first, end_op_id=end, input_refs=input_refs, output_refs=output_refs)
