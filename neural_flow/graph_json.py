"""The graph as JSON: a Topology to the contract and back, and the fingerprint of an architecture.

The text is stable: keys in a fixed order, nodes in execution order, one node or edge a line, no dates, hosts or
absolute paths, and never NaN. Readers ignore keys that they do not know.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from neural_flow.errors import ModelLoadError
from neural_flow.graph_checks import check_references, check_types
from neural_flow.records import (
    Capture,
    Edge,
    EdgeMark,
    Failure,
    Flow,
    Fold,
    Join,
    Measurements,
    ModelInfo,
    Request,
    Stage,
    StageGroup,
    TensorMeta,
    TensorStats,
    Topology,
)

SCHEMA = "neural-flow.graph/1"
_MEASURED = {"flops": "flops", "saved": "saved_nbytes", "gradient": "gradient_norm"}
_UNITS = {"flops": "FLOP", "saved": "B", "gradient": ""}


def topology_to_json(
    topology: Topology,
    capture: Capture | None = None,
    measurements: Iterable[Measurements] = (),
    *,
    has_stats: bool = True,
) -> dict[str, Any]:
    """Return the graph as plain data, in the order in which it is written.

    Args:
        topology: the graph.
        capture: adds statistics, summary kinds and attention to the nodes.
        measurements: FLOPs, saved bytes and gradient norms go to their nodes; time and memory never do.
        has_stats: whether statistics are written.
    """
    numbers = {_MEASURED[found.name]: found.by_stage for found in measurements if found.name in _MEASURED}
    nodes = [_node(stage, capture, numbers, has_stats) for stage in topology.stages]
    edges = [_edge(edge) for edge in topology.edges]
    failure = topology.failure
    return {
        "schema": SCHEMA,
        "fingerprint": fingerprint({"nodes": nodes, "edges": edges}),
        "request": _request(topology.request),
        "model": dataclasses.asdict(topology.model),
        "topology": {
            "requested": topology.request.topology,
            "source": topology.source,
            "num_candidates": topology.num_candidates,
            "not_run": list(topology.not_run),
            "notes": list(topology.notes),
        },
        "status": topology.status,
        "error": None if failure is None else _failure(failure),
        "nodes": nodes,
        "edges": edges,
        "folds": [_fold(fold) for fold in topology.folds],
        "groups": [_group(group) for group in topology.groups],
        "joins": [
            {
                "id": f"j{join.join_id}",
                "target": join.target,
                "module": join.path,
                "sources": [_end(end) for end in join.sources],
            }
            for join in topology.joins
        ],
        "flows": [_flow(flow) for flow in topology.flows],
        "residual": [f"n{stage}" for stage in topology.residual_stage_ids],
    }


def dump_graph(data: Mapping[str, Any]) -> str:
    """Return ``data`` as JSON text: one line for each scalar key, node, edge, fold and group."""
    lines: list[str] = []
    for key, value in data.items():
        head = f" {_compact(key)}: "
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lines.append(head + "[\n" + ",\n".join(f"  {_compact(item)}" for item in value) + "\n ]")
        else:
            lines.append(head + _compact(value))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def fingerprint(data: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the architecture: what the nodes are, their shapes, types, sizes, and the edges."""
    node_keys = ("id", "kind", "name", "module", "call", "index", "class_name", "num_params", "inputs", "outputs")
    edge_keys = ("source", "target", "kind")
    text = _compact(
        [
            [{key: node[key] for key in node_keys if key in node} for node in data["nodes"]],
            [{key: edge[key] for key in edge_keys} for edge in data["edges"]],
        ]
    )
    return hashlib.sha256(text.encode()).hexdigest()


def read_graph(file: str | Path) -> dict[str, Any]:
    """Return the data of a graph file.

    Raises:
        ModelLoadError: the file is missing or holds no JSON.
    """
    try:
        return json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelLoadError(
            f"cannot read the graph {file}\n{type(error).__name__}: {error}",
            hint=f"write it with: neural-flow render model.py -o {file}",
        ) from error


def topology_from_json(data: Mapping[str, Any]) -> Topology:
    """Return the Topology that ``data`` describes.

    Raises:
        ModelLoadError: this is no graph of ours, or a newer schema.
    """
    schema = data.get("schema") if isinstance(data, Mapping) else None
    if schema != SCHEMA:
        raise ModelLoadError(
            f"cannot read the graph: its schema is {schema!r}, expected {SCHEMA!r}",
            hint="write one with: neural-flow render model.py -o graph.json",
        )
    try:
        topology = _topology(data)
        check_types(topology, "graph")
        check_references(topology)
        return topology
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ModelLoadError(
            f"cannot read the graph\n{type(error).__name__}: {error}",
            hint="write it again with: neural-flow render model.py -o graph.json",
        ) from error


def stored_measurements(data: Mapping[str, Any]) -> tuple[Measurements, ...]:
    """Return what was measured when a graph was written, of each kind that any of its nodes has."""
    found: list[Measurements] = []
    for name, key in _MEASURED.items():
        values = {_number(node["id"]): node.get(key) for node in data["nodes"]}
        by_stage = {stage: float(value) for stage, value in values.items() if isinstance(value, int | float)}
        if by_stage:
            found.append(Measurements(name=name, unit=_UNITS[name], by_stage=by_stage))
    return tuple(found)


def _topology(data: Mapping[str, Any]) -> Topology:
    error, request = data.get("error"), {**data.get("request", {})}
    known = {field.name for field in dataclasses.fields(Request)}
    about = data.get("topology", {})
    return Topology(
        model=ModelInfo(**{key: data["model"][key] for key in data["model"] if key in _fields(ModelInfo)}),
        stages=tuple(_read_stage(node) for node in data["nodes"]),
        edges=tuple(_read_edge(edge) for edge in data["edges"]),
        joins=tuple(
            Join(
                join_id=_number(join["id"]),
                target=join["target"],
                path=join.get("module", ""),
                sources=tuple(_read_end(end) for end in join["sources"]),
            )
            for join in data.get("joins", ())
        ),
        flows=tuple(_read_flow(flow) for flow in data.get("flows", ())),
        residual_stage_ids=tuple(_number(node) for node in data.get("residual", ())),
        folds=tuple(_read_fold(index, fold) for index, fold in enumerate(data.get("folds", ()))),
        groups=tuple(
            StageGroup(
                module=group["module"],
                label=group.get("label", group["module"].rpartition(".")[2]),
                stage_ids=tuple(_number(node) for node in group["nodes"]),
            )
            for group in data.get("groups", ())
        ),
        source=about.get("source", "dataflow"),
        num_candidates=about.get("num_candidates", 0),
        not_run=tuple(about.get("not_run", ())),
        notes=tuple(about.get("notes", ())),
        request=Request(**{key: _tupled(value) for key, value in request.items() if key in known}),
        failure=None if error is None else _read_failure(error),
    )


def _fields(record: type) -> set[str]:
    return {field.name for field in dataclasses.fields(record)}


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))


def _number(node_id: str) -> int:
    return int(node_id[1:])


def _meta(meta: TensorMeta) -> dict[str, Any]:
    return {"shape": list(meta.shape), "dtype": meta.dtype}


def _read_meta(data: Mapping[str, Any]) -> TensorMeta:
    return TensorMeta(shape=tuple(data["shape"]), dtype=data["dtype"])


def _request(request: Request) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in _public(request).items()}


def _public(request: Request) -> dict[str, Any]:
    return {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}


def _node(
    stage: Stage, capture: Capture | None, numbers: Mapping[str, Mapping[int, float]], has_stats: bool
) -> dict[str, Any]:
    node: dict[str, Any] = {"id": f"n{stage.stage_id}", "kind": stage.kind, "name": stage.name, "label": stage.label}
    if stage.kind in ("input", "output"):
        node["index"] = stage.index
    else:
        node |= {"module": stage.path, "call": stage.call_index}
    node |= {
        "class_name": stage.class_name,
        "family": stage.family,
        "joined": list(stage.joined_names),
        "joined_classes": list(stage.joined_classes),
        "num_params": stage.num_params,
        "num_shared_params": stage.num_shared_params,
        "param_nbytes": stage.param_nbytes,
    }
    for key in _MEASURED.values():
        value = numbers.get(key, {}).get(stage.stage_id)
        if value is not None and key != "gradient_norm" and float(value).is_integer():
            node[key] = int(value)
        else:
            node[key] = _six_digits(value)
    summary = capture.summaries.get(stage.stage_id) if capture else None
    stats = capture.stats.get(stage.stage_id) if capture and has_stats else None
    attention = capture.attention.get(stage.stage_id, ()) if capture else ()
    return node | {
        "inputs": [_meta(meta) for meta in stage.inputs],
        "outputs": [_meta(meta) for meta in stage.outputs],
        "stats": None if stats is None else _stats(stats),
        "summary": None if summary is None else summary.kind,
        "attention": [found.caption for found in attention],
    }


def _read_stage(node: Mapping[str, Any]) -> Stage:
    return Stage(
        stage_id=_number(node["id"]),
        kind=node["kind"],
        name=node["name"],
        label=node.get("label", node["name"]),
        class_name=node.get("class_name", ""),
        path=node.get("module", ""),
        call_index=node.get("call", 0),
        index=node.get("index", 0),
        joined_names=tuple(node.get("joined", ())),
        joined_classes=tuple(node.get("joined_classes", ())),
        inputs=tuple(_read_meta(meta) for meta in node.get("inputs", ())),
        outputs=tuple(_read_meta(meta) for meta in node.get("outputs", ())),
        num_params=node.get("num_params", 0),
        family=node.get("family", ""),
        num_shared_params=node.get("num_shared_params", 0),
        param_nbytes=node.get("param_nbytes", 0),
    )


def _stats(stats: TensorStats) -> dict[str, Any]:
    return {
        field.name: _six_digits(getattr(stats, field.name))
        if field.name not in ("num_nan", "num_inf")
        else int(getattr(stats, field.name))
        for field in dataclasses.fields(stats)
    }


def _six_digits(value: float | None) -> float | int | None:
    """Round to six significant digits, so that another machine's last bits do not show."""
    if value is None or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.6g}")


def _lines(line: Edge | Flow) -> dict[str, Any]:
    return {
        "kind": line.kind,
        "inferred": line.inferred,
        "opaque": line.opaque,
        "plumbing": line.plumbing,
        "tensors": [_meta(meta) for meta in line.tensors],
        "through": list(line.through),
    }


def _edge(edge: Edge) -> dict[str, Any]:
    data = {"source": f"n{edge.source}", "target": f"n{edge.target}", **_lines(edge)}
    return data | {
        "via": list(edge.via),
        "marks": [mark.path for mark in edge.marks],
        "mark_texts": [mark.text for mark in edge.marks],
    }


def _read_marks(data: Mapping[str, Any]) -> tuple[EdgeMark, ...]:
    paths = data.get("marks", ())
    texts = data.get("mark_texts", paths)
    return tuple(EdgeMark(call_id=-1, path=path, text=text) for path, text in zip(paths, texts, strict=True))


def _read_lines(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": data["kind"],
        "inferred": data.get("inferred", False),
        "opaque": data.get("opaque", False),
        "plumbing": data.get("plumbing", False),
        "tensors": tuple(_read_meta(meta) for meta in data.get("tensors", ())),
        "through": tuple(data.get("through", ())),
        "marks": _read_marks(data),
    }


def _read_edge(data: Mapping[str, Any]) -> Edge:
    return Edge(
        source=_number(data["source"]),
        target=_number(data["target"]),
        via=tuple(data.get("via", ())),
        **_read_lines(data),
    )


def _end(end: tuple[str, int]) -> str:
    return f"{'n' if end[0] == 'stage' else 'j'}{end[1]}"


def _read_end(text: str) -> Any:
    return ("stage" if text[0] == "n" else "join", int(text[1:]))


def _flow(flow: Flow) -> dict[str, Any]:
    data = {"source": _end(flow.source), "target": _end(flow.target), **_lines(flow)}
    data["arrived"] = [_meta(meta) for meta in flow.arrived]
    return data | {"marks": [mark.path for mark in flow.marks], "mark_texts": [mark.text for mark in flow.marks]}


def _read_flow(data: Mapping[str, Any]) -> Flow:
    return Flow(
        source=_read_end(data["source"]),
        target=_read_end(data["target"]),
        arrived=tuple(_read_meta(meta) for meta in data.get("arrived", ())),
        **_read_lines(data),
    )


def _fold(fold: Fold) -> dict[str, Any]:
    return {
        "kind": fold.kind,
        "count": fold.count,
        "members": [[f"n{stage}" for stage in member] for member in fold.members],
        "representative": fold.representative,
        "label": fold.label,
        "dense": fold.is_dense,
        "parent": fold.parent_id,
    }


def _read_fold(index: int, data: Mapping[str, Any]) -> Fold:
    return Fold(
        fold_id=index,
        kind=data["kind"],
        count=data["count"],
        members=tuple(tuple(_number(node) for node in member) for member in data["members"]),
        representative=data.get("representative", 0),
        label=data.get("label", ""),
        is_dense=data.get("dense", False),
        parent_id=data.get("parent"),
    )


def _group(group: StageGroup) -> dict[str, Any]:
    return {"module": group.module, "label": group.label, "nodes": [f"n{stage}" for stage in group.stage_ids]}


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "module": failure.module,
        "call": failure.call,
        "type": failure.type,
        "message": failure.message,
        "inputs": [_meta(meta) for meta in failure.inputs],
    }


def _read_failure(data: Mapping[str, Any]) -> Failure:
    return Failure(
        module=data["module"],
        call=data["call"],
        call_id=None,
        type=data["type"],
        message=data["message"],
        inputs=tuple(_read_meta(meta) for meta in data.get("inputs", ())),
    )
