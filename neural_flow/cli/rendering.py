"""``neural-flow render``: load, draw, write. Imported when the command runs, because it brings torch."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neural_flow import pipeline
from neural_flow.cli.console import PhaseProgress, prints_to_stderr, say
from neural_flow.cli.dependencies import watched_reads, write_record
from neural_flow.cli.finite import not_finite_text
from neural_flow.cli.loading import improve_hint, load_job, model_options, pipeline_options
from neural_flow.cli.stored import draw_stored
from neural_flow.errors import ExportError, ForwardError, NeuralFlowError, UsageError
from neural_flow.export._base import EXPORTERS

STDOUT = "-"
NUM_PHASES = 8


@dataclass(frozen=True, slots=True)
class Output:
    """Where a figure goes: a file, or stdout where ``file`` is None; ``suffix`` picks the format."""

    file: Path | None
    suffix: str


def run_render(params: Mapping[str, Any]) -> int:
    """Run ``render`` with the command's parameters and return the exit code.

    Raises:
        NeuralFlowError: of the kind that the exit code tells; what could be written is written first.
    """
    outputs = read_outputs(params["outputs"], params["format_name"], f"{default_stem(params['target'])}.svg")
    with prints_to_stderr() as write_stdout, PhaseProgress(NUM_PHASES, is_quiet=params["quiet"]) as progress:
        failure: ForwardError | None = None
        try:
            drawing = _draw(params, progress.phase, opened=any(output.suffix == ".html" for output in outputs))
        except ForwardError as error:
            if error.drawing is None:
                raise
            failure, drawing = error, error.drawing
        progress.phase("writing")
        written, refused = write_outputs(drawing, outputs, write_stdout)
    _say_findings(drawing, params)
    for file in written:
        sys.stdout.write(f"{file}\n")
    if failure is not None:
        raise failure
    raise_last(refused)
    return 0


def _say_findings(drawing: pipeline.Drawing, params: Mapping[str, Any]) -> None:
    if params["verbose"]:
        for note in drawing.topology.record.notes:
            say("note", note)
    if found := not_finite_text(drawing.topology.record, drawing.picture.capture):
        say("warning", found)
    is_complete = drawing.topology.record.failure is None
    if is_complete and "untrained" in drawing.picture.capture.notes and not params["quiet"]:
        say("note", "all weights are as the model was made with; --weights FILE loads trained ones")


def raise_last(refused: Sequence[NeuralFlowError]) -> None:
    """Say all errors but the last, and raise that one; do nothing where there are none."""
    if refused:
        for error in refused[:-1]:
            say("error", str(error))
        raise refused[-1]


def read_outputs(files: Sequence[str] | None, format_name: str | None, default: str | None) -> list[Output]:
    """Return where to write, each format known; without ``-o`` the ``default``, if there is one.

    Raises:
        UsageError: a format is missing, unknown, or given for files that name theirs.
    """
    names = list(files or ())
    if format_name is not None and STDOUT not in names:
        raise UsageError(
            "--format does not fit\nit names the format of stdout, and a file's suffix names its own",
            hint=f"write -o - --format {format_name}, or -o figure.{format_name.lstrip('.')}",
        )
    if not names and default is not None:
        names = [default]
    outputs: list[Output] = []
    for name in names:
        if name == STDOUT and format_name is None:
            raise UsageError("-o - has no format\nstdout has no suffix", hint="add --format svg")
        if default is not None and _is_folder(name):
            name = str(Path(name, default))
        suffix = f".{str(format_name).lstrip('.')}" if name == STDOUT else Path(name).suffix
        if _is_folder(name):
            raise UsageError(
                f"-o {name} has no format\nit is a folder", hint=f"name a file in it: -o {Path(name, 'figure.svg')}"
            )
        if not suffix:
            raise UsageError(
                f"-o {name} has no format\nthe suffix of a file picks it", hint=f"for example -o {name}.svg"
            )
        EXPORTERS.get(suffix.lower())
        outputs.append(Output(None if name == STDOUT else Path(name), suffix.lower()))
    if sum(output.file is None for output in outputs) > 1:
        raise UsageError("-o - is given twice\nstdout takes one file", hint="leave one out")
    return outputs


def _is_folder(name: str) -> bool:
    return name != STDOUT and (name.endswith(("/", os.sep)) or Path(name).is_dir())


def default_stem(target: str) -> str:
    """Return the name of the figure of ``target``: its file's stem, or the last part of any other name."""
    head = target.split(".py:")[0] if ".py:" in target else target
    if head.endswith((".py", ".pt2", ".json")) or ".py:" in target:
        return Path(head).stem
    stem = head.rstrip("/").replace("/", ":").split(":")[-1].rpartition(".")[2]
    return "".join(character if character.isalnum() or character in "-_." else "-" for character in stem) or "figure"


def _draw(params: Mapping[str, Any], tell: Callable[[str], None], *, opened: bool) -> pipeline.Drawing:
    options = pipeline_options(params, tell) | {"opened": opened}
    if params["target"].endswith(".json"):
        return draw_stored(Path(params["target"]), params, options)
    record = params.get("record")
    with watched_reads() if record is not None else contextlib.nullcontext(set[Path]()) as read:
        job = load_job(params, tell)
        options |= model_options(params, job)
        try:
            with job.loaded.scope:
                drawing = pipeline.render(job.loaded.model, job.inputs.args, job.inputs.kwargs, **options)
        except ForwardError as error:
            improve_hint(error, job)
            raise
    if record is not None:
        write_record(Path(record), job, params, read)
    return drawing


def write_outputs(
    drawing: pipeline.Drawing, outputs: Sequence[Output], write_stdout: Callable[[bytes], None]
) -> tuple[list[Path], list[NeuralFlowError]]:
    """Write every output that can be written; return the files, and the errors of the others."""
    written: list[Path] = []
    refused: list[NeuralFlowError] = []
    for output in outputs:
        try:
            if output.file is None:
                write_stdout(drawing.to_bytes(output.suffix))
            else:
                written.append(drawing.save(output.file))
        except ExportError as error:
            refused.append(error)
    return written, refused
