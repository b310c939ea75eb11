"""What must hold of every module tree, asked of random ones."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neural_flow.records import Request
from neural_flow.stages.select import select_stages

BUDGET = 24
LEAVES = ("Linear", "Linear", "Linear", "Norm", "Act")


def random_trace(builder_class, seed: int):
    """Write a trace of a random module tree: lists, residuals, branches, joins, loops and shared modules."""
    draw = random.Random(seed)
    builder = builder_class()
    classes = {f"Block{k}": random.Random(draw.random()).random() for k in range(3)}
    count = [0]

    def width() -> int:
        return draw.choice((4, 8, 8, 8))

    def run(path: str, class_name: str, x, depth: int, shape_seed: float):
        """Call a module of a class; one class always has the same form."""
        form = random.Random(shape_seed)
        with builder.call(path, class_name, x) as out:
            out.append(body(path, x, depth, form))
        return out[0]

    def body(path: str, x, depth: int, form: random.Random):
        prefix = path + "." if path else ""
        values = [x]
        for k in range(form.randint(1, 2 if depth > 1 else 7)):
            count[0] += 1
            here, last = f"{prefix}m{k}", values[-1]
            pick = form.random()
            if depth >= 3 or pick < 0.3 or count[0] > 120:
                made = builder.leaf(here, form.choice(LEAVES), last, width())
            elif pick < 0.5:
                name = form.choice(sorted(classes))
                made = last
                for n in range(form.choice((1, 2, 3, 5))):
                    made = run(f"{prefix}list{k}.{n}", name, made, depth + 1, classes[name])
            elif pick < 0.6:
                branches = [builder.leaf(f"{here}.{n}", "Linear", last) for n in range(form.randint(2, 5))]
                made = builder.op("torch.cat", *branches, shape=(1, 8))
            elif pick < 0.7:
                made = last
                for _ in range(form.randint(2, 6)):
                    made = builder.leaf(f"{prefix}cell{k}", "Linear", made)
            elif pick < 0.8:
                made = builder.linear(last, width(), name=f"w{k}")
            else:
                name = form.choice(["Sequential", *sorted(classes)])
                made = run(here, name, last, depth + 1, classes.get(name, form.random()))
            if form.random() < 0.35:
                made = builder.op("torch.add", made, form.choice(values), shape=(1, 8))
            values.append(made)
        return values[-1]

    with builder.call("", "Net") as out:
        x = builder.input("x")
        out.append(body("", x, 0, draw))
    return builder, builder.finish(out[0])


def covered_ops(trace, selection):
    """Return how many times each op lies in a stage or a mark."""
    times = [0] * len(trace.ops)

    def add(call_id: int) -> None:
        for op in range(trace.calls[call_id].first_op_id, trace.calls[call_id].end_op_id):
            times[op] += 1

    for stage in selection.stages:
        if stage.kind == "module":
            add(stage.call_id)
        if stage.kind == "op":
            times[stage.op_id] += 1
        for call_id in stage.joined:
            add(call_id)
    for mark in selection.marks:
        add(mark.call_id)
    return times


seeds = st.integers(0, 10**6)
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(seed=seeds)
@quick
def test_every_weighted_op_lies_in_one_stage(builder, seed):
    written, trace = random_trace(builder, seed)
    for detail in ("auto", "block", "layer"):
        times = covered_ops(trace, select_stages(trace, Request(detail=detail)))
        assert [times[op] for op in written.weighted] == [1] * len(written.weighted)
        assert max(times, default=0) <= 1


@given(seed=seeds, budget=st.sampled_from((24, 24, 24, 12, 7, 3, 1)))
@quick
def test_never_more_cards_than_the_budget(builder, outlines, seed, budget):
    _, trace = random_trace(builder, seed)
    assert 1 <= outlines.count_cards(select_stages(trace, Request(max_stages=budget))) <= budget


@given(seed=seeds, detail=st.sampled_from(("auto", "block", "layer", "op")))
@quick
def test_intervals_are_stretches_of_call_order(builder, outlines, seed, detail):
    """Values flow forward in call order: stretches of it cannot form a cycle."""
    _, trace = random_trace(builder, seed)
    selection = select_stages(trace, Request(detail=detail, max_stages=6))
    assert outlines.count_cards(selection) <= 6
    for fold in selection.folds:
        if fold.kind == "interval":
            (ids,) = fold.members
            assert ids == tuple(range(ids[0], ids[-1] + 1))


@given(seed=seeds, detail=st.sampled_from(("auto", "block", "layer", "op")))
@quick
def test_folds_are_disjoint_and_nest(builder, seed, detail):
    _, trace = random_trace(builder, seed)
    selection = select_stages(trace, Request(detail=detail))
    by_id = {fold.fold_id: fold for fold in selection.folds}
    for fold in selection.folds:
        inside = [stage_id for member in fold.members for stage_id in member]
        assert len(inside) == len(set(inside)), "members share a stage"
        assert all(member and list(member) == sorted(member) for member in fold.members)
        assert all(selection.stages[k].kind in ("module", "op") for k in inside)
        assert fold.count == len(fold.members)
        assert 0 <= fold.representative < fold.count
        if fold.parent_id is not None:
            holders = [m for m in by_id[fold.parent_id].members if set(inside) & set(m)]
            assert len(holders) == 1, "an inner fold lies in one member of the outer"
            assert set(inside) <= set(holders[0])
    siblings = {}
    for fold in selection.folds:
        siblings.setdefault(fold.parent_id, []).append({k for member in fold.members for k in member})
    for group in siblings.values():
        assert sum(map(len, group)) == len(set().union(*group)), "two folds of one level share a stage"


@given(seed=seeds)
@quick
def test_serial_members_read_the_one_before(builder, seed):
    """Ask the trace itself: some op of a member descends from the member before through no third stage."""
    _, trace = random_trace(builder, seed)
    selection = select_stages(trace, Request())
    owner = {}
    for stage in selection.stages:
        for call_id in ([stage.call_id] if stage.kind == "module" else []) + list(stage.joined):
            owner.update(
                dict.fromkeys(range(trace.calls[call_id].first_op_id, trace.calls[call_id].end_op_id), stage.stage_id)
            )
        if stage.kind == "op":
            owner[stage.op_id] = stage.stage_id
    sources = {}
    for op in trace.ops:
        found = set()
        for parent, _ in op.parents:
            found |= {owner[parent]} if parent in owner else sources.get(parent, set())
        sources[op.op_id] = found
    reads = {}
    for op_id, stage_id in owner.items():
        reads.setdefault(stage_id, set()).update(sources[op_id] - {stage_id})
    for fold in selection.folds:
        if fold.kind == "serial" and not fold.is_dense:
            for before, after in zip(fold.members, fold.members[1:], strict=False):
                assert any(reads.get(stage_id, set()) & set(before) for stage_id in after)


@given(seed=seeds)
@quick
def test_parameters_are_counted_once(builder, seed):
    _, trace = random_trace(builder, seed)
    for detail in ("auto", "layer"):
        stages = select_stages(trace, Request(detail=detail)).stages
        assert sum(s.num_params - s.num_shared_params for s in stages) <= sum(p.numel for p in trace.params)
        assert all(0 <= s.num_shared_params <= s.num_params for s in stages)


@given(seed=seeds)
@quick
def test_drawn_labels_are_unique_in_each_box(builder, outlines, seed):
    _, trace = random_trace(builder, seed)
    selection = select_stages(trace, Request())
    boxed = {k for fold in selection.folds for member in fold.members for k in member}
    group_of = {k: group.module for group in selection.groups for k in group.stage_ids}
    named = [
        (group_of.get(s.stage_id), s.label)
        for s in selection.stages
        if s.kind in ("module", "op") and s.stage_id not in boxed
    ]
    for fold in selection.folds:
        if fold.parent_id is None:
            groups = {group_of.get(k) for member in fold.members for k in member}
            named.append((groups.pop() if len(groups) == 1 else None, fold.label))
    assert len(set(named)) == len(named)
