from __future__ import annotations

import re
from dataclasses import replace

from neural_flow.drawing import ExportOptions, Picture
from neural_flow.export._base import render_bytes
from neural_flow.export.markdown import MAX_MERMAID_CHARS, MAX_MERMAID_EDGES, mermaid
from neural_flow.records import Capture, Edge, Failure, Fold, Measurements, ModelInfo, Stage, TensorStats, Topology


def rows_of(text: str) -> list[list[str]]:
    return [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("| ")]


def test_table_has_a_row_for_each_stage(picture):
    text = render_bytes(picture, ".md").decode()
    rows = rows_of(text)
    assert len(rows) == 2 + len(picture.topology.stages)
    assert len({len(row) for row in rows}) == 1
    assert rows[3][0].strip() == r"`a\|b<c>`"
    assert rows[3][2].strip() == "1×4×8×8 float32"
    assert rows[3][3].strip() == "148"


def test_statistics_and_measurements_are_columns(picture):
    stats = TensorStats(mean=0.5, std=2.0, min=0, max=1, zero_fraction=0.25, num_nan=3)
    cost = Measurements(name="flops", unit="FLOP", by_stage={1: 12345678.0})
    full = replace(picture, capture=Capture(stats={1: stats}), measurements=(cost,))
    rows = rows_of(render_bytes(full, ".md").decode())
    assert [cell.strip() for cell in rows[0][4:]] == ["mean ± std", "zero", "flops (FLOP)"]
    assert [cell.strip() for cell in rows[3][4:]] == ["0.5 ± 2", "25 %, 3 NaN", "1.235e+07"]
    without = rows_of(render_bytes(full, ".md", ExportOptions(has_stats=False)).decode())
    assert "mean ± std" not in [cell.strip() for cell in without[0]]


def test_names_cannot_leave_their_labels():
    evil = 'x"] --> y<script>`|'
    stage = Stage(stage_id=0, kind="module", name=evil, label=evil, class_name=evil)
    lines = mermaid(Topology(model=ModelInfo(name="m", class_name="m"), stages=(stage,), edges=()))
    assert lines[1].count('"') == 2
    assert "<script>" not in "\n".join(lines)
    picture = Picture(
        topology=Topology(model=ModelInfo(name=evil, class_name="m"), stages=(stage,), edges=()), capture=Capture()
    )
    text = render_bytes(picture, ".md").decode()
    assert "<script>" not in text.replace("`" + evil.replace("`", "'").replace("|", "\\|") + "`", "")


def chain(count: int, folds: tuple[Fold, ...] = ()) -> Topology:
    stages = tuple(Stage(stage_id=index, kind="module", name=f"s{index}", label=f"s{index}") for index in range(count))
    edges = tuple(Edge(source=index, target=index + 1) for index in range(count - 1))
    return Topology(model=ModelInfo(name="m", class_name="m"), stages=stages, edges=edges, folds=folds)


def test_repeats_are_drawn_once():
    fold = Fold(fold_id=0, kind="serial", count=3, members=((1, 2), (3, 4), (5, 6)))
    lines = mermaid(chain(8, (fold,)))
    assert [line.strip().split("[")[0] for line in lines[1:5]] == ["n0", "n1", "n2", "n7"]
    assert "s1 ×3" in lines[2]
    arrows = {line.strip() for line in lines[5:]}
    assert arrows == {"n0 --> n1", "n1 --> n2", "n2 --> n1", "n2 --> n7"}


def test_a_graph_beyond_the_limits_is_left_out_and_said_so():
    topology = chain(MAX_MERMAID_EDGES + 2)
    text = render_bytes(Picture(topology=topology, capture=Capture()), ".md").decode()
    assert "too large" in text
    assert "```mermaid" not in text
    small = render_bytes(Picture(topology=chain(30), capture=Capture()), ".md").decode()
    assert len(small.split("```mermaid")[1].split("```")[0]) < MAX_MERMAID_CHARS


def test_kinds_of_edges_show():
    topology = chain(4)
    edges = (
        Edge(source=0, target=1, inferred=True),
        Edge(source=1, target=2),
        Edge(source=0, target=2, kind="skip", via=("add",)),
        Edge(source=1, target=3, kind="merge", via=("cat",)),
        Edge(source=0, target=3, plumbing=True),
    )
    text = "\n".join(mermaid(replace(topology, edges=edges)))
    assert "n0 -.-> n1" in text
    assert 'n0 -->|"skip"| n2' in text
    assert 'n1 -->|"cat"| n3' in text
    assert "n0 --> n3" not in text


def test_a_failure_is_said_first(picture):
    failure = Failure(module="a.b", call=0, call_id=1, type="RuntimeError", message="sizes | differ")
    broken = replace(picture, topology=replace(picture.topology, failure=failure))
    assert "raised in `a.b`**: RuntimeError: sizes \\| differ" in render_bytes(broken, ".md").decode()
    failure = replace(failure, module="")
    broken = replace(picture, topology=replace(picture.topology, failure=failure))
    assert "raised in its root module**: RuntimeError" in render_bytes(broken, ".md").decode()
