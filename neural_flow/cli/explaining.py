"""``neural-flow why``: the operations behind an edge, with their places in the user's code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from neural_flow import pipeline
from neural_flow.cli.console import PhaseProgress, prints_to_stderr
from neural_flow.cli.loading import Job, improve_hint, load_job, model_options, pipeline_options
from neural_flow.errors import ForwardError, SelectionError, UnknownNameError
from neural_flow.models._base import short_path
from neural_flow.records import Edge, Stage, Topology, Trace
from neural_flow.why import Step, chain_between, way_between

MAX_STEPS = 60


def run_why(params: Mapping[str, Any]) -> int:
    """Run ``why`` with the command's parameters and return the exit code.

    Raises:
        SelectionError: there is no such edge; the message says how else the one reaches the other.
        UnknownNameError: no stage has this name.
    """
    with prints_to_stderr(), PhaseProgress(4, is_quiet=params["quiet"]) as progress:
        job = load_job(params, progress.phase, command="render")
        trace, topology, source, target = _find(params, job, progress.phase)
    if source is target:
        raise SelectionError(
            f"{params['source']} and {params['sink']} are one stage, {source.name}", hint="name two stages"
        )
    edge = next(
        (edge for edge in topology.edges if (edge.source, edge.target) == (source.stage_id, target.stage_id)), None
    )
    if edge is None:
        raise _no_edge(topology, source, target)
    steps = chain_between(trace, topology, source, target)
    if params["json"]:
        sys.stdout.write(json.dumps(_as_json(edge, source, target, steps), indent=1, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in _lines(edge, source, target, steps)))
    return 0


def _find(params: Mapping[str, Any], job: Job, tell: Callable[[str], None]) -> tuple[Trace, Topology, Stage, Stage]:
    """Trace as asked; where a name is no stage and nothing else was asked, look at layers, all modules, and ops."""
    options = pipeline_options(params, tell) | model_options(params, job)
    attempts: list[dict[str, Any]] = [{}]
    if options["detail"] == "auto" and not options["select"] and options["depth"] is None:
        pair = (params["source"], params["sink"])
        attempts += [{"detail": "layer"}, {"select": ("**",)}, {"select": pair}, {"detail": "op"}]
    problem: UnknownNameError | None = None
    for attempt in attempts:
        try:
            with job.loaded.scope:
                trace, topology = pipeline.observe(
                    job.loaded.model, job.inputs.args, job.inputs.kwargs, **{**options, **attempt}
                )
        except ForwardError as error:
            improve_hint(error, job)
            raise
        except SelectionError:  # one of the names is no module
            if not attempt:
                raise
            continue
        try:
            return trace, topology, _stage(topology, params["source"]), _stage(topology, params["sink"])
        except UnknownNameError as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _stage(topology: Topology, name: str) -> Stage:
    for key in (_name, _path, _label):
        found = [stage for stage in topology.stages if key(stage) == name]
        if found:
            return found[0]
    raise UnknownNameError("stage", name, [stage.name for stage in topology.stages])


def _name(stage: Stage) -> str:
    return stage.name


def _path(stage: Stage) -> str:
    return stage.path


def _label(stage: Stage) -> str:
    return stage.label


def _no_edge(topology: Topology, source: Stage, target: Stage) -> SelectionError:
    for edge in topology.edges:  # a module that runs again has a stage for each of its calls
        start, end = topology.stages[edge.source], topology.stages[edge.target]
        if _is_one_module(start, source) and _is_one_module(end, target):
            return SelectionError(
                f"there is no edge {source.name} → {target.name}\nthere is {start.name} → {end.name}, of another call",
                hint=f"ask for {start.name} {end.name}",
            )
    for start, end in ((source, target), (target, source)):
        if way := way_between(topology, start, end):
            return SelectionError(
                f"there is no edge {source.name} → {target.name}\nvalues go {' → '.join(stage.name for stage in way)}",
                hint=f"ask for one step of it: {way[0].name} {way[1].name}" if len(way) > 1 else "name two stages",
            )
    return SelectionError(
        f"there is no edge {source.name} → {target.name}\nno value of the one reaches the other",
        hint="neural-flow render draws what is connected",
    )


def _is_one_module(one: Stage, other: Stage) -> bool:
    return one is other or (one.kind == other.kind == "module" and one.path == other.path)


def _lines(edge: Edge, source: Stage, target: Stage, steps: Sequence[Step]) -> list[str]:
    words = [edge.kind] + ["inferred from the order of execution"] * edge.inferred + ["opaque code"] * edge.opaque
    tensors = ", ".join(f"{meta.dtype} {list(meta.shape)}" for meta in edge.tensors)
    lines = [f"{source.name} → {target.name}: {', '.join(words)}{f'; carries {tensors}' if tensors else ''}"]
    if not steps:
        lines.append("  handed over as it is, no operation between")
    shown = steps if len(steps) <= MAX_STEPS else [*steps[: MAX_STEPS - 1], steps[-1]]
    names = [_op_name(step) for step in shown]
    width = max(map(len, names), default=0)
    for step, name in zip(shown, names, strict=True):
        place = _place(step)
        where = f"in {step.path}" if step.path else "in the root module"
        shape = f" → {list(step.shape)}" if step.shape is not None else ""
        lines.append(f"  {name.ljust(width)}  {place}  {where}{shape}")
    if len(shown) < len(steps):
        lines.append(f"  … {len(steps) - len(shown)} more between")
    return lines


def _op_name(step: Step) -> str:
    return ("read by " if step.is_inside else "") + step.target.removeprefix("torch.")


def _place(step: Step) -> str:
    if step.location is None:
        return "(no place known)"
    file, _, line = step.location.rpartition(":")
    return f"{short_path(Path(file))}:{line}"


def _as_json(edge: Edge, source: Stage, target: Stage, steps: Sequence[Step]) -> dict[str, Any]:
    return {
        "schema": "neural-flow.why/1",
        "source": source.name,
        "target": target.name,
        "kind": edge.kind,
        "inferred": edge.inferred,
        "opaque": edge.opaque,
        "steps": [
            {
                "target": step.target.removeprefix("torch."),
                "module": step.path,
                "location": _place(step) if step.location is not None else None,
                "shape": None if step.shape is None else list(step.shape),
                "inside_target": step.is_inside,
            }
            for step in steps
        ],
    }
