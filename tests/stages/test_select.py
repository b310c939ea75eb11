"""Selectors, details and what a selection says, on traces written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neural_flow.errors import SelectionError
from neural_flow.records import Failure, Leaf, ProbeEmit, Request, TensorMeta
from neural_flow.stages.select import select_stages


@pytest.fixture
def two_level(builder):
    """Return a net of an encoder of two blocks, an activation and a head; each block has two linears."""
    b = builder()
    with b.call("", "Net") as out:
        x = b.input("x")
        with b.call("encoder", "Encoder", x) as encoded:
            for k in range(2):
                with b.call(f"encoder.{k}", "Block", x) as made:
                    h = b.leaf(f"encoder.{k}.a", "Linear", x, 4 + k)
                    made.append(b.leaf(f"encoder.{k}.b", "Linear", h, 6 + k))
                x = made[0]
            encoded.append(x)
        x = b.leaf("act", "Act", x)
        out.append(b.leaf("head", "Linear", x))
    return b.finish(out[0])


def names(selection, kinds=("module", "op")):
    return [stage.name for stage in selection.stages if stage.kind in kinds]


def test_star_stays_inside_one_segment(two_level):
    assert names(select_stages(two_level, Request(select=("encoder.*",)))) == ["encoder.0", "encoder.1"]
    assert names(select_stages(two_level, Request(select=("encoder.?.a",)))) == ["encoder.0.a", "encoder.1.a"]
    assert names(select_stages(two_level, Request(select=("encoder.[!0].a",)))) == ["encoder.1.a"]


def test_double_star_crosses_dots_and_inner_calls_win(two_level):
    selection = select_stages(two_level, Request(select=("encoder.**",)))
    assert names(selection) == ["encoder.0.a", "encoder.0.b", "encoder.1.a", "encoder.1.b"]
    assert [group.module for group in selection.groups] == ["encoder.0", "encoder.1"]
    assert any("encoder.0" in note for note in selection.notes)


def test_outer_of_a_nested_choice_is_a_group(two_level):
    selection = select_stages(two_level, Request(select=("encoder", "encoder.1", "head")))
    assert names(selection) == ["encoder.1", "head"]
    assert [(group.module, [selection.stages[k].name for k in group.stage_ids]) for group in selection.groups] == [
        ("encoder", ["encoder.1"])
    ]


def test_selected_modules_need_no_weights_and_nothing_joins(two_level):
    selection = select_stages(two_level, Request(select=("act", "head")))
    assert names(selection) == ["act", "head"]
    assert all(not stage.joined for stage in selection.stages)


@pytest.mark.parametrize("pattern", ["_orig_mod.encoder.0", "module.encoder.0", "_fsdp_wrapped_module.encoder.0"])
def test_wrapper_parts_in_a_selector_are_ignored(two_level, pattern):
    assert names(select_stages(two_level, Request(select=(pattern,)))) == ["encoder.0"]


def test_wrapper_parts_in_a_path_are_ignored(builder):
    b = builder()
    with b.call("", "DataParallel") as out:
        x = b.input("x")
        with b.call("module", "Net", x) as inner:
            inner.append(b.leaf("module.head", "Linear", x))
        out.append(inner[0])
    trace = b.finish(out[0])
    assert names(select_stages(trace, Request(select=("head",)))) == ["module.head"]
    assert names(select_stages(trace, Request(select=("module.head",)))) == ["module.head"]


def test_types_and_globs_narrow_each_other(two_level):
    assert names(select_stages(two_level, Request(types=("Block",)))) == ["encoder.0", "encoder.1"]
    assert names(select_stages(two_level, Request(types=("nets.Li*",), select=("**.a",)))) == [
        "encoder.0.a",
        "encoder.1.a",
    ]
    assert names(select_stages(two_level, Request(types=("Linear",), exclude=("encoder.0.*",)))) == [
        "encoder.1.a", "encoder.1.b", "head",
    ]  # fmt: skip


def test_exclude_hides_a_module_with_all_inside(two_level):
    selection = select_stages(two_level, Request(detail="layer", exclude=("encoder.0",)))
    assert names(selection) == ["encoder.1.a", "encoder.1.b", "head"]


@pytest.mark.parametrize(
    ("request_", "said", "hinted"),
    [
        (Request(select=("encodr.0",)), "encodr.0", "encoder.0"),
        (Request(select=("**.heads",)), "**.heads", "head"),
        (Request(types=("Blok",)), "Blok", "Block"),
        (Request(exclude=("nothing",)), "nothing", "modules that ran"),
        (Request(expand=("Bloc",)), "--expand", "Block"),
        (Request(collapse=("encode",)), "--collapse", "encoder"),
        (Request(select=("head",), types=("Block",)), "leave no module call", "narrows"),
    ],
)
def test_a_selector_without_match_says_what_is_near(two_level, request_, said, hinted):
    with pytest.raises(SelectionError) as caught:
        select_stages(two_level, request_)
    assert said in str(caught.value)
    assert hinted in caught.value.hint
    assert caught.value.exit_code == 5


def test_a_module_that_did_not_run_is_named(two_level):
    unused = replace(two_level.modules[-1], path="aux_head")
    trace = replace(two_level, modules=(*two_level.modules, unused))
    with pytest.raises(SelectionError, match="did not run"):
        select_stages(trace, Request(select=("aux*",)))


def test_depth_counts_calls_and_keeps_leaves_above(two_level):
    assert names(select_stages(two_level, Request(depth=0))) == ["Net"]
    assert names(select_stages(two_level, Request(depth=1))) == ["encoder", "head"]
    assert names(select_stages(two_level, Request(depth=2))) == ["encoder.0", "encoder.1", "head"]
    assert names(select_stages(two_level, Request(depth=9))) == [
        "encoder.0.a", "encoder.0.b", "encoder.1.a", "encoder.1.b", "head",
    ]  # fmt: skip


def test_expand_and_collapse_by_path_and_class(two_level):
    assert names(select_stages(two_level, Request(collapse=("encoder",)))) == ["encoder", "head"]
    assert names(select_stages(two_level, Request(detail="layer", collapse=("Block",)))) == [
        "encoder.0", "encoder.1", "head",
    ]  # fmt: skip
    expanded = names(select_stages(two_level, Request(detail="block", expand=("encoder.1",))))
    assert expanded == ["encoder.0", "encoder.1.a", "encoder.1.b", "head"]


def test_expanding_everything_keeps_layers_whole(two_level):
    assert names(select_stages(two_level, Request(expand=("**",)))) == names(
        select_stages(two_level, Request(detail="layer"))
    )


def test_details_grow_finer(two_level):
    counts = [len(names(select_stages(two_level, Request(detail=d)))) for d in ("block", "layer", "op")]
    assert counts == [3, 5, 6]


def test_repeats_can_stay_unfolded(trace_of, outlines):
    selection = select_stages(trace_of("gpt2"), Request(has_folds=False))
    assert not selection.folds
    assert "h.7" in names(selection)
    unrolled = select_stages(trace_of("cell_loop"), Request(has_folds=False))
    assert outlines.count_cards(unrolled) == 25, "asked for without folds, a loop is shown turn by turn"


def test_expanding_one_repeat_shows_that_one(trace_of):
    selection = select_stages(trace_of("gpt2"), Request(expand=("h.3.attn",)))
    fold = next(fold for fold in selection.folds if fold.parent_id is None)
    shown = [selection.stages[k].name for k in fold.members[fold.representative]]
    assert "h.3.attn.q" in shown
    assert "h.3.mlp" in shown


def test_second_call_is_numbered_and_counts_no_parameters_twice(builder):
    b = builder()
    with b.call("", "Net") as out:
        first, second = (b.leaf("shared", "Linear", b.input(name)) for name in "ab")
        out.append(b.leaf("head", "Linear", b.op("torch.add", first, second)))
    selection = select_stages(b.finish(out[0]), Request())
    stages = [stage for stage in selection.stages if stage.kind == "module"]
    assert [stage.name for stage in stages] == ["shared", "shared#1", "head"]
    assert [stage.label for stage in stages] == ["shared", "shared (2nd call)", "head"]
    assert [stage.num_params for stage in stages] == [72, 72, 72]
    assert [stage.num_shared_params for stage in stages] == [0, 72, 0]


def test_norm_and_activation_join_the_layer_before(builder):
    b = builder()
    with b.call("", "Net") as out:
        x = b.leaf("conv", "Linear", b.input("x"), 6)
        x = b.leaf("act", "Act", b.leaf("bn", "Norm", x))
        out.append(b.leaf("head", "Linear", x, 3))
    selection = select_stages(b.finish(out[0]), Request())
    stage = next(stage for stage in selection.stages if stage.name == "conv")
    assert stage.joined_names == ("bn", "act")
    assert len(stage.joined) == 2
    assert stage.num_params == 8 * 6 + 6 + 6
    assert stage.outputs[0].shape == (1, 6)


def test_norm_with_two_readers_before_it_stays(builder):
    b = builder()
    with b.call("", "Net") as out:
        x = b.leaf("conv", "Linear", b.input("x"))
        y = b.leaf("bn", "Norm", x)
        out.append(b.leaf("head", "Linear", b.op("torch.add", x, y)))
    assert names(select_stages(b.finish(out[0]), Request())) == ["conv", "bn", "head"]


def test_a_model_without_submodules_shows_its_ops(builder):
    b = builder()
    with b.call("", "Functional") as out:
        x = b.linear(b.input("x"), 6, "w1")
        out.append(b.linear(b.op("torch.relu", x, shape=(1, 6)), 3, "w2"))
    selection = select_stages(b.finish(out[0]), Request())
    stages = [stage for stage in selection.stages if stage.kind == "op"]
    assert [stage.name for stage in stages] == ["nn.functional.linear"] * 2
    assert [stage.label for stage in stages] == ["linear w1", "linear w2"]
    assert [stage.num_params for stage in stages] == [54, 21]
    assert all(stage.call_id == 0 and stage.path == "" for stage in stages)


def test_a_model_without_weights_shows_what_it_does(builder):
    b = builder()
    with b.call("", "Spectral") as out:
        x = b.op("torch.fft.rfft", b.input("x"), dtype="complex64")
        out.append(b.op("torch.fft.irfft", b.op("torch.Tensor.view", x, dtype="complex64")))
    assert names(select_stages(b.finish(out[0]), Request())) == ["fft.rfft", "fft.irfft"]


def test_a_model_that_hands_its_input_on_is_one_card(builder):
    b = builder()
    with b.call("", "Identity") as out:
        out.append(b.input("x"))
    assert names(select_stages(b.finish(out[0]), Request())) == ["Identity"]


def test_a_model_of_one_layer_is_one_card(builder):
    b = builder()
    with b.call("", "Wrapper") as out:
        out.append(b.leaf("fc", "Linear", b.input("x")))
    assert names(select_stages(b.finish(out[0]), Request())) == ["fc"]


def test_a_model_that_is_one_layer_is_named_by_its_class(builder):
    b = builder()
    with b.call("", "LSTM") as out:
        out.append(b.linear(b.input("x")))
    stage = select_stages(b.finish(out[0]), Request()).stages[1]
    assert (stage.kind, stage.name, stage.label, stage.num_params) == ("module", "LSTM", "LSTM", 72)


def test_weights_made_from_weights_are_no_stage(builder):
    """A low-rank weight: the product of two parameters is part of the layer that applies it."""
    b = builder()
    with b.call("", "Net") as out:
        x = b.input("x")
        with b.call("fc", "Linear", x) as made:
            pair = (b._param("a", (8, 2)), b._param("b", (2, 8)))
            weight = b._op("torch.Tensor.matmul", (), pair, (8, 8))
            made.append(b._op("torch.nn.functional.linear", (x, weight), (b._param("bias", (8,)),), (1, 8)))
        out.append(b.leaf("head", "Linear", made[0]))
    for detail in ("auto", "layer"):
        assert names(select_stages(b.finish(out[0]), Request(detail=detail))) == ["fc", "head"]


def test_a_learned_query_has_a_projection(builder):
    b = builder()
    with b.call("", "Net") as out:
        x = b.input("x")
        with b.call("to_q", "Linear") as q:
            params = (b._param("weight", (8, 8)), b._param("latent", (1, 8)))
            q.append(b._op("torch.nn.functional.linear", (), params, (1, 8)))
        out.append(b.leaf("head", "Linear", b.op("torch.add", x, q[0])))
    assert names(select_stages(b.finish(out[0]), Request())) == ["to_q", "head"]


def raising(builder, where):
    """Return the trace of two blocks of which one raises: in its activation, or between its layers."""
    b = builder()
    root = b.call("", "Net")
    root.__enter__()
    x = b.input("x")
    for k in range(2):
        block = b.call(f"blocks.{k}", "Block", x)
        made = block.__enter__()
        x = b.leaf(f"blocks.{k}.a", "Linear", x, 4)
        if k == 1 and where == "act":
            b.call("blocks.1.act", "Act", x).__enter__()
            return b, Failure(module="blocks.1.act", call=0, call_id=len(b._calls) - 1, type="E", message="")
        if k == 1 and where == "block":
            return b, Failure(module="blocks.1", call=0, call_id=4, type="E", message="")
        x = b.leaf(f"blocks.{k}.b", "Linear", b.leaf(f"blocks.{k}.act", "Act", x), 8)
        made.append(x)
        block.__exit__(None, None, None)
    raise AssertionError("no such place")


@pytest.mark.parametrize("detail", ["auto", "block", "layer", "op"])
@pytest.mark.parametrize("where", ["act", "block"])
def test_where_the_model_raised_is_a_stage(builder, where, detail):
    b, failure = raising(builder, where)
    trace = b.finish(failure=failure)
    selection = select_stages(trace, Request(detail=detail))
    chain = {failure.call_id, trace.calls[failure.call_id].parent_id} - {0}
    assert any(stage.call_id in chain for stage in selection.stages if stage.kind == "module")
    assert not [stage for stage in selection.stages if stage.kind == "output"]


def test_where_the_model_raised_is_a_stage_beside_selected_ones(builder):
    b, failure = raising(builder, "act")
    trace = b.finish(failure=failure)
    assert names(select_stages(trace, Request(select=("blocks.0",)))) == ["blocks.0", "blocks.1.act"]
    assert names(select_stages(trace, Request(select=("blocks.*",)))) == ["blocks.0", "blocks.1"]


def test_without_dataflow_calls_are_a_chain(builder, two_level, outlines):
    b = builder()
    with b.call("", "Net") as out:
        x = b.leaf("stem", "Linear", b.input("x"))
        for k in range(5):
            with b.call(f"layers.{k}", "Block", x) as made:
                h = b.leaf(f"layers.{k}.norm", "Norm", x)
                made.append(b.leaf(f"layers.{k}.fc2", "Linear", b.leaf(f"layers.{k}.fc1", "Linear", h, 16), 8))
            x = made[0]
        out.append(b.leaf("head", "Linear", x, 3))
    selection = select_stages(b.finish(out[0], has_dataflow=False), Request())
    assert [(fold.kind, fold.count) for fold in selection.folds] == [("serial", 5)]
    assert names(selection)[0] == "stem"
    assert names(selection)[-1] == "head"
    assert all(stage.kind != "op" for stage in selection.stages)
    assert outlines.count_cards(selection) <= 24


@pytest.mark.parametrize("detail", ["block", "layer", "op"])
def test_without_dataflow_every_detail_works(trace_of, without_dataflow, detail):
    for name in ("unet", "gpt2", "cell_loop", "functional"):
        selection = select_stages(without_dataflow(trace_of(name)), Request(detail=detail))
        assert names(selection, ("module",))
        assert not names(selection, ("op",))


def test_without_dataflow_two_towers_are_not_a_repeat(trace_of, without_dataflow):
    selection = select_stages(without_dataflow(trace_of("siamese")), Request())
    assert not selection.folds
    assert "tower.0#1" in names(selection)


def test_probes_are_stages_where_they_were_emitted(builder):
    b = builder()
    with b.call("", "Net") as out:
        x = b.leaf("a", "Linear", b.input("x"), 4)
        out.append(b.leaf("b", "Linear", x, 8))
    trace = b.finish(out[0])
    emit = ProbeEmit(name="hidden", call_id=0, meta=TensorMeta(shape=(1, 4), dtype="float32"), refs=(x,))
    selection = select_stages(replace(trace, emits=(emit,)), Request())
    assert [(s.kind, s.name) for s in selection.stages] == [
        ("input", "x"), ("module", "a"), ("probe", "hidden"), ("module", "b"), ("output", "output"),
    ]  # fmt: skip


def test_a_probe_in_every_repeat_folds_with_it(builder):
    b = builder()
    emits = []
    with b.call("", "Net") as out:
        x = b.leaf("stem", "Linear", b.input("x"), 8)
        for k in range(3):
            with b.call(f"layers.{k}", "Block", x) as made:
                h = b.leaf(f"layers.{k}.a", "Linear", x, 8)
                meta = TensorMeta(shape=(1, 8), dtype="float32")
                emits.append(ProbeEmit(name="h", call_id=len(b._calls) - 2, meta=meta, refs=(h,)))
                made.append(b.leaf(f"layers.{k}.b", "Linear", h, 8))
            x = made[0]
        out.append(b.leaf("head", "Linear", x, 3))
    selection = select_stages(replace(b.finish(out[0]), emits=tuple(emits)), Request())
    fold = selection.folds[0]
    assert [sum(selection.stages[k].kind == "probe" for k in member) for member in fold.members] == [1, 1, 1]


def test_plumbing_is_what_no_weight_takes_in(builder):
    b = builder()
    with b.call("", "Net") as out:
        ids = b.input("ids", (1, 5), "int64")
        mask = b.input("mask", (1, 5), "bool")
        time = b.input("t", (1,), "int64")
        lengths = b.input("lengths", (1,), "int64")
        with b.call("embed", "Embedding", ids) as made:
            shape = (1, 5, 8)
            made.append(b._op("torch.nn.functional.embedding", (ids,), (b._param("weight", (9, 8)),), shape))
        angle = b.op("torch.sin", b.op("torch.Tensor.float", time, shape=(1, 8)), shape=(1, 8))
        step = b.leaf("time", "Linear", angle)
        hidden = b.op("torch.Tensor.masked_fill", b.op("torch.add", made[0], step, shape=shape), mask, shape=shape)
        b.op("torch.max", lengths, shape=(), dtype="int64")
        out.append(b.leaf("head", "Linear", hidden))
    selection = select_stages(b.finish(out[0]), Request())
    assert selection.plumbing_inputs == (1, 3)


def test_inputs_and_outputs_keep_their_names(builder):
    b = builder()
    with b.call("", "Net") as out:
        x = b.leaf("a", "Linear", b.input("pair[0]"))
        y = b.leaf("b", "Linear", b.input("pair[1]"))
        out += [x, y]
    trace = b.finish(x, y)
    selection = select_stages(
        replace(trace, outputs=(*trace.outputs, Leaf(name="loss", meta=trace.outputs[0].meta))), Request()
    )
    assert [(s.kind, s.name, s.index) for s in selection.stages if s.kind in ("input", "output")] == [
        ("input", "pair[0]", 0), ("input", "pair[1]", 1),
        ("output", "output[0]", 0), ("output", "output[1]", 1), ("output", "loss", 2),
    ]  # fmt: skip


def test_more_stages_than_asked_become_intervals_in_every_detail(trace_of, outlines):
    for request in (
        Request(detail="layer", max_stages=6),
        Request(depth=2, max_stages=6),
        Request(detail="op", max_stages=6),
    ):
        selection = select_stages(trace_of("inception"), request)
        assert outlines.count_cards(selection) <= 6
        assert any(fold.kind == "interval" for fold in selection.folds)
    selection = select_stages(trace_of("gpt2"), Request(select=("h.*",), has_folds=False, max_stages=5))
    assert outlines.count_cards(selection) <= 5


def test_refusals_are_logged(trace_of):
    log = select_stages(trace_of("diffusion_unet"), Request()).log
    assert any("a row of levels" in line for line in log)


def test_every_piece_of_what_is_taken_apart_is_an_op(builder):
    b = builder()
    with b.call("", "Net") as out:
        x = b.input("x")
        halves = b.leaf("a", "Linear", x), b.leaf("b", "Linear", x)
        first = b.op("torch.Tensor.chunk", halves[0])
        second = b._op("torch.Tensor.chunk", (halves[1],), (), (1, 8), role="alias")
        handed = b._op("alias", (first,), (), (1, 8), role="alias")
        out.append(b.op("torch.add", handed, second))
    found = [
        stage.op_id for stage in select_stages(b.finish(out[0]), Request(detail="op")).stages if stage.kind == "op"
    ]
    assert {first[0], second[0]} <= set(found)
    assert handed[0] not in found
