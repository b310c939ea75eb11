"""Differences between two hand-made topologies."""

from __future__ import annotations

import itertools
import json

from neural_flow.diff import diff_topologies, difference_lines, difference_to_json, renamed_lines
from neural_flow.records import Edge, ModelInfo, Stage, TensorMeta, Topology


def topology(rows: list[tuple[str, str, int, tuple[int, ...]]], edges: list[tuple[str, str, str]]) -> Topology:
    """Rows are (name, class, parameters, output shape); edges are (source, target, kind)."""
    stages = tuple(
        Stage(
            stage_id=index,
            kind="module",
            name=name,
            label=name,
            class_name=class_name,
            path=name,
            num_params=count,
            outputs=(TensorMeta(shape=shape, dtype="float32"),),
        )
        for index, (name, class_name, count, shape) in enumerate(rows)
    )
    ids = {stage.name: stage.stage_id for stage in stages}
    return Topology(
        model=ModelInfo(name="m", class_name="M"),
        stages=stages,
        edges=tuple(Edge(source=ids[a], target=ids[b], kind=kind) for a, b, kind in edges),  # type: ignore[arg-type]
    )


CHAIN = [("0", "Linear", 80, (1, 8)), ("1", "ReLU", 0, (1, 8)), ("2", "Linear", 36, (1, 4))]


def chain(names: list[str]) -> list[tuple[str, str, str]]:
    return [(a, b, "primary") for a, b in itertools.pairwise(names)]


def test_a_graph_does_not_differ_from_itself():
    same = topology(CHAIN, chain(["0", "1", "2"]))
    found = diff_topologies(same, same)
    assert found.is_empty
    assert difference_lines(found) == []


def test_an_inserted_layer_renumbers_its_followers_and_is_the_only_addition():
    longer = [
        ("0", "Linear", 80, (1, 8)),
        ("1", "ReLU", 0, (1, 8)),
        ("2", "Linear", 72, (1, 8)),
        ("3", "Linear", 36, (1, 4)),
    ]
    found = diff_topologies(topology(CHAIN, chain(["0", "1", "2"])), topology(longer, chain(["0", "1", "2", "3"])))
    assert [stage.name for stage in found.added] == ["2"]
    assert found.removed == ()
    assert found.changed == ()
    assert found.wiring == (), "the new layer explains its own edges"


def test_a_widened_layer_is_changed_in_place():
    wide = [("0", "Linear", 160, (1, 16)), ("1", "ReLU", 0, (1, 16)), ("2", "Linear", 68, (1, 4))]
    found = diff_topologies(topology(CHAIN, chain(["0", "1", "2"])), topology(wide, chain(["0", "1", "2"])))
    assert difference_lines(found)[0] == "~ 0: parameters 80 → 160; outputs float32 [1, 8] → float32 [1, 16]"
    assert len(found.changed) == 3


def test_a_lost_skip_is_named():
    edges = [*chain(["0", "1", "2"]), ("0", "2", "skip")]
    found = diff_topologies(topology(CHAIN, edges), topology(CHAIN, edges[:-1]))
    assert difference_lines(found) == ["~ skip 0 → 2 is gone"]
    back = diff_topologies(topology(CHAIN, edges[:-1]), topology(CHAIN, edges))
    assert difference_lines(back) == ["~ skip 0 → 2 is new"]


def test_a_replaced_type_under_one_name_is_changed_and_json_is_strict():
    other = [CHAIN[0], ("1", "GELU", 0, (1, 8)), CHAIN[2]]
    found = diff_topologies(topology(CHAIN, chain(["0", "1", "2"])), topology(other, chain(["0", "1", "2"])))
    data = json.loads(json.dumps(difference_to_json(found), allow_nan=False))
    assert data["changed"] == [
        {"name": "1", "new_name": "1", "fields": [{"field": "type", "before": "ReLU", "after": "GELU"}]}
    ]


def test_inputs_are_matched_by_their_place_and_renames_are_told_apart():
    def with_input(name: str, shape: tuple[int, ...]) -> Topology:
        meta = TensorMeta(shape=shape, dtype="float32")
        stage = Stage(stage_id=0, kind="input", name=name, label=name, outputs=(meta,))
        return Topology(model=ModelInfo(name="m", class_name="M"), stages=(stage,), edges=())

    renamed = diff_topologies(with_input("input", (1, 4)), with_input("x", (1, 4)))
    assert renamed.is_empty
    assert renamed_lines(renamed) == ["~ input is now x"]
    larger = diff_topologies(with_input("input", (1, 4)), with_input("x", (2, 4)))
    assert difference_lines(larger) == ["~ input (now x): outputs float32 [1, 4] → float32 [2, 4]"]
