from __future__ import annotations

from neural_flow.records import Request, Selection, Stage
from neural_flow.topology.resolve import resolve_topology


def test_stages_hang_on_each_other_and_probes_and_outputs_on_the_stage_before(TraceDraft, choose, rows):
    t = TraceDraft()
    a = t.layer("a", t.input("x", (1, 4)))
    t.input("y")
    b = t.layer("b", a)
    t.output(b, "p")
    t.output(a, "q")
    trace = t.trace()
    stages = list(choose(trace, ["a", "b"]).stages)
    probe = Stage(stage_id=len(stages), kind="probe", name="probe", label="probe")
    selection = Selection(stages=(*stages[:3], probe, *stages[3:]))
    topology = resolve_topology(trace, selection, Request(topology="sequential"))
    assert rows(topology, "inferred", "kind") == {
        ("x", "a", True, "primary"),
        ("a", "probe", True, "primary"),
        ("a", "b", True, "primary"),
        ("b", "p", True, "primary"),
        ("b", "q", True, "primary"),
    }
    edge = next(edge for edge in topology.edges if edge.source == 0)
    assert [meta.shape for meta in edge.tensors] == [(1, 4)]
