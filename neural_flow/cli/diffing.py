"""``neural-flow diff``: what changed between two models, as text, JSON or a figure."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from neural_flow import pipeline
from neural_flow.cli.console import PhaseProgress, prints_to_stderr
from neural_flow.cli.loading import improve_hint, load_job, model_options, pipeline_options
from neural_flow.cli.rendering import Output, raise_last, read_outputs
from neural_flow.diff import Difference, diff_topologies, difference_lines, difference_to_json, renamed_lines
from neural_flow.diff_figure import overlay_topologies
from neural_flow.errors import ExportError, ForwardError, ModelLoadError, NeuralFlowError
from neural_flow.export._base import write_whole
from neural_flow.git_files import PREFIX, read_git_file
from neural_flow.graph_json import read_graph, topology_from_json
from neural_flow.options import request_options
from neural_flow.records import Request, Topology

_SELECTION = (
    "detail", "depth", "select", "exclude", "types", "max_stages", "fold", "expand", "collapse", "topology", "tracer",
    "train", "autocast",
)  # fmt: skip
Tell = Callable[[str], None]


def run_diff(params: Mapping[str, Any]) -> int:
    """Run ``diff`` with the command's parameters and return the exit code.

    Raises:
        NeuralFlowError: of the kind that the exit code tells.
    """
    outputs = read_outputs(params["outputs"], params["format_name"], None)
    with prints_to_stderr() as write_stdout, PhaseProgress(8, is_quiet=params["quiet"]) as progress:
        before, after = read_sides(params, progress.phase)
        difference = diff_topologies(before, after)
        refused: list[NeuralFlowError] = []
        for output in outputs:
            data = _contents(output, before, after, difference, params, progress.phase)
            try:
                if output.file is None:
                    write_stdout(data)
                else:
                    write_whole(output.file, data)
            except ExportError as error:
                refused.append(error)
    if not any(output.file is None for output in outputs):
        sys.stdout.write(diff_text(before, after, difference))
    raise_last(refused)
    is_same = difference.is_empty and not difference.renamed
    return 1 if params["exit_code"] and not is_same else 0


def read_sides(params: Mapping[str, Any], tell: Tell) -> tuple[Topology, Topology]:
    """Return both topologies; a model beside a graph file is asked what the graph file was asked."""
    stored = [_read_stored(params[side]) for side in ("before", "after")]
    request = next((found.request for found in stored if found is not None), None)
    sides = [
        found if found is not None else _trace_side(params[side], params, request, tell)
        for found, side in zip(stored, ("before", "after"), strict=True)
    ]
    return sides[0], sides[1]


def asked_again(params: Mapping[str, Any], request: Request) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters of a command with what a graph file says of its making, and the options that select.

    What the user gives wins: other inputs replace the stored ones, as do other constructor arguments.
    """
    filled = dict(params)
    if not params["arguments"]:
        filled["arguments"] = list(request.arguments)
    if not params["inputs"] and not params["inputs_function"]:
        filled |= {"inputs": list(request.inputs), "inputs_function": request.inputs_function}
    if request.seed is not None and not params["seed"]:
        filled["seed"] = request.seed
    options = request_options(request)
    return filled, {name: options[name] for name in _SELECTION}


def diff_text(before: Topology, after: Topology, difference: Difference) -> str:
    """Return the difference as lines, or one line that says that there is none."""
    if difference.renamed and difference.is_empty:
        return "".join(f"{line}\n" for line in renamed_lines(difference))
    if difference.is_empty:
        return f"no difference: {len(after.stages)} stages, {after.model.num_params:,} parameters\n"
    lines = difference_lines(difference)
    if before.model.num_params != after.model.num_params:
        lines.append(f"~ model: parameters {before.model.num_params:,} → {after.model.num_params:,}")
    return "".join(f"{line}\n" for line in lines)


def _read_stored(text: str) -> Topology | None:
    if text.startswith(PREFIX):
        try:
            data = json.loads(read_git_file(text))
        except ValueError as error:
            raise ModelLoadError(f"cannot read the graph {text}\n{error}", hint="name a graph .json") from error
        return topology_from_json(data)
    return topology_from_json(read_graph(text)) if text.endswith(".json") else None


def _trace_side(target: str, params: Mapping[str, Any], request: Request | None, tell: Tell) -> Topology:
    filled: Mapping[str, Any] = {**params, "target": target}
    options = pipeline_options(filled, tell)
    if request is not None:
        filled, selection = asked_again(filled, request)
        options |= selection
    job = load_job(filled, tell, command="render")
    options |= model_options(filled, job)
    try:
        with job.loaded.scope:
            return pipeline.trace(job.loaded.model, job.inputs.args, job.inputs.kwargs, **options).record
    except ForwardError as error:
        improve_hint(error, job)
        raise


def _contents(
    output: Output, before: Topology, after: Topology, difference: Difference, params: Mapping[str, Any], tell: Tell
) -> bytes:
    if output.suffix == ".json":
        return (json.dumps(difference_to_json(difference), indent=1, ensure_ascii=False) + "\n").encode()
    if output.suffix == ".txt":
        return diff_text(before, after, difference).encode()
    if output.suffix == ".md":
        return f"```diff\n{diff_text(before, after, difference)}```\n".encode()
    overlay = overlay_topologies(before, after, difference)
    options = pipeline_options(params, tell)
    if options["title"] is None:
        options["title"] = _title(params["before"], before, params["after"], after)
    options |= {"changes": overlay.changes, "edge_changes": overlay.edge_changes}
    return pipeline.draw(overlay.topology, options=pipeline.Options(**options)).to_bytes(output.suffix)


def _title(old: str, before: Topology, new: str, after: Topology) -> str:
    """Return both names; where they are one name, what tells the two targets apart stands beside it."""
    names = [_side_name(old, before), _side_name(new, after)]
    if names[0] == names[1] and old != new:
        parts = [text.rpartition(":")[2] for text in (old, new)]
        words = [Path(part).stem if part.endswith(".py") else part for part in parts]
        if words[0] != words[1]:
            names = [f"{name} ({word})" for name, word in zip(names, words, strict=True)]
    return " → ".join(names)


def _side_name(text: str, topology: Topology) -> str:
    if text.startswith(PREFIX):
        return f"{topology.model.name} ({text.removeprefix(PREFIX).partition(':')[0]})"
    return f"{topology.model.name} ({Path(text).name})" if text.endswith(".json") else topology.model.name
