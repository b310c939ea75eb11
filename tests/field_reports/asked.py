"""Questions to a traced model: which edges there are, by the names of its stages."""

from __future__ import annotations

from typing import Any

from torch import nn

import neural_flow as nf
from neural_flow.records import Stage, Topology


def topology_of(model: nn.Module, args: Any = (), kwargs: dict[str, Any] | None = None, **options: Any) -> Topology:
    return nf.trace(model, args, kwargs, **{"detail": "layer", **options}).record


def edges(topology: Topology, **having: Any) -> set[tuple[str, str]]:
    """Names of the ends of all edges whose fields are as given."""
    names = {stage.stage_id: stage.name for stage in topology.stages}
    return {
        (names[edge.source], names[edge.target])
        for edge in topology.edges
        if all(getattr(edge, key) == value for key, value in having.items())
    }


def stage(topology: Topology, name: str) -> Stage:
    return next(one for one in topology.stages if one.name == name)


def edges_of(
    model: nn.Module, args: Any = (), kwargs: dict[str, Any] | None = None, **options: Any
) -> set[tuple[str, str]]:
    return edges(topology_of(model, args, kwargs, **options))
