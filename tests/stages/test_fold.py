"""Which siblings fold: repeats, twins and loops, each by the wiring that people would draw."""

from __future__ import annotations

from neural_flow.records import Request
from neural_flow.stages.select import select_stages


def fold_kinds(trace, **asked):
    selection = select_stages(trace, Request(detail="block", **asked))
    return [(fold.kind, fold.count) for fold in selection.folds]


def block(b, path, x, *others, name="Block", width=8):
    """Run a block of two linears; what else it reads is added in between."""
    with b.call(path, name, x, *others) as out:
        h = b.leaf(f"{path}.a", "Linear", x, width)
        for other in others:
            h = b.op("torch.add", h, other, shape=(1, width))
        out.append(b.leaf(f"{path}.b", "Linear", h, 8))
    return out[0]


def test_encoder_memory_does_not_prevent_a_fold(builder):
    b = builder()
    with b.call("", "Net") as out:
        memory = b.leaf("encode", "Linear", b.input("src"), 8)
        x = b.input("tgt")
        for k in range(4):
            x = block(b, f"layers.{k}", x, memory)
        out.append(x)
    assert fold_kinds(b.finish(out[0])) == [("serial", 4)]


def test_a_bias_made_by_the_first_block_does_not_prevent_a_fold(builder):
    b = builder()
    with b.call("", "Net") as out:
        x = b.input("x")
        bias = None
        for k in range(4):
            with b.call(f"layers.{k}", "Block", x) as made:
                h = b.leaf(f"layers.{k}.a", "Linear", x)
                if bias is None:
                    bias = b.leaf(f"layers.{k}.bias", "Linear", x)
                made.append(b.leaf(f"layers.{k}.b", "Linear", b.op("torch.add", h, bias)))
            x = made[0]
        out.append(x)
    assert fold_kinds(b.finish(out[0])) == [("serial", 4)]


def test_blocks_that_read_different_skips_do_not_fold(builder):
    b = builder()
    with b.call("", "Net") as out:
        x = b.input("x")
        skips = []
        for k in range(3):
            x = block(b, f"down.{k}", x, width=8 + k)
            skips.append(x)
        for k in range(3):
            x = block(b, f"up.{k}", x, skips[2 - k], name="Up")
        out.append(x)
    assert fold_kinds(b.finish(out[0])) == []


def test_sums_of_skips_fold(builder):
    """Every block adds to a running sum, as in a dilated stack."""
    b = builder()
    with b.call("", "Net") as out:
        x = b.input("x")
        total = None
        for k in range(5):
            x = block(b, f"layers.{k}", x)
            total = x if total is None else b.op("torch.add", total, x)
        out.append(total)
    assert fold_kinds(b.finish(out[0])) == [("serial", 5)]


def test_an_odd_first_block_folds_and_is_not_shown(builder):
    b = builder()
    with b.call("", "Net") as out:
        x = b.input("x", (1, 4))
        for k in range(3):
            with b.call(f"layers.{k}", "Block", x) as made:
                h = b.leaf(f"layers.{k}.b", "Linear", b.leaf(f"layers.{k}.a", "Linear", x))
                side = b.leaf(f"layers.{k}.project", "Linear", x) if k == 0 else x
                made.append(b.op("torch.add", h, side))
            x = made[0]
        out.append(x)
    selection = select_stages(b.finish(out[0]), Request(detail="layer"))
    (fold,) = selection.folds
    assert [len(member) for member in fold.members] == [3, 2, 2]
    assert fold.representative == 1


def test_a_block_that_reads_all_before_it_is_dense(builder):
    b = builder()
    with b.call("", "Net") as out:
        seen = [b.input("x")]
        for k in range(5):
            joined = b.op("torch.cat", *seen) if len(seen) > 1 else seen[0]
            with b.call(f"layers.{k}", "Block", *seen) as made:
                joined = b.op("torch.cat", *seen)
                h = b.leaf(f"layers.{k}.a", "Linear", joined)
                made.append(b.leaf(f"layers.{k}.b", "Linear", h))
            seen.append(made[0])
        out.append(b.op("torch.cat", *seen))
    selection = select_stages(b.finish(out[0]), Request(detail="block"))
    assert [(fold.count, fold.is_dense) for fold in selection.folds] == [(5, True)]


def test_three_layers_fold_and_two_do_not(builder):
    for count, expected in ((2, []), (3, [("serial", 3)])):
        b = builder()
        with b.call("", "Net") as out:
            x = b.input("x")
            for k in range(count):
                x = b.leaf(f"layers.{k}", "Linear", x)
            out.append(x)
        assert fold_kinds(b.finish(out[0])) == expected


def test_layers_of_unequal_width_do_not_fold(builder):
    b = builder()
    with b.call("", "Net") as out:
        x = b.input("x")
        for k in range(6):
            x = b.leaf(f"layers.{k}", "Linear", x, 8 + k)
        out.append(x)
    assert fold_kinds(b.finish(out[0])) == []


def test_repeats_nest(builder):
    """One wide and three narrow layers, three times over, in one flat list."""
    b = builder()
    with b.call("", "Net") as out:
        x = b.input("x", (1, 8))
        for k in range(3):
            x = b.leaf(f"layers.{4 * k}", "Linear", x, 6)
            for n in range(3):
                x = b.leaf(f"layers.{4 * k + n + 1}", "Linear", x, 6 if n < 2 else 8)
        out.append(x)
    selection = select_stages(b.finish(out[0]), Request(detail="layer"))
    outer = [fold for fold in selection.folds if fold.parent_id is None]
    assert [(fold.count, len(fold.members[0])) for fold in outer] == [(3, 4)]


def test_an_inner_fold_is_listed_for_each_outer_member(builder):
    b = builder()
    with b.call("", "Net") as out:
        x = b.input("x")
        for k in range(2):
            with b.call(f"stages.{k}", "Stage", x) as made:
                h = b.leaf(f"stages.{k}.in", "Linear", x, 8)
                for n in range(4):
                    h = block(b, f"stages.{k}.blocks.{n}", h)
                made.append(h)
            x = made[0]
        out.append(x)
    selection = select_stages(b.finish(out[0]), Request(detail="block"))
    outer = [fold for fold in selection.folds if fold.parent_id is None]
    inner = [fold for fold in selection.folds if fold.parent_id is not None]
    assert [fold.count for fold in outer] == [2]
    assert [(fold.count, fold.parent_id) for fold in inner] == [(4, outer[0].fold_id)] * 2


def test_branches_on_one_value_are_twins(builder):
    for count, expected in ((2, []), (4, [("parallel", 4)])):
        b = builder()
        with b.call("", "Net") as out:
            x = b.input("x")
            branches = [block(b, f"experts.{k}", x) for k in range(count)]
            out.append(b.op("torch.add", *branches))
        assert fold_kinds(b.finish(out[0])) == expected


def test_heads_with_outputs_of_their_own_are_no_twins(builder):
    b = builder()
    with b.call("", "Net") as out:
        x = b.leaf("stem", "Linear", b.input("x"))
        out.extend(b.leaf(name, "Linear", x, 1) for name in ("steer", "throttle", "brake"))
    selection = select_stages(b.finish(*out), Request())
    assert not selection.folds
    assert [s.name for s in selection.stages if s.kind == "module"] == ["stem", "steer", "throttle", "brake"]


def cell(b, path, x, h):
    return b.leaf(path, "Linear", b.op("torch.cat", x, h), 8)


def test_a_cell_and_its_head_are_one_loop(builder):
    b = builder()
    with b.call("", "Net") as out:
        x, h, made = b.input("x"), b.input("h"), []
        for _ in range(6):
            h = cell(b, "cell", x, h)
            made.append(b.leaf("out", "Linear", h, 3))
        out.append(b.op("torch.stack", *made))
    selection = select_stages(b.finish(out[0]), Request())
    assert [(fold.kind, fold.count, fold.label) for fold in selection.folds] == [("loop", 6, "cell, out")]


def test_towers_are_no_loop(builder):
    """Three inputs through one net: a triplet, drawn three times."""
    b = builder()
    with b.call("", "Triplet") as out:
        towers = [block(b, "tower", b.input(name)) for name in ("anchor", "positive", "negative")]
        ends = [b.leaf("project", "Linear", tower, 3) for tower in towers]
        out.append(b.op("torch.stack", *ends))
    selection = select_stages(b.finish(out[0]), Request())
    assert not selection.folds
    assert sum(stage.name.startswith("project") for stage in selection.stages) == 3


def test_one_head_over_many_levels_is_a_loop(builder):
    b = builder()
    with b.call("", "Net") as out:
        x = b.input("x")
        levels = []
        for k in range(3):
            x = b.leaf(f"levels.{k}", "Linear", x, 6 + k)
            levels.append(b.op("torch.pad", x))
        out.append(b.op("torch.stack", *(b.leaf("head", "Linear", level, 2) for level in levels)))
    selection = select_stages(b.finish(out[0]), Request())
    assert [(fold.kind, fold.count) for fold in selection.folds] == [("loop", 3)]


def test_modules_named_after_what_they_do_are_no_repeats(builder):
    b = builder()
    with b.call("", "Net") as out:
        x = block(b, "predictor", block(b, "projector", b.input("x")))
        out.append(block(b, "blocks.1", block(b, "blocks.0", x)))
    trace = b.finish(out[0])
    folds = select_stages(trace, Request(detail="block")).folds
    assert [fold.label for fold in folds] == ["blocks"]


def test_a_shared_expert_is_no_twin_of_the_others(builder):
    b = builder()
    with b.call("", "Net") as out:
        x = b.leaf("embed", "Linear", b.input("x"))
        outs = [b.leaf(f"experts.{k}", "Linear", x) for k in range(4)] + [b.leaf("shared", "Linear", x)]
        out.append(b.leaf("head", "Linear", b.op("torch.stack", *outs)))
    assert fold_kinds(b.finish(out[0])) == [("parallel", 4)]


def test_look_ups_in_tables_of_one_list_are_twins(builder):
    b = builder()
    with b.call("", "Net") as out:
        ids = b.input("ids", dtype="int64")
        found = [
            b.leaf(f"tables.{k}", "Linear", b.op("torch.Tensor.__getitem__", ids, dtype="int64")) for k in range(5)
        ]
        out.append(b.leaf("head", "Linear", b.op("torch.cat", *found)))
    assert fold_kinds(b.finish(out[0])) == [("parallel", 5)]


def test_a_first_turn_that_starts_from_zeros_is_not_shown(builder):
    b = builder()
    with b.call("", "Net") as out:
        x, state = b.leaf("embed", "Linear", b.input("x")), None
        for _ in range(5):
            with b.call("cell", "Cell", x) as made:
                h = b.linear(x, name="a")
                made.append(h if state is None else b.op("torch.add", h, b.linear(state, name="b")))
            state = made[0]
        out.append(state)
    (fold,) = select_stages(b.finish(out[0]), Request(detail="block")).folds
    assert (fold.kind, fold.count, fold.representative) == ("loop", 5, 1)


def test_repeats_that_are_tapped_at_unlike_places_are_no_repeats(builder):
    """Taps after layers 3, 6 and 9 of twelve: four threes do not repeat, although each hands one value out."""
    b = builder()
    with b.call("", "Net") as out:
        x, taps = b.input("x"), []
        with b.call("encoder", "Encoder", x) as made:
            for k in range(12):
                x = block(b, f"encoder.layers.{k}", x)
                taps += [x] if k in (3, 6, 9, 11) else []
            made.extend(taps)
        for k, tap in enumerate(taps):
            out.append(b.leaf(f"heads.{k}", "Linear", tap, 1 + k))
    folds = select_stages(b.finish(*out), Request(detail="block")).folds
    assert [(fold.count, fold.parent_id) for fold in folds] == [(9, None), (2, None)]
