from __future__ import annotations

from neural_flow.topology.resolve import resolve_topology


def test_only_stages_that_add_their_input_to_their_result_count(TraceDraft, choose):
    t = TraceDraft()
    x = t.input("x")

    def block(path, build):
        nonlocal x
        with t.call(path, x) as out:
            out.append(build(x))
        x = out[0]

    def work(value):
        return t.op("relu", t.op("linear", value, weight=True))

    block("plain", work)
    block("residual", lambda x: t.op("torch.Tensor.__iadd__", x, work(x)))
    block("normed", lambda x: t.op("layer_norm", t.op("add", x, work(t.op("layer_norm", x)))))
    block("gate", lambda x: t.op("mul", x, t.op("sigmoid", work(x))))
    block("inner_only", lambda x: work(t.op("add", x, work(x))))
    block("twice", lambda x: t.op("add", t.op("add", x, work(x)), work(x)))
    block("gated_residual", lambda x: t.op("add", x, t.op("mul", work(x), t.op("sigmoid", x))))
    block("two_branches", lambda x: t.op("add", work(x), work(x)))
    t.output(x)
    trace = t.trace()
    topology = resolve_topology(trace, choose(trace, lambda call: call.path != ""))
    names = {stage.stage_id: stage.name for stage in topology.stages}
    assert [names[key] for key in topology.residual_stage_ids] == ["residual", "normed", "twice", "gated_residual"]


def test_noise_and_masks_that_are_added_are_no_residual(TraceDraft, choose):
    t = TraceDraft()
    x, mask = t.input("x"), t.input("mask", dtype="int64")
    with t.call("noisy", x) as out:
        out.append(t.op("add", t.op("linear", x, weight=True), t.op("to", mask, dtype="float32")))
    t.output(out[0])
    trace = t.trace()
    assert resolve_topology(trace, choose(trace, ["noisy"])).residual_stage_ids == ()
