"""Pin an architecture in a test: ``assert_architecture`` compares a model with a stored graph file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from neural_flow import graph_json, pipeline
from neural_flow.diff import Difference, diff_topologies, difference_lines, renamed_lines
from neural_flow.errors import UsageError
from neural_flow.graph_json import read_graph
from neural_flow.options import request_options

MAX_LINES = 12


def assert_architecture(
    model: nn.Module,
    args: Any = (),
    graph: str | Path = "graph.json",
    kwargs: Mapping[str, Any] | None = None,
) -> None:
    """Assert that ``model`` still has the architecture that ``graph`` describes.

    Only what the fingerprint covers counts: stages, their shapes, dtypes and parameters, and the edges; weights and
    activations do not. What is drawn is chosen as it was when the file was written.

    Args:
        model: left as it was.
        args: a tuple of positional arguments; anything else is the one argument.
        graph: a file written by ``neural-flow render model.py -o graph.json`` or ``Topology.to_json``.
        kwargs: keyword arguments of forward.

    Raises:
        AssertionError: the architecture differs; the message lists how.
        ModelLoadError: the file cannot be read.
        UsageError: the arguments stand in another order.
    """
    _check_order(args, graph)
    stored = read_graph(graph)
    expected = graph_json.topology_from_json(stored)
    found = pipeline.trace(model, args, kwargs, **request_options(expected.request)).record
    difference = diff_topologies(expected, found)
    if difference.is_empty and graph_json.topology_to_json(found)["fingerprint"] == stored.get("fingerprint"):
        return
    lines = change_lines(difference)
    raise AssertionError(f"the architecture differs from {Path(graph).name}:\n" + "\n".join(lines))


def _check_order(args: Any, graph: Any) -> None:
    is_file_first = isinstance(args, str | Path) and str(args).endswith(".json")
    if not isinstance(graph, str | Path) or is_file_first:
        found = f"args is {str(args)!r}" if is_file_first else f"graph is a {type(graph).__name__}"
        raise UsageError(found, hint='write assert_architecture(model, inputs, "graph.json")')


def change_lines(difference: Difference) -> list[str]:
    """Return how two topologies differ, a line each; long lists are cut, and the cut is said."""
    lines = difference_lines(difference) or renamed_lines(difference)
    if not lines:
        lines = ["~ the same stages and edges in another order"]
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f"and {len(lines) - MAX_LINES} more"]
    return lines
