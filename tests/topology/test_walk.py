from __future__ import annotations

import dataclasses
import time

from neural_flow.records import EdgeMark, ProbeEmit, Selection, Stage, ValueRef
from neural_flow.topology.resolve import resolve_topology


def unet(TraceDraft):
    """Two levels: skip by cat in the root, residual add, one activation module called twice."""
    t = TraceDraft()
    x = t.input("x", (1, 1, 8, 8))
    enc = t.layer("enc", x, shape=(1, 4, 8, 8))
    with t.call("act", enc, class_name="ReLU") as out:
        out.append(t.op("relu", enc))
    down = t.op("torch.nn.functional.max_pool2d", out[0], shape=(1, 4, 4, 4))
    mid = t.layer("mid", down)
    mid = t.op("torch.Tensor.__iadd__", mid, down)
    with t.call("act", mid, class_name="ReLU") as again:
        again.append(t.op("relu", mid))
    up = t.op("interpolate", again[0], shape=(1, 4, 8, 8))
    joined = t.op("torch.cat", up, out[0], shape=(1, 8, 8, 8))
    t.output(t.layer("dec", joined, shape=(1, 1, 8, 8)))
    return t.trace()


def test_unet_with_skip_residual_and_reused_activation(TraceDraft, choose, rows):
    trace = unet(TraceDraft)
    topology = resolve_topology(trace, choose(trace, ["enc", "act", "mid", "dec"]))
    assert rows(topology, "kind", "via", "through") == {
        ("x", "enc", "primary", (), ()),
        ("enc", "act", "primary", (), ()),
        ("act", "mid", "primary", (), ("max_pool2d",)),
        ("mid", "act#1", "primary", ("add",), ()),
        ("act", "act#1", "skip", ("add",), ("max_pool2d",)),
        ("act#1", "dec", "primary", ("cat",), ("interpolate",)),
        ("act", "dec", "skip", ("cat",), ()),
        ("dec", "output", "primary", (), ()),
    }
    assert [join.target for join in topology.joins] == ["add", "cat"]
    assert all(not (edge.plumbing or edge.opaque or edge.inferred) for edge in topology.edges)


def test_tensors_are_as_the_source_made_them_and_arrive_as_the_target_reads_them(TraceDraft, choose):
    trace = unet(TraceDraft)
    topology = resolve_topology(trace, choose(trace, ["enc", "act", "mid", "dec"]))
    ids = {stage.name: stage.stage_id for stage in topology.stages}
    edge = next(e for e in topology.edges if (e.source, e.target) == (ids["act"], ids["mid"]))
    assert [meta.shape for meta in edge.tensors] == [(1, 4, 8, 8)]
    flow = next(f for f in topology.flows if f.source == ("stage", ids["act"]) and f.target == ("stage", ids["mid"]))
    assert [meta.shape for meta in flow.arrived] == [(1, 4, 4, 4)]


def test_a_cat_inside_the_target_is_where_the_edges_meet(TraceDraft, choose, rows):
    t = TraceDraft()
    x = t.input("x", (1, 2, 8, 8))
    skip = t.layer("enc", x)
    deep = t.layer("mid", t.op("max_pool2d", skip, shape=(1, 2, 4, 4)))
    with t.call("up", deep, skip, class_name="Up") as out:
        grown = t.op("conv_transpose2d", deep, shape=(1, 2, 8, 8), weight=True)
        both = t.op("cat", grown, skip, shape=(1, 4, 8, 8))
        out.append(t.op("conv2d", both, shape=(1, 2, 8, 8), weight=True))
    t.output(out[0])
    trace = t.trace()
    topology = resolve_topology(trace, choose(trace, ["enc", "mid", "up"]))
    assert {row for row in rows(topology, "kind", "via") if row[1] == "up"} == {
        ("mid", "up", "primary", ("cat",)),
        ("enc", "up", "skip", ("cat",)),
    }
    assert topology.joins == ()
    assert all(edge.joins == ((5,) if edge.via else ()) for edge in topology.edges)


def test_each_edge_names_only_the_first_meeting(TraceDraft, choose, rows):
    t = TraceDraft()
    a, b, c = (t.layer(name, t.input(f"x{name}")) for name in "abc")
    first = t.op("add", a, b)
    second = t.op("mul", first, c)
    t.output(t.layer("end", second))
    trace = t.trace()
    topology = resolve_topology(trace, choose(trace, ["a", "b", "c", "end"]))
    assert {row for row in rows(topology, "via") if row[1] == "end"} == {
        ("a", "end", ("add",)),
        ("b", "end", ("add",)),
        ("c", "end", ("mul",)),
    }
    assert [(join.target, join.sources) for join in topology.joins] == [
        ("add", (("stage", 3), ("stage", 4))),
        ("mul", (("join", 6), ("stage", 5))),
    ]


def test_a_value_that_meets_twice_names_both_meetings(TraceDraft, choose, rows):
    t = TraceDraft()
    a, b = t.layer("a", t.input("x")), t.layer("b", t.input("y"))
    left = t.op("add", a, b)
    right = t.op("cat", t.op("relu", a), b, shape=(1, 8))
    t.output(t.layer("end", left, right))
    trace = t.trace()
    topology = resolve_topology(trace, choose(trace, ["a", "b", "end"]))
    assert {row for row in rows(topology, "via") if row[1] == "end"} == {
        ("a", "end", ("add", "cat")),
        ("b", "end", ("add", "cat")),
    }


def test_multimodal_towers_merge_and_heads_branch(TraceDraft, choose, rows):
    t = TraceDraft()
    image, table = t.input("image"), t.input("table")
    deep = t.layer("conv2", t.layer("conv1", image))
    flat = t.layer("mlp", table)
    fused = t.layer("fusion", t.op("cat", deep, flat, shape=(1, 8)))
    t.output(t.layer("head_a", fused), "a")
    t.output(t.layer("head_b", fused), "b")
    trace = t.trace()
    topology = resolve_topology(trace, choose(trace, ["conv1", "conv2", "mlp", "fusion", "head_a", "head_b"]))
    assert rows(topology, "kind") == {
        ("image", "conv1", "primary"),
        ("conv1", "conv2", "primary"),
        ("table", "mlp", "primary"),
        ("conv2", "fusion", "primary"),
        ("mlp", "fusion", "merge"),
        ("fusion", "head_a", "primary"),
        ("fusion", "head_b", "primary"),
        ("head_a", "a", "primary"),
        ("head_b", "b", "primary"),
    }


def test_a_shared_module_is_one_stage_a_call(TraceDraft, choose, rows):
    t = TraceDraft()
    x, y = t.input("x"), t.input("y")
    a, b = t.layer("tower", x), t.layer("tower", y)
    t.output(t.op("sub", a, b))
    trace = t.trace()
    topology = resolve_topology(trace, choose(trace, ["tower"]))
    assert rows(topology, "via") == {
        ("x", "tower", ()),
        ("y", "tower#1", ()),
        ("tower", "output", ("sub",)),
        ("tower#1", "output", ("sub",)),
    }


def test_only_the_leaves_that_flow_are_named(TraceDraft, choose):
    t = TraceDraft()
    x = t.input("x", (2, 5, 3))
    with t.call("lstm", x, class_name="LSTM") as out:
        ref = t.op("lstm", x, shape=(2, 5, 6), weight=True, num_outputs=3)
        out += [(ref[0], k) for k in range(3)]
    t.output(t.layer("head", t.op("getitem", (ref[0], 1), shape=(2, 6)), target="linear"))
    trace = t.trace()
    selection = choose(trace, ["lstm", "head"])
    shapes = ((2, 5, 6), (1, 2, 6), (1, 2, 7))
    stages = tuple(stage if stage.name != "lstm" else _with_outputs(stage, shapes) for stage in selection.stages)
    topology = resolve_topology(trace, Selection(stages=stages))
    edge = next(edge for edge in topology.edges if stages[edge.source].name == "lstm")
    assert [meta.shape for meta in edge.tensors] == [(1, 2, 6)]


def _with_outputs(stage: Stage, shapes: tuple[tuple[int, ...], ...]) -> Stage:
    metas = tuple(dataclasses.replace(stage.outputs[0], shape=shape) for shape in shapes)
    return dataclasses.replace(stage, outputs=metas)


def test_slices_of_one_buffer_keep_their_writers_apart(TraceDraft, choose, rows):
    t = TraceDraft()
    x = t.input("x", (1, 8))
    a, b = t.layer("a", x), t.layer("b", x)
    write_a, write_b = t.op("setitem", a), t.op("setitem", b)
    t.layer("read_a", write_a)
    whole = (write_a, write_b)
    with t.call("read_all", write_a) as out:
        out.append(t.op("linear", *whole, weight=True))
    t.output(out[0])
    trace = t.trace()
    topology = resolve_topology(trace, choose(trace, ["a", "b", "read_a", "read_all"]))
    assert ("b", "read_a") not in rows(topology)
    assert {("a", "read_a"), ("a", "read_all"), ("b", "read_all")} <= rows(topology)


def test_a_result_inside_a_stage_that_others_reach_is_an_edge(TraceDraft, choose, rows):
    t = TraceDraft()
    x = t.input("x")
    with t.call("enc", x) as out:
        hidden = t.op("linear", x, weight=True, shape=(1, 6))
        out.append(t.op("linear", hidden, weight=True, shape=(1, 4)))
    with t.call("peek", out[0]) as seen:
        seen.append(t.op("linear", out[0], hidden, weight=True, shape=(1, 2)))
    t.output(seen[0])
    trace = t.trace()
    topology = resolve_topology(trace, choose(trace, ["enc", "peek"]))
    edge = next(edge for edge in topology.edges if edge.target == 2)
    assert [meta.shape for meta in edge.tensors] == [(1, 4), (1, 6)]


def test_what_a_module_is_handed_and_does_not_read_is_plumbing(TraceDraft, choose, rows):
    t = TraceDraft()
    x = t.input("x")
    a, b = t.layer("a", x), t.layer("b", x)
    number = t.layer("number", x, shape=(1, 1))
    with t.call("reader", a, b, number) as out:
        out.append(t.op("linear", a, weight=True))
    with t.call("hands_on", out[0], b) as both:
        both += [out[0], b]
    t.output(both[0])
    trace = t.trace()
    names = ["a", "b", "number", "reader", "hands_on"]
    assert rows(resolve_topology(trace, choose(trace, names)), "plumbing") == {
        ("x", "a", False), ("x", "b", False), ("x", "number", False),
        ("a", "reader", False), ("b", "reader", True), ("number", "reader", False),
        ("reader", "hands_on", False), ("b", "hands_on", False), ("reader", "output", False),
    }  # fmt: skip


def test_opaque_glue_marks_its_edges_and_an_opaque_stage_does_not(TraceDraft, choose, rows):
    t = TraceDraft()
    x = t.input("x")
    a = t.layer("a", x)
    with t.call("numpy_child", a) as out:
        out.append(t.op("NumpyChild", a, role="opaque"))
    t.output(t.layer("b", out[0]))
    trace = t.trace()
    assert ("a", "b", True) in rows(resolve_topology(trace, choose(trace, ["a", "b"])), "opaque")
    seen = rows(resolve_topology(trace, choose(trace, ["a", "numpy_child", "b"])), "opaque")
    assert {("a", "numpy_child", False), ("numpy_child", "b", False)} <= seen


def test_marks_are_transparent_and_stand_on_the_edge(TraceDraft, choose, rows):
    t = TraceDraft()
    deep = t.layer("block", t.input("x", (1, 4, 4, 4)))
    grown = t.layer("up", deep, target="conv_transpose2d", shape=(1, 4, 8, 8))
    t.output(t.layer("next", grown))
    trace = t.trace()
    mark = EdgeMark(call_id=2, path="up", text="up-conv ×2")
    topology = resolve_topology(trace, choose(trace, ["block", "next"], marks=(mark,)))
    assert ("block", "next", (mark,), ()) in rows(topology, "marks", "through")


def test_joined_calls_belong_to_the_card(TraceDraft, choose, rows):
    t = TraceDraft()
    conv = t.layer("conv", t.input("x", (1, 4, 4, 4)), shape=(1, 6, 4, 4))
    with t.call("norm", conv, class_name="BatchNorm2d") as out:
        out.append(t.op("batch_norm", t.op("float", conv), shape=(1, 6, 4, 4)))
    t.output(t.layer("end", out[0]))
    trace = t.trace()
    topology = resolve_topology(trace, choose(trace, ["conv", "end"], joined={1: (2,)}))
    assert rows(topology) == {("x", "conv"), ("conv", "end"), ("end", "output")}


def test_op_stages_and_module_stages_live_together(TraceDraft, choose, rows):
    t = TraceDraft()
    x = t.input("x")
    a = t.layer("a", x)
    product = t.op("matmul", a, a, weight=True)
    t.output(t.op("add", product, a))
    trace = t.trace()
    topology = resolve_topology(trace, choose(trace, ["a"], ops=[product[0]]))
    assert rows(topology, "via") == {
        ("x", "a", ()),
        ("a", "matmul", ()),
        ("matmul", "output", ("add",)),
        ("a", "output", ("add",)),
    }


def test_calls_joined_to_an_op_belong_to_its_card(TraceDraft, choose, rows):
    t = TraceDraft()
    x = t.input("x")
    product = t.op("matmul", x, weight=True)
    with t.call("norm", product, class_name="LayerNorm") as out:
        out.append(t.op("layer_norm", product))
    t.output(t.layer("end", out[0]))
    trace = t.trace()
    selection = choose(trace, ["end"], ops=[product[0]])
    stages = tuple(
        dataclasses.replace(stage, joined=(1,)) if stage.kind == "op" else stage for stage in selection.stages
    )
    topology = resolve_topology(trace, Selection(stages=stages))
    assert rows(topology) == {("x", "matmul"), ("matmul", "end"), ("end", "output")}


def test_an_emitted_value_leads_to_its_probe(TraceDraft, choose, rows):
    t = TraceDraft()
    x = t.input("x")
    with t.call("enc", x) as out:
        hidden = t.op("linear", x, weight=True)
        ids = t.op("argmax", hidden, dtype="int64")
        out.append(t.op("linear", hidden, weight=True))
    t.output(out[0])
    emits = tuple(
        ProbeEmit(name=name, call_id=1, meta=t.meta(value), refs=(value,))
        for name, value in [("h", hidden), ("i", ids)]
    )
    trace = t.trace(emits=emits)
    stages = list(choose(trace, ["enc"]).stages)
    probes = [
        Stage(stage_id=len(stages) + k, kind="probe", name=emit.name, label=emit.name, index=k)
        for k, emit in enumerate(emits)
    ]
    topology = resolve_topology(trace, Selection(stages=(stages[0], *probes, *stages[1:])))
    assert rows(topology, "kind", "plumbing") == {
        ("x", "enc", "primary", False),
        ("enc", "h", "primary", False),
        ("enc", "i", "primary", False),
        ("enc", "output", "primary", False),
    }


def test_a_tensor_given_twice_feeds_under_both_names(TraceDraft, choose, rows):
    t = TraceDraft()
    x = t.input("x")
    t.inputs.append(type(t.inputs[0])(name="y", meta=t.inputs[0].meta, refs=(x,)))
    t.output(t.layer("a", x))
    trace = t.trace()
    topology = resolve_topology(trace, choose(trace, ["a"]))
    assert {("x", "a"), ("y", "a")} <= rows(topology)


def residual_stream(TraceDraft, count: int, *, is_glue: bool):
    t = TraceDraft()
    x: ValueRef = t.input("x")
    for number in range(count):
        with t.call(f"blocks.{number}", x) as out:
            y = t.op("relu", t.op("linear", x, weight=True))
            out.append(y if is_glue else t.op("add", x, y))
        x = t.op("add", x, y) if is_glue else out[0]
    t.output(x)
    return t.trace()


def test_a_residual_stream_costs_one_join_a_layer(TraceDraft, choose):
    trace = residual_stream(TraceDraft, 40, is_glue=True)
    topology = resolve_topology(trace, choose(trace, lambda call: call.path != ""))
    assert len(topology.joins) == 40
    assert len(topology.flows) == 3 * 40 + 1
    assert len(topology.edges) == 41 * 42 // 2 - 1 + 1


def test_thousands_of_residual_blocks_are_walked_in_a_second(TraceDraft, choose):
    for is_glue in (False, True):
        trace = residual_stream(TraceDraft, 3000, is_glue=is_glue)
        selection = choose(trace, lambda call: call.path != "")
        start = time.process_time()
        topology = resolve_topology(trace, selection)
        assert time.process_time() - start < 2.0  # 0.2 s on a quiet core
        assert len(topology.flows) == (9001 if is_glue else 3001)
        assert bool(topology.notes) == is_glue
        assert len(topology.edges) >= 3001
