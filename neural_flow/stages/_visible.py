"""What the figure counts and what it hides: candidates for the header, inputs that carry no signal."""

from __future__ import annotations

from neural_flow.stages._net import Net


def num_candidates(net: Net) -> int:
    """Return the number of leaf-like things that may be cards: what the finest module detail would draw."""
    count = 0
    pending = [0]
    while pending:
        call_id = pending.pop()
        count += len(net.own_ops[call_id])
        for child in net.visible_children(call_id):
            if net.is_leaf_like[child]:
                count += 1
            else:
                pending.append(child)
    return count


def plumbing_inputs(net: Net) -> tuple[int, ...]:
    """Return the input leaves that carry no signal and that nothing with weights looks up or takes in."""
    trace, signals = net.trace, net.signals
    readers: list[list[int]] = [[] for _ in trace.ops]
    for op in trace.ops:
        for parent, _ in op.parents:
            readers[parent].append(op.op_id)
    hidden: list[int] = []
    for index, leaf in enumerate(trace.inputs):
        pending = [op for op, _ in leaf.refs]
        if any(signals.is_signal[op] for op in pending):
            continue
        seen = set(pending)
        is_taken_in = False
        while pending and not is_taken_in:
            for reader in readers[pending.pop()]:
                # a mask ends where it meets the signal; ids, times and positions reach weights on their own
                if signals.is_weighted[reader] and not signals.parents[reader]:
                    is_taken_in = True
                    break
                if not signals.is_signal[reader] and reader not in seen:
                    seen.add(reader)
                    pending.append(reader)
        if not is_taken_in:
            hidden.append(index)
    return tuple(hidden)
