"""``neural-flow render``: load, draw, write. Imported when the command runs, because it brings torch."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neural_flow import pipeline
from neural_flow.cli.console import PhaseProgress, prints_to_stderr, say
from neural_flow.errors import ExportError, ForwardError, ModelLoadError, NeuralFlowError, UsageError
from neural_flow.export._base import EXPORTERS
from neural_flow.models.arguments import parse_arguments
from neural_flow.models.conventions import class_names, loss_function, token_words
from neural_flow.models.inputs import SampleInputs, make_inputs, retry_command
from neural_flow.models.target import LoadedModel, load_target

STDOUT = "-"
NUM_PHASES = 8
_SAME_NAMES = (
    "detail", "depth", "max_stages", "fold", "topology", "tracer", "fake", "capture", "capture_device", "attention",
    "heads", "gradients", "saved", "color_by", "sample", "train", "seed", "autocast", "strict", "layout", "direction",
    "width", "theme", "transparent", "cmap", "norm", "dpi", "title", "legend", "shapes", "font", "text_as_paths",
)  # fmt: skip
_REPEATED = ("select", "exclude", "types", "expand", "collapse", "highlight")


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
    outputs = read_outputs(params["outputs"], params["format_name"], params["target"])
    with prints_to_stderr() as write_stdout, PhaseProgress(NUM_PHASES, is_quiet=params["quiet"]) as progress:
        failure: ForwardError | None = None
        try:
            drawing = _draw(params, progress.phase)
        except ForwardError as error:
            if error.drawing is None:
                raise
            failure, drawing = error, error.drawing
        progress.phase("writing")
        written, refused = _write(drawing, outputs, write_stdout)
    if params["verbose"]:
        for note in drawing.topology.record.notes:
            say("note", note)
    for file in written:
        sys.stdout.write(f"{file}\n")
    if failure is not None:
        raise failure
    if refused:
        for error in refused[:-1]:
            say("error", str(error))
        raise refused[-1]
    return 0


def read_outputs(files: Sequence[str] | None, format_name: str | None, target: str) -> list[Output]:
    """Return where to write, each format known; without ``-o`` the target's name with ``.svg`` in the working folder.

    Raises:
        UsageError: a format is missing, unknown, or given for files that name theirs.
    """
    names = list(files or ())
    if format_name is not None and STDOUT not in names:
        raise UsageError(
            "--format does not fit\nit names the format of stdout, and a file's suffix names its own",
            hint=f"write -o - --format {format_name}, or -o figure.{format_name.lstrip('.')}",
        )
    if not names:
        names = [f"{default_stem(target)}.svg"]
    outputs: list[Output] = []
    for name in names:
        if name == STDOUT and format_name is None:
            raise UsageError("-o - has no format\nstdout has no suffix", hint="add --format svg")
        suffix = f".{str(format_name).lstrip('.')}" if name == STDOUT else Path(name).suffix
        if not suffix:
            raise UsageError(
                f"-o {name} has no format\nthe suffix of a file picks it", hint=f"for example -o {name}.svg"
            )
        EXPORTERS.get(suffix.lower())
        outputs.append(Output(None if name == STDOUT else Path(name), suffix.lower()))
    if sum(output.file is None for output in outputs) > 1:
        raise UsageError("-o - is given twice\nstdout takes one file", hint="leave one out")
    return outputs


def default_stem(target: str) -> str:
    """Return the name of the figure of ``target``: its file's stem, or the last part of any other name."""
    head = target.split(".py:")[0] if ".py:" in target else target
    stem = Path(head).stem if head.endswith((".py", ".pt2", ".json")) or ".py:" in target else ""
    if not stem:
        stem = head.rstrip("/").replace("/", ":").split(":")[-1].rpartition(".")[2]
    return "".join(character if character.isalnum() or character in "-_." else "-" for character in stem) or "figure"


def _draw(params: Mapping[str, Any], tell: Callable[[str], None]) -> pipeline.Drawing:
    options = _options(params, tell)
    if params["target"].endswith(".json"):
        return _draw_stored(Path(params["target"]), options)
    tell("loading the model")
    loaded = load_target(
        params["target"],
        parse_arguments(params["arguments"] or ()),
        seed=params["seed"],
        weights=params["weights"],
        unsafe_load=params["unsafe_load"],
        allow_download=params["allow_download"],
        device=params["device"],
    )
    tell("making the inputs")
    inputs = make_inputs(
        loaded,
        params["inputs"] or (),
        params["inputs_function"],
        seed=params["seed"],
        device=params["device"],
        command=_command_of(params),
    )
    if not params["quiet"]:
        for note in (*loaded.notes, *inputs.notes):
            say("note", note)
    try:
        with loaded.scope:
            return pipeline.render(
                loaded.model, inputs.args, inputs.kwargs, **options, **_about(loaded, inputs, params)
            )
    except ForwardError as error:
        if params["inputs"] and (command := retry_command(loaded, params["inputs"], _command_of(params))):
            error.hint = f"inputs were {', '.join(error.input_shapes)}; this works: {command}"
        raise


def _options(params: Mapping[str, Any], tell: Callable[[str], None]) -> dict[str, Any]:
    options = {name: params[name] for name in _SAME_NAMES}
    options |= {name: tuple(params[name] or ()) for name in _REPEATED}
    batch_dim = params["batch_dim"]
    options["batch_dim"] = int(batch_dim) if batch_dim.lstrip("-").isdigit() else batch_dim
    options["stats"] = params["stats"] is not False
    options["show_stats"] = params["stats"] is True
    options["labels"] = _read_labels(params["labels"] or ())
    options["progress"] = tell
    return options


def _about(loaded: LoadedModel, inputs: SampleInputs, params: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "model_name": loaded.name,
        "target": _portable(loaded.target),
        "inputs": tuple(params["inputs"] or ()),
        "tokens": token_words(loaded, params["tokens"]),
        "class_labels": class_names(loaded, params["class_labels"]),
        "loss": loss_function(loaded),
    }


def _portable(target: str) -> str:
    """Return ``target`` without the folders of this machine: figures name no absolute path."""
    return str(Path(target).name) if Path(target).is_absolute() else target


def _read_labels(texts: Sequence[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in texts:
        path, equals, label = text.partition("=")
        if not equals or not path:
            raise UsageError(
                f"cannot read --label {text!r}\nit is not PATH=TEXT", hint="for example --label enc.0=Stem"
            )
        labels[path] = label
    return labels


def _draw_stored(file: Path, options: dict[str, Any]) -> pipeline.Drawing:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelLoadError(
            f"cannot read the graph {file}\n{type(error).__name__}: {error}",
            hint="a graph is written by render -o graph.json",
        ) from error
    topology = pipeline.Topology.from_json(data)
    return pipeline.draw(topology.record, options=pipeline.Options(**options))


def _write(
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


def _command_of(params: Mapping[str, Any]) -> str:
    """Return the command as typed, as far as it decides how the model is made, for the hint of an error."""
    words = ["neural-flow", "render", params["target"]]
    for argument in params["arguments"] or ():
        words += ["-a", argument]
    if params["weights"] is not None:
        words += ["--weights", params["weights"]]
    return shlex.join(words)
