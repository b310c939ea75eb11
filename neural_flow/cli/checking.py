"""``neural-flow check``: has the architecture changed, and are all values finite?"""

from __future__ import annotations

import json
import shlex
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from neural_flow import graph_json, pipeline
from neural_flow.cli.console import PhaseProgress, prints_to_stderr, say
from neural_flow.cli.diffing import asked_again
from neural_flow.cli.finite import first_not_finite, not_finite_text
from neural_flow.cli.github import annotate
from neural_flow.cli.loading import Job, improve_hint, load_job, model_options, pipeline_options
from neural_flow.diff import diff_topologies, difference_lines, difference_to_json
from neural_flow.errors import ForwardError, ModelLoadError, UsageError
from neural_flow.export._base import write_whole
from neural_flow.records import Topology
from neural_flow.testing import change_lines

MAX_LINES = 3
Tell = Callable[[str], None]


def run_check(params: Mapping[str, Any]) -> int:
    """Run ``check`` on one target and return 0, or 1 where something differs or a value is not finite.

    Raises:
        NeuralFlowError: of the kind that the exit code tells.
    """
    if params["against"] is None and not params["finite"]:
        raise UsageError(
            "nothing to check against\n--against names the stored graph",
            hint=f"write one with neural-flow render {params['target']} -o graph.json, or give --finite",
        )
    with prints_to_stderr(), PhaseProgress(6, is_quiet=params["quiet"]) as progress:
        answers: list[dict[str, Any]] = []
        if params["against"] is not None:
            answers.append(_check_architecture(params, progress.phase))
        if params["finite"]:
            answers.append(_check_finite(params, progress.phase))
    if params["json"]:
        merged = {"schema": "neural-flow.check/1", "target": params["target"]}
        for answer in answers:
            merged |= answer["json"]
        sys.stdout.write(json.dumps(merged, indent=1, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for answer in answers for line in answer["lines"]))
    return 1 if any(answer["is_different"] for answer in answers) else 0


def _check_architecture(params: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    file = Path(params["against"])
    if params["update"] and not file.exists():
        _update(params, pipeline_options(params, tell), file, has_values=False, tell=tell)
        return _answer(f"{file}: written", is_different=False, found="written")
    stored = _stored(file, str(params["target"]))
    try:
        expected = graph_json.topology_from_json(stored)
    except ModelLoadError as error:
        what, _, found = str(error).partition("\n")
        words = what.replace("the graph", f"the graph {file}", 1)
        raise ModelLoadError(f"{words}\n{found}".strip(), hint=_writing(file, str(params["target"]))) from error
    fingerprint = graph_json.fingerprint(stored)
    filled, selection = asked_again(params, expected.request)
    options = pipeline_options(filled, tell) | selection
    job = load_job(filled, tell, command="render")
    found = _traced(job, options | model_options(filled, job), fingerprint)
    difference = diff_topologies(expected, found)
    if difference.is_empty and _fingerprint(found) == fingerprint:
        words = f"{file}: the same architecture, {len(found.stages)} stages, {found.model.num_params:,} parameters"
        return _answer(words, is_different=False, found="same")
    lines = change_lines(difference)
    num_changes = len(difference_lines(difference) or difference.renamed) or 1
    counted = f"{num_changes} changes" if num_changes > 1 else "1 change"
    if params["update"]:
        has_values = any(node.get("stats") is not None for node in stored["nodes"])
        _update(filled, options, file, has_values=has_values, tell=tell)
        head = f"{file}: updated, {counted}"
    else:
        head = f"{file}: the architecture has changed, {counted}"
        target = str(params["target"])
        annotate("\n".join([head, *lines]), title="architecture changed", file=target.partition(":")[0])
    shown = lines[:MAX_LINES]
    if num_changes > len(shown):
        shown.append(f"… and {num_changes - len(shown)} more; neural-flow diff {file} {params['target']} shows all")
    answer = _answer(head, *shown, is_different=not params["update"], found="changed")
    answer["json"]["difference"] = difference_to_json(difference)
    return answer


def _stored(file: Path, target: str) -> dict[str, Any]:
    try:
        return graph_json.read_graph(file)
    except ModelLoadError as error:
        if not file.exists():
            raise ModelLoadError(f"there is no graph {file} to check against", hint=_writing(file, target)) from None
        found = str(error).partition("\n")[2]
        raise ModelLoadError(f"cannot read the graph {file}\n{found}", hint=_writing(file, target)) from error


def _writing(file: Path, target: str) -> str:
    """Return how to get the graph file; a file with another suffix is not to be written over."""
    if file.suffix != ".json":
        return "name a graph .json"
    return f"write it with: {shlex.join(['neural-flow', 'render', target, '-o', str(file)])}"


def _answer(*lines: str, is_different: bool, found: str) -> dict[str, Any]:
    return {"lines": list(lines), "is_different": is_different, "json": {"architecture": found}}


def _traced(job: Job, options: Mapping[str, Any], expected: str) -> Topology:
    """Return the topology, from fake tensors where their answer is the expected one, else from a real run.

    Fake tensors cost no memory and no arithmetic, but not every model runs on them: only a real run tells a change.
    """
    with job.loaded.scope:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fake = pipeline.trace(
                    job.loaded.model, job.inputs.args, job.inputs.kwargs, **{**options, "fake": True, "log": None}
                ).record
            if _fingerprint(fake) == expected:
                return fake
        except Exception as error:  # what fake tensors cannot do is no fault of the model
            if options["log"] is not None:
                say("note", f"fake tensors do not serve: {type(error).__name__}")
        try:
            return pipeline.trace(job.loaded.model, job.inputs.args, job.inputs.kwargs, **options).record
        except ForwardError as error:
            improve_hint(error, job)
            raise


def _fingerprint(topology: Topology) -> str:
    return graph_json.topology_to_json(topology)["fingerprint"]


def _update(params: Mapping[str, Any], options: dict[str, Any], file: Path, *, has_values: bool, tell: Tell) -> None:
    """Write the graph file anew, with statistics if it had them."""
    job = load_job({**params, "quiet": True}, tell, command="render")
    options = options | model_options(params, job) | {"capture": has_values}
    with job.loaded.scope:
        drawing = pipeline.render(job.loaded.model, job.inputs.args, job.inputs.kwargs, **options)
    write_whole(file, drawing.to_bytes(".json"))


def _check_finite(params: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Run the capture pass over all ops, unless the user chose the stages: the first one is then the culprit."""
    options = pipeline_options(params, tell) | {"capture": True, "attention": False, "stats": True, "fake": False}
    if options["detail"] == "auto" and not options["select"] and options["depth"] is None:
        options["detail"] = "op"
    job = load_job(params, tell, command="render")
    options |= model_options(params, job)
    with job.loaded.scope, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a missing picture is none of this command's business
        topology, captured = pipeline.observe_values(job.loaded.model, job.inputs.args, job.inputs.kwargs, **options)
    found = first_not_finite(topology, captured)
    if found is None:
        text = f"{params['target']}: all values are finite in {len(captured.stats)} stages"
        return {"lines": [text], "is_different": False, "json": {"finite": True}}
    stage, stats = found
    text = f"{params['target']}: {not_finite_text(topology, captured)}"
    annotate(text, title="values that are not finite", file=str(params["target"]).partition(":")[0])
    details = {"stage": stage.name, "module": stage.path, "num_nan": stats.num_nan, "num_inf": stats.num_inf}
    return {"lines": [text], "is_different": True, "json": {"finite": False, "first": details}}
