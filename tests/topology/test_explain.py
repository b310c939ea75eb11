from __future__ import annotations

import dataclasses

import pytest

from neural_flow.errors import TopologyUnavailable
from neural_flow.topology.explain import explain_edge


def net(TraceDraft):
    t = TraceDraft()
    x = t.input("x", (1, 2, 8, 8))
    enc = t.layer("enc", x)
    down = t.op("max_pool2d", enc, shape=(1, 2, 4, 4))
    mid = t.layer("mid", down)
    up = t.op("interpolate", mid, shape=(1, 2, 8, 8))
    t.output(t.layer("dec", t.op("cat", up, enc, shape=(1, 4, 8, 8))))
    return t.trace()


def words(trace, selection, source, target):
    ids = {stage.name: stage.stage_id for stage in selection.stages}
    chain = explain_edge(trace, selection, ids[source], ids[target])
    names = {stage.stage_id: stage.name for stage in selection.stages}
    return [(link.op.target, names.get(link.stage_id)) for link in chain]


def test_a_direct_edge_is_explained_by_its_glue(TraceDraft, choose):
    trace = net(TraceDraft)
    selection = choose(trace, ["enc", "mid", "dec"])
    assert words(trace, selection, "enc", "dec") == [("conv2d", "enc"), ("cat", None), ("conv2d", "dec")]
    assert words(trace, selection, "mid", "dec") == [
        ("conv2d", "mid"),
        ("interpolate", None),
        ("cat", None),
        ("conv2d", "dec"),
    ]
    assert words(trace, selection, "dec", "output") == [("conv2d", "dec")]


def test_a_way_through_other_stages_names_them_and_no_way_is_empty(TraceDraft, choose):
    trace = net(TraceDraft)
    selection = choose(trace, ["enc", "mid", "dec"])
    assert [stage for _, stage in words(trace, selection, "x", "mid")] == ["x", "enc", None, "mid"]
    assert words(trace, selection, "dec", "enc") == []


def test_without_dataflow_nothing_can_be_explained(TraceDraft, choose):
    trace = dataclasses.replace(net(TraceDraft), has_dataflow=False)
    with pytest.raises(TopologyUnavailable):
        explain_edge(trace, choose(trace, ["enc"]), 0, 1)
