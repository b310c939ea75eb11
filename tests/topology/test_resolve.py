from __future__ import annotations

import dataclasses
import warnings

import pytest

from neural_flow.errors import TopologyFallbackWarning, UnknownNameError
from neural_flow.records import Failure, ModuleInfo, Request
from neural_flow.topology.resolve import modules_not_run, resolve_topology


def chain(TraceDraft):
    t = TraceDraft()
    a = t.layer("a", t.input("x"))
    t.input("y")
    t.output(t.layer("b", a))
    return t.trace()


def test_without_dataflow_fx_is_asked_and_then_execution_order(TraceDraft, choose, rows):
    trace = dataclasses.replace(chain(TraceDraft), has_dataflow=False, ops=())
    with pytest.warns(TopologyFallbackWarning) as caught:
        topology = resolve_topology(trace, choose(trace, ["a", "b"]))
    text = "model could not be symbolically traced … Using runtime execution order instead."
    assert [text in str(warning.message) for warning in caught] == [True]
    assert topology.source == "sequential"
    assert [note.split(":")[0] for note in topology.notes] == ["topology dataflow", "topology fx"]
    assert rows(topology, "inferred") == {("x", "a", True), ("a", "b", True), ("b", "output", True)}


def test_a_source_asked_by_name_falls_back_to_execution_order(TraceDraft, choose):
    trace = dataclasses.replace(chain(TraceDraft), has_dataflow=False)
    with pytest.warns(TopologyFallbackWarning):
        topology = resolve_topology(trace, choose(trace, ["a"]), Request(topology="dataflow"))
    assert topology.source == "sequential"


def test_execution_order_asked_by_name_warns_of_nothing(TraceDraft, choose):
    trace = chain(TraceDraft)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        topology = resolve_topology(trace, choose(trace, ["a"]), Request(topology="sequential"))
    assert (topology.source, topology.notes) == ("sequential", ())


def test_an_unknown_source_is_refused(TraceDraft, choose):
    trace = chain(TraceDraft)
    with pytest.raises(UnknownNameError, match="sequental"):
        resolve_topology(trace, choose(trace, ["a"]), Request(topology="sequental"))


def test_stages_and_loose_parameters_add_up_to_the_model(TraceDraft, choose):
    trace = chain(TraceDraft)
    root = ModuleInfo(path="", class_name="Net", qualified_name="Net", num_params=30, num_trainable_params=20)
    trace = dataclasses.replace(trace, modules=(root,))
    selection = choose(trace, ["a", "b"])
    sizes = {"a": (16, 0), "b": (12, 4)}
    stages = tuple(
        dataclasses.replace(
            stage, num_params=sizes.get(stage.name, (0, 0))[0], num_shared_params=sizes.get(stage.name, (0, 0))[1]
        )
        for stage in selection.stages
    )
    info = resolve_topology(trace, dataclasses.replace(selection, stages=stages)).model
    assert (info.num_params, info.num_trainable_params, info.num_loose_params) == (30, 20, 6)


def module(path: str, *params: int, qualified_name: str = "my.Module") -> ModuleInfo:
    return ModuleInfo(
        path=path, class_name="M", qualified_name=qualified_name, param_ids=params, num_params=len(params)
    )


def test_modules_that_never_ran_are_named_once_and_used_weights_do_not_count(TraceDraft):
    t = TraceDraft()
    x = t.input("x")
    with t.call("heads.busy", x) as out:
        out.append(t.op("linear", x, weight=True))
    t.output(out[0])
    modules = (
        module("", 0, 1, 2, 3),
        module("heads", 0, 1, 2, 3),
        module("heads.busy", 0),
        module("heads.busy.used_by_name", 0),
        module("heads.calm", 1, 2),
        module("heads.calm.0", 1),
        module("heads.act"),
        module("spare", 3),
    )
    trace = t.trace(modules=modules)
    assert modules_not_run(trace) == ("heads.calm", "spare")
    failed = Failure(module="heads.busy", call=0, call_id=1, type="RuntimeError", message="")
    assert modules_not_run(dataclasses.replace(trace, failure=failed)) == ()


def test_without_ops_the_parts_of_torch_modules_pass_for_used(TraceDraft):
    t = TraceDraft()
    with t.call("attn", t.input("x")):
        pass
    modules = (
        module("", 0, 1),
        module("attn", 0, qualified_name="torch.nn.modules.activation.MultiheadAttention"),
        module("attn.out_proj", 0),
        module("spare", 1),
    )
    assert modules_not_run(t.trace(modules=modules, has_dataflow=False)) == ("spare",)


def test_a_partial_trace_gives_a_partial_topology(TraceDraft, choose, rows):
    t = TraceDraft()
    t.layer("a", t.input("x"))
    failure = Failure(module="b", call=0, call_id=None, type="ValueError", message="no")
    trace = t.trace(failure=failure)
    topology = resolve_topology(trace, choose(trace, ["a"]))
    assert topology.status == "partial"
    assert rows(topology) == {("x", "a")}
