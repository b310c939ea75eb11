from __future__ import annotations

from neural_flow.topology.resolve import resolve_topology


def test_a_stage_fed_by_constants_that_joins_later_stays_a_root(TraceDraft, choose, rows):
    t = TraceDraft()
    words = t.layer("words", t.input("ids"), target="embedding")
    places = t.layer("places", t.op("arange", dtype="int64"), target="embedding")
    t.output(t.layer("end", t.op("add", words, places)))
    trace = t.trace()
    topology = resolve_topology(trace, choose(trace, ["words", "places", "end"]))
    assert not any(edge.inferred for edge in topology.edges)
    assert ("places", "end", "merge") in rows(topology, "kind")


def test_a_stage_of_unknown_source_hangs_on_the_one_before(TraceDraft, choose, rows):
    t = TraceDraft()
    a = t.layer("a", t.input("x"))
    with t.call("b") as out:
        lost = t.op("unknown", role="unknown")
        out.append(t.op("linear", lost, weight=True))
    t.output(t.op("add", a, out[0]))
    trace = t.trace()
    topology = resolve_topology(trace, choose(trace, ["a", "b"]))
    assert {row for row in rows(topology, "inferred") if row[1] == "b"} == {("a", "b", True)}
    flow = next(flow for flow in topology.flows if flow.inferred)
    assert (flow.source, flow.target) == (("stage", 1), ("stage", 2))


def test_an_unknown_source_behind_known_ones_adds_nothing(TraceDraft, choose, rows):
    t = TraceDraft()
    a = t.layer("a", t.input("x"))
    with t.call("b", a) as out:
        out.append(t.op("add", a, t.op("unknown", role="unknown")))
    t.output(out[0])
    trace = t.trace()
    assert not any(edge.inferred for edge in resolve_topology(trace, choose(trace, ["a", "b"])).edges)


def test_a_part_without_any_input_is_attached_and_separate_towers_are_not(TraceDraft, choose, rows):
    t = TraceDraft()
    t.output(t.layer("left", t.input("x")), "a")
    t.output(t.layer("right", t.input("y")), "b")
    t.output(t.layer("lonely2", t.layer("lonely", t.op("ones"))), "c")
    trace = t.trace()
    topology = resolve_topology(trace, choose(trace, ["left", "right", "lonely", "lonely2"]))
    assert {row[:2] for row in rows(topology, "inferred") if row[2]} == {("right", "lonely")}


def test_an_unused_input_stays_alone(TraceDraft, choose, rows):
    t = TraceDraft()
    t.input("unused")
    t.output(t.layer("a", t.op("ones")))
    trace = t.trace()
    assert rows(resolve_topology(trace, choose(trace, ["a"])), "inferred") == {("a", "output", False)}


def test_a_constant_output_is_said_to_come_last(TraceDraft, choose, rows):
    t = TraceDraft()
    t.output(t.layer("a", t.input("x")), "y")
    t.output(t.op("zeros"), "aux")
    trace = t.trace()
    assert ("a", "aux", True) in rows(resolve_topology(trace, choose(trace, ["a"])), "inferred")
