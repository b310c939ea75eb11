"""JSON: the graph as data, every stage unfolded; pictures are not in it."""

from __future__ import annotations

from neural_flow.drawing import ExportOptions, Picture
from neural_flow.export._base import EXPORTERS
from neural_flow.graph_json import dump_graph, topology_to_json


@EXPORTERS.register(".json")
def export_json(picture: Picture, options: ExportOptions) -> bytes:
    """Return the graph of ``picture`` as the JSON contract has it."""
    data = topology_to_json(picture.topology, picture.capture, picture.measurements, has_stats=options.has_stats)
    return dump_graph(data).encode()
