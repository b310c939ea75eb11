"""Topologies written as text, and diagrams read as text."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from neural_flow.drawing import Diagram
from neural_flow.records import Flow, Fold, FoldKind, Join, ModelInfo, Request, Stage, StageKind, TensorMeta, Topology

Key = tuple[Literal["stage", "join"], int]


class Net:
    """A topology from names in call order and lines.

    ``names``: a stage is its path; ``in:x`` and ``out:y`` are inputs and outputs, ``+name`` ``cat:name`` ``mul:name``
    joins. ``lines``: ``a>b`` each, with details by ``(source, target)``. ``paths``: the modules that ran joins.
    """

    def __init__(
        self,
        names: str,
        lines: str,
        details: Mapping[tuple[str, str], dict[str, Any]] | None = None,
        paths: Mapping[str, str] | None = None,
    ) -> None:
        self.keys: dict[str, Key] = {}
        self.stages: list[Stage] = []
        self.joins: list[Join] = []
        self.flows: list[Flow] = []
        ops: dict[str, str] = {}
        for place, word in enumerate(names.split()):
            kind, _, name = (
                word.rpartition(":") if ":" in word else ("+", "", word[1:]) if word[0] == "+" else ("", "", word)
            )
            if kind in ("", "in", "out"):
                kinds: dict[str, StageKind] = {"": "module", "in": "input", "out": "output"}
                self.keys[name] = ("stage", len(self.stages))
                self.stages.append(
                    Stage(
                        stage_id=len(self.stages),
                        kind=kinds[kind],
                        name=name,
                        label=name,
                        class_name="" if kind else re.findall("[a-z_]+", name)[-1],
                        path="" if kind else name.partition("#")[0],
                    )
                )
            else:
                self.keys[name] = ("join", place)
                ops[name] = "add" if kind == "+" else kind
        for line in lines.split():
            source, _, target = line.partition(">")
            known = (details or {}).get((source, target), {})
            self.flows.append(Flow(source=self.keys[source], target=self.keys[target], **known))
        for name, op in ops.items():
            key = self.keys[name]
            sources = tuple(flow.source for flow in self.flows if flow.target == key)
            self.joins.append(Join(join_id=key[1], target=op, sources=sources, path=(paths or {}).get(name, "")))

    def fold(
        self,
        *members: str,
        kind: FoldKind = "serial",
        representative: int = 0,
        count: int | None = None,
        fold_id: int = 0,
        parent_id: int | None = None,
        is_dense: bool = False,
    ) -> Fold:
        """Return a fold of members given as names of stages."""
        ids = tuple(tuple(self.keys[name][1] for name in member.split()) for member in members)
        return Fold(
            fold_id=fold_id,
            kind=kind,
            count=count or len(ids),
            members=ids,
            representative=representative,
            label=f"fold {fold_id}",
            parent_id=parent_id,
            is_dense=is_dense,
        )

    def topology(self, *folds: Fold, detail: Literal["auto", "op"] = "auto", **changes: Any) -> Topology:
        return Topology(
            model=ModelInfo(name="Net", class_name="Net"),
            stages=tuple(self.stages),
            edges=(),
            joins=tuple(self.joins),
            flows=tuple(self.flows),
            folds=folds,
            request=Request(detail=detail),
            **changes,
        )


def arrows(diagram: Diagram, *fields: str) -> set[Any]:
    """Return ``a>b`` (with some fields) for each forward arrow; rings are named by symbol and number."""
    found: set[Any] = set()
    names = node_names(diagram)
    for arrow in diagram.arrows:
        if arrow.kind != "return":
            text = f"{names[arrow.source]}>{names[arrow.target]}"
            found.add((text, *(getattr(arrow, field) for field in fields)) if fields else text)
    return found


def returns(diagram: Diagram) -> list[str]:
    names = node_names(diagram)
    return [f"{names[a.source]}>{names[a.target]}" for a in diagram.arrows if a.kind == "return"]


def node_names(diagram: Diagram) -> list[str]:
    rings = 0
    names: list[str] = []
    for node in diagram.nodes:
        if node.role == "ring":
            names.append(f"{node.symbol}{rings}")
            rings += 1
        else:
            names.append(node.label)
    return names


def check(diagram: Diagram, stages: Sequence[Stage]) -> None:
    """Assert what holds for every diagram."""
    assert [node.node_id for node in diagram.nodes] == list(range(len(diagram.nodes)))
    assert [node.order for node in diagram.nodes] == list(range(len(diagram.nodes)))
    forward = [(a.source, a.target) for a in diagram.arrows if a.kind != "return"]
    assert all(source < target for source, target in forward)
    assert len(set(forward)) == len(forward)
    assert [arrow.arrow_id for arrow in diagram.arrows] == list(range(len(diagram.arrows)))
    shown = [stage_id for node in diagram.nodes for stage_id in node.stage_ids]
    assert len(shown) == len(set(shown))
    hidden = {stage.stage_id for stage in stages} - set(shown)
    assert all(stage.kind == "input" for stage in stages if stage.stage_id in hidden)
    # what the next member of a repeat reads leads nowhere in its box
    framed = {node_id for frame in diagram.frames if frame.kind == "fold" for node_id in frame.node_ids}
    for node in diagram.nodes:
        if node.role == "ring":
            assert any(target == node.node_id for _, target in forward)
            assert any(arrow.source == node.node_id for arrow in diagram.arrows) or node.node_id in framed
            assert node.symbol
        else:
            assert node.stage_id in node.stage_ids
    for index, frame in enumerate(diagram.frames):
        assert frame.frame_id == index
        assert len(frame.node_ids) > 1
        for other in diagram.frames[:index]:
            mine, theirs = set(frame.node_ids), set(other.node_ids)
            assert mine <= theirs or theirs <= mine or mine.isdisjoint(theirs)
        if frame.parent_id is not None:
            assert set(frame.node_ids) <= set(diagram.frames[frame.parent_id].node_ids)
    primary = [arrow.target for arrow in diagram.arrows if arrow.kind in ("primary", "branch")]
    assert sorted(primary) == sorted({target for _, target in forward})


def meta(*shape: int) -> tuple[TensorMeta, ...]:
    return (TensorMeta(shape=shape, dtype="float32"),)


@pytest.fixture(name="Net")
def _net() -> type[Net]:
    return Net


@pytest.fixture(name="arrows")
def _arrows() -> Callable[..., set[Any]]:
    return arrows


@pytest.fixture(name="returns")
def _returns() -> Callable[..., list[str]]:
    return returns


@pytest.fixture(name="check")
def _check() -> Callable[..., None]:
    return check


@pytest.fixture(scope="session")
def false_arrows() -> Callable[..., list[tuple[str, str, str]]]:
    """Return the function that finds arrows of a diagram that no value of its topology backs."""
    spec = importlib.util.spec_from_file_location("diagram_backing", Path(__file__).parent / "backing.py")
    assert spec is not None
    assert spec.loader is not None
    backing = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = backing
    spec.loader.exec_module(backing)
    return lambda topology, diagram: backing.Backing(topology, diagram).false_arrows()


@pytest.fixture(name="meta")
def _meta() -> Callable[..., tuple[TensorMeta, ...]]:
    return meta
