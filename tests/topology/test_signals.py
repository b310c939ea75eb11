from __future__ import annotations

import pytest

from neural_flow.topology.resolve import resolve_topology


def test_a_mask_is_plumbing_and_ids_read_by_an_embedding_are_not(TraceDraft, choose, rows):
    t = TraceDraft()
    ids = t.input("ids", (1, 6), "int64")
    mask = t.input("mask", (1, 6), "int64")
    embedded = t.layer("embed", ids, target="embedding", shape=(1, 6, 8))
    bias = t.op("masked_fill", t.op("to", mask, dtype="float32"), shape=(1, 1, 6, 6))
    with t.call("attn", embedded, bias) as out:
        q = t.op("linear", embedded, weight=True)
        out.append(t.op("torch.nn.functional.scaled_dot_product_attention", q, q, q, bias))
    t.output(out[0])
    trace = t.trace()
    assert rows(resolve_topology(trace, choose(trace, ["embed", "attn"])), "plumbing", "kind") == {
        ("ids", "embed", False, "primary"),
        ("embed", "attn", False, "primary"),
        ("mask", "attn", True, "merge"),
        ("attn", "output", False, "primary"),
    }


def test_ids_stay_ids_through_casts_and_padding_but_not_through_sums(TraceDraft, choose, rows):
    t = TraceDraft()
    ids = t.input("ids", (1, 6), "int64")
    start = t.input("start", (1, 1), "int64")
    mask = t.input("mask", (1, 6), "int64")
    shifted = t.op("cat", start, t.op("getitem", ids, dtype="int64"), shape=(1, 6), dtype="int64")
    t.output(t.layer("words", shifted, target="embedding"), "a")
    t.output(t.layer("places", t.op("cumsum", mask, dtype="int64"), target="embedding"), "b")
    trace = t.trace()
    found = rows(resolve_topology(trace, choose(trace, ["words", "places"])), "plumbing")
    assert {("ids", "words", False), ("start", "words", False), ("mask", "places", True)} <= found


def test_integer_pixels_are_what_a_convolution_reads(TraceDraft, choose, rows):
    t = TraceDraft()
    image = t.input("image", (1, 3, 8, 8), "uint8")
    scaled = t.op("div", t.op("float", image))
    t.output(t.layer("conv", scaled))
    trace = t.trace()
    assert ("image", "conv", False) in rows(resolve_topology(trace, choose(trace, ["conv"])), "plumbing")


def test_masks_of_fused_attention_are_plumbing(TraceDraft, choose, rows):
    t = TraceDraft()
    x, mask = t.input("x"), t.input("mask", dtype="bool")
    with t.call("attn", x, mask) as out:
        out.append(t.op("torch.nn.functional.multi_head_attention_forward", x, x, x, mask, weight=True))
    t.output(out[0])
    trace = t.trace()
    found = rows(resolve_topology(trace, choose(trace, ["attn"])), "plumbing")
    assert {("x", "attn", False), ("mask", "attn", True)} <= found


def test_predicted_ids_are_an_output_and_feed_the_next_step(TraceDraft, choose, rows):
    t = TraceDraft()
    x = t.input("x")
    token = t.op("argmax", t.layer("cell", x), dtype="int64")
    t.output(t.layer("embed", token, target="embedding"), "next")
    t.output(token, "token")
    trace = t.trace()
    found = rows(resolve_topology(trace, choose(trace, ["cell", "embed"])), "plumbing")
    assert {("cell", "embed", False), ("cell", "token", False)} <= found


@pytest.mark.parametrize("target", ["fft", "tanh"])
def test_a_net_without_weights_still_has_signal(TraceDraft, choose, rows, target):
    t = TraceDraft()
    ids = t.input("ids", dtype="int64")
    with t.call("a", ids) as out:
        out.append(t.op(target, ids))
    with t.call("b", out[0]) as last:
        last.append(t.op(target, out[0]))
    t.output(last[0])
    trace = t.trace()
    assert ("a", "b", False) in rows(resolve_topology(trace, choose(trace, ["a", "b"])), "plumbing")


def test_weights_behind_views_count(TraceDraft, choose, rows):
    t = TraceDraft()
    positions = t.input("positions", dtype="int64")
    with t.call("table", positions) as out:
        rows_of_weight = t.op("transpose", weight=True)
        out.append(t.op("matmul", rows_of_weight, positions))
    with t.call("next", out[0]) as last:
        last.append(t.op("relu", out[0]))
    t.output(last[0])
    trace = t.trace()
    assert ("table", "next", False) in rows(resolve_topology(trace, choose(trace, ["table", "next"])), "plumbing")


@pytest.mark.parametrize("dtype", ["quint8", "qint8", "qint32"])
def test_quantized_numbers_are_signal(TraceDraft, choose, rows, dtype):
    t = TraceDraft()
    steps = t.op("torch.quantize_per_tensor", t.input("x", (1, 3, 8, 8)), shape=(1, 3, 8, 8), dtype=dtype)
    out = t.layer("conv", steps, target="conv2d", shape=(1, 4, 8, 8))
    t.output(out)
    trace = t.trace()
    assert rows(resolve_topology(trace, choose(trace, ["conv"])), "plumbing", "kind") == {
        ("x", "conv", False, "primary"),
        ("conv", "output", False, "primary"),
    }


def test_the_step_of_a_diffusion_model_is_read_by_what_makes_waves_of_it(TraceDraft, choose, rows):
    t = TraceDraft()
    x, step = t.input("x"), t.input("step", (1,), "int64")
    angle = t.op("mul", t.op("float", step, shape=(1, 1)), shape=(1, 3))
    waves = t.op("cat", t.op("sin", angle), t.op("cos", angle), shape=(1, 6))
    time = t.layer("time", waves, target="linear")
    t.output(t.layer("body", t.op("add", x, time)))
    trace = t.trace()
    assert ("step", "time", False) in rows(resolve_topology(trace, choose(trace, ["time", "body"])), "plumbing")


def test_hashed_ids_are_still_ids(TraceDraft, choose, rows):
    t = TraceDraft()
    ids = t.input("ids", (1, 6), "int64")
    bucket = t.op("remainder", t.op("mul", t.op("add", ids, dtype="int64"), dtype="int64"), dtype="int64")
    t.output(t.layer("words", bucket, target="embedding"))
    trace = t.trace()
    assert ("ids", "words", False) in rows(resolve_topology(trace, choose(trace, ["words"])), "plumbing")


def test_a_code_chosen_by_the_signal_is_looked_up(TraceDraft, choose, rows):
    t = TraceDraft()
    distance = t.layer("encoder", t.input("x"))
    code = t.op("max", distance, dtype="int64", shape=(1, 6))
    t.output(t.layer("decoder", t.op("flatten", code, dtype="int64"), target="embedding"))
    trace = t.trace()
    assert ("encoder", "decoder", False) in rows(
        resolve_topology(trace, choose(trace, ["encoder", "decoder"])), "plumbing"
    )


def test_scores_that_only_pick_are_shown_and_a_mask_beside_other_uses_is_not(TraceDraft, choose, rows):
    t = TraceDraft()
    x = t.input("x")
    boxes, scores = t.layer("boxes", x), t.layer("scores", x)
    best = t.op("cumsum", t.op("gt", scores, dtype="bool"), dtype="int64")
    picked = t.op("gather", boxes, best)
    body = t.layer("body", x)
    mask = t.op("eq", body, dtype="bool")
    t.output(t.layer("head", t.op("masked_fill", t.op("mul", body, picked), mask)))
    trace = t.trace()
    topology = resolve_topology(trace, choose(trace, ["boxes", "scores", "body", "head"]))
    assert {("boxes", "head", False), ("scores", "head", False), ("body", "head", False)} <= rows(topology, "plumbing")
    into = {flow.source: flow.plumbing for flow in topology.flows if flow.arrived and flow.arrived[0].dtype == "bool"}
    assert all(into.values())
