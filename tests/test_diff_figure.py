"""Two random models over one layout: nothing of either is lost, and all of it can be drawn."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from neural_flow import pipeline
from neural_flow.diagram.build import build_diagram
from neural_flow.diff import diff_topologies
from neural_flow.diff_figure import Overlay, overlay_topologies
from neural_flow.records import Edge, Fold, ModelInfo, Stage, StageGroup, TensorMeta, Topology

CLASSES = ("Conv2d", "ReLU", "Linear", "Norm")


def chain(names: list[str], skips: list[tuple[int, int]], folds: tuple[Fold, ...] = ()) -> Topology:
    """Return a chain of modules between an input and an output; a name is ``path:Class:width``."""
    meta = TensorMeta(shape=(1, 8), dtype="float32")
    stages = [Stage(stage_id=0, kind="input", name="x", label="x", outputs=(meta,))]
    for name in names:
        path, class_name, width = name.split(":")
        out = TensorMeta(shape=(1, int(width)), dtype="float32")
        module = Stage(stage_id=len(stages), kind="module", name=path, label=path, path=path, class_name=class_name)
        stages.append(replace(module, num_params=int(width), outputs=(out,)))
    stages.append(Stage(stage_id=len(stages), kind="output", name="output", label="output", inputs=(meta,)))
    pairs = [(number, number + 1) for number in range(len(stages) - 1)]
    pairs += [(a, b) for a, b in skips if a + 1 < b < len(stages)]
    edges = tuple(
        Edge(source=a, target=b, kind="primary" if b == a + 1 else "skip", tensors=stages[a].outputs)
        for a, b in dict.fromkeys(pairs)
    )
    return Topology(
        model=ModelInfo(name="m", class_name="M"),
        stages=tuple(stages),
        edges=edges,
        folds=folds,
        groups=(StageGroup(module="g", label="g", stage_ids=tuple(range(1, len(stages) - 1))),),
    )


def overlaid(before: Topology, after: Topology) -> Overlay:
    return overlay_topologies(before, after, diff_topologies(before, after))


models = st.builds(
    lambda parts, skips: chain([f"g.{i}:{c}:{w}" for i, (c, w) in enumerate(parts)], skips),
    st.lists(st.tuples(st.sampled_from(CLASSES), st.integers(1, 3)), max_size=6),
    st.lists(st.tuples(st.integers(0, 6), st.integers(2, 7)), max_size=3),
)


@settings(max_examples=60, deadline=None)
@given(models, models)
def test_nothing_of_either_model_is_lost(before: Topology, after: Topology):
    difference = diff_topologies(before, after)
    overlay = overlay_topologies(before, after, difference)
    stages, edges = overlay.topology.stages, overlay.topology.edges
    assert [stage.stage_id for stage in stages] == list(range(len(stages)))
    changes = dict(overlay.changes)
    assert [stage.name for stage in stages if changes.get(stage.stage_id) != "removed"] == [
        s.name for s in after.stages
    ]
    assert len(stages) == len(after.stages) + len(difference.removed)
    gone = {(source, target) for source, target, change in overlay.edge_changes if change == "removed"}
    kept = [edge for edge in edges if (edge.source, edge.target) not in gone]
    assert [(stages[e.source].name, stages[e.target].name) for e in kept] == [
        (after.stages[e.source].name, after.stages[e.target].name) for e in after.edges
    ]
    assert all(edge.source < edge.target for edge in edges)
    assert not difference.is_empty or not overlay.changes + overlay.edge_changes


@settings(max_examples=8, deadline=None)
@given(models, models)
def test_both_models_can_be_drawn(before: Topology, after: Topology):
    overlay = overlaid(before, after)
    drawn = pipeline.draw(
        overlay.topology,
        options=pipeline.Options(changes=overlay.changes, edge_changes=overlay.edge_changes, title="both"),
    )
    svg = drawn.to_bytes(".svg").decode()
    for change in dict(overlay.changes).values():
        assert f"{change} between the two models" in svg


def test_a_lost_skip_is_dashed_and_a_new_one_coloured():
    names = [f"g.{i}:Conv2d:8" for i in range(3)]
    with_skip, without = chain(names, [(1, 3)]), chain(names, [])
    lost = overlaid(with_skip, without)
    assert lost.edge_changes == ((1, 3, "removed"),)
    assert overlaid(without, with_skip).edge_changes == ((1, 3, "added"),)
    scene = pipeline.draw(
        lost.topology, options=pipeline.Options(edge_changes=lost.edge_changes, legend=False)
    ).picture.scenes[0]
    dashed = [mark for mark in scene.marks if getattr(mark, "dash", ())]
    assert len(dashed) == 1


def test_a_repeat_that_differs_from_the_others_is_unfolded():
    names = [f"g.{i}:Conv2d:8" for i in range(4)]
    fold = Fold(fold_id=0, kind="serial", count=4, members=((1,), (2,), (3,), (4,)))
    same = chain(names, [], (fold,))
    assert len(overlaid(chain(names, []), same).topology.folds) == 1
    other = chain([*names[:2], "g.2:Conv2d:9", names[3]], [])
    assert overlaid(other, same).topology.folds == ()
    wider = chain([name.replace(":8", ":9") for name in names], [])
    assert len(overlaid(wider, same).topology.folds) == 1, "all changed alike"


def test_very_large_models_are_matched_by_name():
    random.seed(0)
    names = [f"g.{i}:Conv2d:{random.randint(1, 9)}" for i in range(2500)]
    before, after = chain(names, []), chain(["h:ReLU:1", *reversed(names)], [])
    found = diff_topologies(before, after)
    assert all(first < second for (_, first), (_, second) in zip(found.matches, found.matches[1:], strict=False))


def test_what_the_newer_model_carries_on_is_its_trunk():
    before = chain(["a:Linear:4", "m:Conv2d:5", "b:Norm:6", "c:Linear:4"], [])
    after = chain(["a:Linear:4", "c:Linear:4"], [])
    overlay = overlaid(before, after)
    diagram = build_diagram(overlay.topology)
    names = {
        node.node_id: overlay.topology.stages[node.stage_id].name for node in diagram.nodes if node.stage_id is not None
    }
    kinds = {(names[arrow.source], names[arrow.target]): arrow.kind for arrow in diagram.arrows}
    assert kinds["a", "c"] == "primary"
    assert kinds["b", "c"] != "primary"
    assert {"m", "b"} <= set(names.values())
