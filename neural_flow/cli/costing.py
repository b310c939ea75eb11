"""``neural-flow summary`` and ``neural-flow memory``: what a model costs, as tables."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from neural_flow.cli.console import PhaseProgress, prints_to_stderr, say
from neural_flow.cli.loading import improve_hint, load_job, model_options, pipeline_options
from neural_flow.cli.tables import Column, print_table, tree_names
from neural_flow.costs.memory import MemoryTable, WhatIf, memory_table
from neural_flow.costs.summary import COLUMNS, SummaryRow, SummaryTable, summary_table
from neural_flow.errors import ForwardError, SelectionError
from neural_flow.models._base import describe_error
from neural_flow.records import TensorMeta
from neural_flow.scene.words import matches, value_text

MAX_CHECKPOINTS = 5
_MODEL_ONLY = ("tokens", "class_labels", "loss", "image_norm")


def run_summary(params: Mapping[str, Any]) -> int:
    """Run ``summary`` with the command's parameters and return the exit code.

    Raises:
        NeuralFlowError: of the kind that the exit code tells.
    """
    with prints_to_stderr(), PhaseProgress(3, is_quiet=params["quiet"]) as progress:
        job = load_job(params, progress.phase, command="summary")
        options = pipeline_options(params, progress.phase) | model_options(params, job)
        depth, train = options.pop("depth"), options.pop("train")
        for name in (*_MODEL_ONLY, "select", "exclude", "types"):
            options.pop(name, None)
        progress.phase("measuring")
        try:
            with job.loaded.scope:
                table = summary_table(
                    job.loaded.model,
                    job.inputs.args,
                    job.inputs.kwargs,
                    depth=depth,
                    columns=() if params["fake"] else COLUMNS,
                    train=train,
                    **options,
                )
        except ForwardError as error:
            improve_hint(error, job)
            raise
    rows = _chosen(table.rows, params)
    if params["json"]:
        sys.stdout.write(json.dumps(_summary_json(table, rows), indent=1, ensure_ascii=False) + "\n")
    else:
        _print_summary(table, rows)
    for note in table.notes:
        say("note", note)
    return 0


def run_memory(params: Mapping[str, Any]) -> int:
    """Run ``memory`` with the command's parameters and return the exit code.

    Raises:
        NeuralFlowError: of the kind that the exit code tells.
    """
    with prints_to_stderr(), PhaseProgress(4, is_quiet=params["quiet"]) as progress:
        job = load_job(params, progress.phase, command="memory")
        options = pipeline_options(params, progress.phase) | model_options(params, job)
        train, loss = options.pop("train"), options["loss"]
        for name in _MODEL_ONLY:
            options.pop(name, None)
        progress.phase("a training step")
        try:
            with job.loaded.scope:
                table = memory_table(
                    job.loaded.model, job.inputs.args, job.inputs.kwargs, train=train, loss=loss, **options
                )
        except ForwardError as error:
            improve_hint(error, job)
            raise
        except ValueError as error:
            if isinstance(error, SelectionError):
                raise
            raise SelectionError(
                f"nothing is saved for backward\n{describe_error(error)}",
                hint="define neural_flow_loss(output, *inputs) in the model's file, or leave a parameter trainable",
            ) from error
    for note in table.notes:
        say("note", note)
    if params["json"]:
        sys.stdout.write(json.dumps(_memory_json(table), indent=1, ensure_ascii=False) + "\n")
    else:
        _print_memory(table)
    return 0


def _chosen(rows: Iterable[SummaryRow], params: Mapping[str, Any]) -> list[SummaryRow]:
    """Return the rows that ``--select``, ``--exclude`` and ``--type`` leave; the model itself always stays."""
    select, exclude = tuple(params["select"] or ()), tuple(params["exclude"] or ())
    types = tuple(params["types"] or ())
    found = [
        row
        for row in rows
        if not row.path
        or (
            (not select or matches(row.path, select))
            and (not types or row.class_name in types)
            and not (exclude and matches(row.path, exclude))
        )
    ]
    if len(found) == 1 and (select or types):
        raise SelectionError("no module fits the selection", hint="neural-flow summary without it lists them all")
    return found


def _print_summary(table: SummaryTable, rows: list[SummaryRow]) -> None:
    is_whole = len(rows) == len(table.rows)
    if is_whole:
        names = tree_names([(row.name, row.depth, row.class_name) for row in rows])
    else:
        names = tuple(f"{row.path} ({row.class_name})" if row.path else row.class_name for row in rows)
    columns = [
        Column(head="module", cells=names, is_number=False),
        Column(head="calls", cells=tuple(str(row.num_calls) if row.num_calls != 1 else "" for row in rows), rank=6),
        Column(head="in", cells=tuple(_shapes(row.inputs) for row in rows), rank=7, is_number=False),
        Column(head="out", cells=tuple(_shapes(row.outputs) for row in rows), rank=3, is_number=False),
        Column(head="parameters", cells=tuple(map(_params, rows))),
        Column(head="FLOPs", cells=tuple(flops_text(row.flops) for row in rows), rank=1),
        Column(head="output", cells=tuple(bytes_text(row.activation_nbytes or None) for row in rows), rank=5),
        Column(head="saved", cells=tuple(bytes_text(row.saved_nbytes) for row in rows), rank=4),
        Column(head="time", cells=tuple(seconds_text(row.seconds) for row in rows), rank=2),
    ]
    model = table.model
    footer = [f"{model.num_params:,} parameters, {model.num_trainable_params:,} trainable, "
              f"{bytes_text(model.param_nbytes)}"]  # fmt: skip
    if table.num_loose_params:
        footer.append(f"{table.num_loose_params:,} of them in no leaf module")
    print_table([column for column in columns if any(column.cells)], footer=footer)


def _params(row: SummaryRow) -> str:
    if not row.num_params:
        return ""
    if row.num_shared_params == row.num_params:
        return f"{row.num_params:,} shared"
    return f"{row.num_params:,}"


def _shapes(metas: tuple[TensorMeta, ...]) -> str:
    shown = [str(list(meta.shape)) for meta in metas[:2]]
    return ", ".join(shown) + (f", {len(metas) - 2} more" if len(metas) > 2 else "")


def _summary_json(table: SummaryTable, rows: list[SummaryRow]) -> dict[str, Any]:
    return {
        "schema": "neural-flow.summary/1",
        "model": dataclasses.asdict(table.model),
        "num_loose_params": table.num_loose_params,
        "rows": [_row_json(row) for row in rows],
        "notes": list(table.notes),
    }


def _row_json(row: SummaryRow) -> dict[str, Any]:
    found = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    for name in ("inputs", "outputs"):
        found[name] = [{"shape": list(meta.shape), "dtype": meta.dtype} for meta in found[name]]
    return found


def _print_memory(table: MemoryTable) -> None:
    rows = table.rows
    labels = {stage.stage_id: stage.label for stage in table.topology.stages if stage.kind == "op"}
    names = [labels.get(row.stage_id, row.name) if row.stage_id is not None else row.name for row in rows]
    columns = [
        Column(
            head="stage",
            cells=tuple(
                f"{name} ({row.class_name})" if row.class_name and row.stage_id not in labels else name
                for name, row in zip(names, rows, strict=True)
            ),
            is_number=False,
        ),
        Column(head="saved", cells=tuple(bytes_text(row.saved_nbytes or None) for row in rows)),
        Column(head="part", cells=tuple(_part(row.saved_fraction) for row in rows), rank=1),
        Column(head="shared", cells=tuple(bytes_text(row.shared_nbytes or None) for row in rows), rank=4),
        Column(head="tensors", cells=tuple(str(row.num_saved or "") for row in rows), rank=3),
        Column(head="parameters", cells=tuple(bytes_text(row.param_nbytes or None) for row in rows), rank=2),
    ]
    mode = "training" if table.is_training else "eval"
    footer = [
        f"{bytes_text(table.total_nbytes)} saved for backward in {mode} mode; loss: {table.loss}",
        f"{bytes_text(table.param_nbytes)} of parameters, {bytes_text(table.gradient_nbytes)} of gradients",
        "peak above these: " + ", ".join(_peaks(table)),
    ]
    checkpoints = [found for found in table.what_if if found.action == "checkpoint"][:MAX_CHECKPOINTS]
    others = [found for found in table.what_if if found.action != "checkpoint"]
    footer += [_what_if(found) for found in (*checkpoints, *others)]
    print_table([column for column in columns if any(column.cells)], footer=footer)


def _part(fraction: float) -> str:
    return f"{fraction * 100:.1f} %" if fraction else ""


def _peaks(table: MemoryTable) -> Iterable[str]:
    if table.predicted_peak_nbytes is not None:
        yield f"{bytes_text(table.predicted_peak_nbytes)} predicted"
    if table.measured_peak_nbytes is not None:
        yield f"{bytes_text(table.measured_peak_nbytes)} measured"
    if table.predicted_peak_nbytes is None and table.measured_peak_nbytes is None:
        yield "unknown"


def _what_if(found: WhatIf) -> str:
    peak = "" if found.peak_nbytes is None else f", peak {bytes_text(found.peak_nbytes)}"
    return f"{found.action} {found.name}: {bytes_text(found.saved_nbytes)} saved{peak}"


def _memory_json(table: MemoryTable) -> dict[str, Any]:
    plain = {
        field.name: getattr(table, field.name)
        for field in dataclasses.fields(table)
        if field.name not in ("rows", "what_if", "topology", "notes")
    }
    return {
        "schema": "neural-flow.memory/1",
        **plain,
        "notes": list(table.notes),
        "rows": [dataclasses.asdict(row) for row in table.rows],
        "what_if": [dataclasses.asdict(found) for found in table.what_if],
    }


def bytes_text(value: float | None) -> str:
    """Return bytes with a unit; empty where there are none."""
    return "" if value is None else value_text(value, "B")


def flops_text(value: float | None) -> str:
    """Return operations with a unit of thousands; empty where none were counted: torch counts few kinds of work."""
    return "" if not value else value_text(value, "FLOP").removesuffix("FLOP").strip()


def seconds_text(value: float | None) -> str:
    """Return a time with its unit; empty where it was not measured."""
    return "" if value is None else value_text(value, "s")
