"""Draw a graph file: its stages are chosen and its numbers are taken, so some options come too late."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neural_flow import pipeline
from neural_flow.cli.console import say
from neural_flow.errors import UsageError
from neural_flow.graph_json import read_graph, stored_measurements
from neural_flow.options import Options

# Options that the run of a model answers, by parameter name; those whose flag is not the name itself come with it.
_TOO_LATE = {
    "arguments": "-a", "weights": "", "device": "", "train": "", "autocast": "", "inputs": "-i",
    "inputs_function": "--inputs", "detail": "", "depth": "", "select": "", "exclude": "", "types": "--type",
    "max_stages": "", "fold": "--no-fold", "expand": "", "collapse": "", "topology": "", "tracer": "", "fake": "",
    "heads": "", "batch_dim": "", "sample": "",
}  # fmt: skip

_NUMBERS = {"gradients": "gradient", "saved": "saved"}


def draw_stored(file: Path, params: Mapping[str, Any], options: Mapping[str, Any]) -> pipeline.Drawing:
    """Return the figure of a graph file.

    Args:
        file: the graph.
        params: the command's parameters.
        options: the options of the pipeline made from them.

    Raises:
        ModelLoadError: the file is no graph.
        UsageError: cards are to be coloured by a number that the file does not hold.
    """
    data = read_graph(file)
    topology = pipeline.Topology.from_json(data)
    measured = stored_measurements(data)
    held = {found.name for found in measured}
    asked = Options(**options)
    if asked.color_by not in (None, "params", *held):
        raise UsageError(
            f"{file} holds no {asked.color_by}\nwhat is measured depends on the machine, or was not asked for",
            hint=f"draw the model itself: neural-flow render model.py --color-by {asked.color_by}",
        )
    late = _too_late(params)
    late += [f"--{option}" for option, name in _NUMBERS.items() if params[option] and name not in held]
    if late and not params["quiet"]:
        say("note", f"without effect on this graph file, whose stages and numbers are chosen: {', '.join(late)}")
    return pipeline.draw(topology.record, None, measured, options=asked)


def _too_late(params: Mapping[str, Any]) -> list[str]:
    defaults = {field.name: field.default for field in dataclasses.fields(Options)}
    late: list[str] = []
    for name, flag in _TOO_LATE.items():
        value = params[name]
        if value not in (None, [], defaults.get(name)):
            late.append(flag or f"--{name.replace('_', '-')}")
    return late
