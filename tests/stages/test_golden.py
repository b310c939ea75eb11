"""The stages of known nets: golden text, card counts, and what must hold of every selection."""

from __future__ import annotations

import pytest

from neural_flow.records import Request
from neural_flow.stages.select import select_stages

BUDGET = 24


def test_chosen_stages(net_name, trace_of, outlines, check_golden, card_counts):
    selection = select_stages(trace_of(net_name), Request())
    assert outlines.count_cards(selection) == card_counts[net_name]
    check_golden(f"stages/{net_name}.txt", outlines.outline(selection))


@pytest.mark.parametrize("detail", ["auto", "block", "layer", "op"])
def test_parameters_add_up(net_name, detail, trace_of):
    trace = trace_of(net_name)
    selection = select_stages(trace, Request(detail=detail))
    distinct = sum(stage.num_params - stage.num_shared_params for stage in selection.stages)
    assert distinct + num_loose(trace, selection) == sum(param.numel for param in trace.params)


def num_loose(trace, selection):
    """Count from the definition: parameters under no stage, no joined call, no mark, and read by no op stage."""
    modules = {module.path: module for module in trace.modules}
    behind = constants(trace)
    seen = set()
    for stage in selection.stages:
        if stage.kind == "module":
            seen |= set(modules[stage.path].param_ids)
        if stage.kind == "op":
            seen |= set(trace.ops[stage.op_id].params)
            for parent, _ in trace.ops[stage.op_id].parents:
                seen |= behind.get(parent, set())
        for call_id in stage.joined:
            seen |= set(modules[trace.calls[call_id].path].param_ids)
    for mark in selection.marks:
        seen |= set(modules[mark.path].param_ids)
    return sum(param.numel for param in trace.params if param.param_id not in seen)


def constants(trace):
    """Return the parameters behind every op that reads parameters only."""
    found = {}
    for op in trace.ops:
        is_layer = any(word in op.target for word in ("linear", "embedding", "conv"))
        if op.role == "op" and not is_layer and (op.params or op.parents) and all(p in found for p, _ in op.parents):
            found[op.op_id] = set(op.params).union(*(found[p] for p, _ in op.parents))
    return found


@pytest.mark.parametrize("detail", ["auto", "block", "layer", "op"])
def test_stages_stand_in_execution_order_and_never_nest(net_name, detail, trace_of):
    trace = trace_of(net_name)
    stages = select_stages(trace, Request(detail=detail)).stages
    assert [stage.stage_id for stage in stages] == list(range(len(stages)))
    kinds = [stage.kind for stage in stages]
    num_in, num_out = kinds.count("input"), kinds.count("output")
    assert kinds[:num_in] == ["input"] * num_in
    assert kinds[len(kinds) - num_out :] == ["output"] * num_out
    middle = [stage for stage in stages if stage.kind in ("module", "op")]
    starts = [trace.calls[s.call_id].first_op_id if s.kind == "module" else s.op_id for s in middle]
    assert starts == sorted(starts)
    covered = set()
    for stage in middle:
        calls = [*([stage.call_id] if stage.kind == "module" else []), *stage.joined]
        ops = [stage.op_id] if stage.kind == "op" else []
        for call in calls:
            ops += range(trace.calls[call].first_op_id, trace.calls[call].end_op_id)
        assert covered.isdisjoint(ops)
        covered |= set(ops)


def test_no_selection_is_over_the_budget(net_name, trace_of, outlines):
    for budget in (BUDGET, 12, 5, 1):
        selection = select_stages(trace_of(net_name), Request(max_stages=budget))
        assert 1 <= outlines.count_cards(selection) <= budget


def test_selection_repeats_itself(net_name, trace_of):
    assert select_stages(trace_of(net_name), Request()) == select_stages(trace_of(net_name), Request())
