"""Markdown: a table of all stages and a Mermaid graph, for pull requests and job summaries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from neural_flow.drawing import ExportOptions, Picture
from neural_flow.export._base import EXPORTERS
from neural_flow.records import Edge, Fold, Measurements, Stage, TensorMeta, TensorStats, Topology

MAX_MERMAID_CHARS = 45_000
"""GitHub refuses graphs beyond 50 000 characters."""
MAX_MERMAID_EDGES = 480
"""Mermaid refuses graphs beyond 500 edges."""
_BRACKETS = {"input": ("([", "])"), "output": ("([", "])"), "probe": ("{{", "}}"), "op": ("(", ")")}


@EXPORTERS.register(".md")
def export_markdown(picture: Picture, options: ExportOptions) -> bytes:
    """Return the stages of ``picture`` as a table, and the graph in a collapsed block."""
    topology = picture.topology
    model = topology.model
    lines = [
        f"## {_cell(model.name)}",
        "",
        f"{len(topology.stages)} stages, {len(topology.edges)} edges, {model.num_params:,} parameters "
        f"({model.num_trainable_params:,} trainable). Edges come from: {topology.source}.",
        "",
    ]
    if topology.failure is not None:
        failure = topology.failure
        place = f"`{failure.module}`" if failure.module else "its root module"
        lines += [f"**The model raised in {place}**: {_cell(f'{failure.type}: {failure.message}')}", ""]
    stats = picture.capture.stats if options.has_stats else {}
    lines += _table(topology.stages, stats, picture.measurements)
    lines += ["", *_graph(topology)]
    return ("\n".join(lines) + "\n").encode()


def _table(
    stages: Iterable[Stage], stats: Mapping[int, TensorStats], measurements: Iterable[Measurements]
) -> list[str]:
    measured = list(measurements)
    heads = ["stage", "type", "output", "parameters"]
    heads += ["mean ± std", "zero"] if stats else []
    heads += [f"{found.name} ({found.unit})" if found.unit else found.name for found in measured]
    lines = [_row(heads), _row(["---", "---", "---", *["---:"] * (len(heads) - 3)])]
    for stage in stages:
        cells = [f"`{_code(stage.name)}`", _cell(stage.class_name or stage.kind), _metas(stage.outputs)]
        cells.append(f"{stage.num_params:,}" if stage.num_params else "")
        if stats:
            cells += _stats(stats.get(stage.stage_id))
        cells += [
            f"{found.by_stage[stage.stage_id]:.4g}" if stage.stage_id in found.by_stage else "" for found in measured
        ]
        lines.append(_row(cells))
    return lines


def _stats(stats: TensorStats | None) -> list[str]:
    if stats is None:
        return ["", ""]
    spread = "" if stats.mean is None or stats.std is None else f"{stats.mean:.3g} ± {stats.std:.3g}"
    bad = [f"{count} {word}" for count, word in ((stats.num_nan, "NaN"), (stats.num_inf, "inf")) if count]
    return [spread, ", ".join([f"{stats.zero_fraction * 100:.3g} %", *bad])]


def _metas(metas: tuple[TensorMeta, ...]) -> str:
    shown = [f"{'×'.join(map(str, meta.shape)) or 'scalar'} {meta.dtype}" for meta in metas[:3]]
    return ", ".join(shown) + (f", {len(metas) - 3} more" if len(metas) > 3 else "")


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    """Return ``text`` so that neither a table nor HTML can break on it."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]|~#])", r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    return " ".join(text.replace("`", "'").split()).replace("|", "\\|")


def _graph(topology: Topology) -> list[str]:
    lines = mermaid(topology)
    num_edges = sum("-->" in line or "-.->" in line for line in lines)
    if num_edges > MAX_MERMAID_EDGES or sum(len(line) + 1 for line in lines) > MAX_MERMAID_CHARS:
        return [f"The graph of {num_edges} lines is too large to be shown here."]
    return ["<details><summary>Graph</summary>", "", "```mermaid", *lines, "```", "", "</details>"]


def mermaid(topology: Topology) -> list[str]:
    """Return the graph in Mermaid's language; repeats are drawn once, as ``×N``."""
    stands_for = _representatives(topology.folds)
    counts = {
        stage: fold.count for fold in topology.folds for stage in fold.members[fold.representative] if fold.count > 1
    }
    lines = ["flowchart LR"]
    for stage in topology.stages:
        if stands_for.get(stage.stage_id, stage.stage_id) == stage.stage_id:
            opening, closing = _BRACKETS.get(stage.kind, ("[", "]"))
            words = _word(stage.label or stage.name) + (f" ×{count}" if (count := counts.get(stage.stage_id)) else "")
            shape = f"<br/>{'×'.join(map(str, stage.outputs[0].shape))}" if stage.outputs else ""
            lines.append(f'  n{stage.stage_id}{opening}"{words}{shape}"{closing}')
    drawn: dict[tuple[int, int], str] = {}
    for edge in topology.edges:
        source, target = (stands_for.get(end, end) for end in (edge.source, edge.target))
        if source != target and not edge.plumbing:
            drawn.setdefault((source, target), f"  n{source} {_arrow(edge)} n{target}")
    return lines + list(drawn.values())


def _representatives(folds: Iterable[Fold]) -> dict[int, int]:
    """Return for each folded stage the one that is drawn for it; inner folds first."""
    found: dict[int, int] = {}
    for fold in folds:
        shown = fold.members[fold.representative]
        for member in fold.members:
            for place, stage in enumerate(member):
                if shown and member is not shown:
                    found.setdefault(stage, shown[min(place, len(shown) - 1)])
    return {stage: _last(stage, found) for stage in found}


def _last(stage: int, found: Mapping[int, int]) -> int:
    seen = {stage}
    while stage in found and found[stage] not in seen:
        stage = found[stage]
        seen.add(stage)
    return stage


def _arrow(edge: Edge) -> str:
    line = "-.->" if edge.inferred else "-->"
    words = "skip" if edge.kind == "skip" else ", ".join(edge.via[:2]) if edge.kind == "merge" else ""
    return f'{line}|"{_word(words)}"|' if words else line


def _word(text: str) -> str:
    """Return ``text`` for a quoted label: Mermaid's own escapes for what would end it."""
    escapes = {'"': "#quot;", "<": "#lt;", ">": "#gt;", "#": "#35;", "`": "'", "&": "#amp;", "\\": "#92;"}
    return "".join(escapes.get(char, char) for char in " ".join(text.split()))
