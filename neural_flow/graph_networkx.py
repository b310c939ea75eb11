"""The graph of the JSON contract as a networkx graph; apart, because networkx takes a tenth of a second to import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import networkx as nx


def to_networkx(data: Mapping[str, Any]) -> nx.DiGraph[str]:
    """Return a DiGraph whose nodes and edges carry the fields of ``data``, which follows the JSON contract."""
    graph: nx.DiGraph[str] = nx.DiGraph(**{key: data[key] for key in ("schema", "fingerprint", "model", "status")})
    for node in data["nodes"]:
        graph.add_node(node["id"], **{key: value for key, value in node.items() if key != "id"})
    for edge in data["edges"]:
        rest = {key: value for key, value in edge.items() if key not in ("source", "target")}
        graph.add_edge(edge["source"], edge["target"], **rest)
    return graph
