"""What a topology source is asked and what it answers, and which source answers when another one cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Protocol

from neural_flow.records import EdgeMark, OpRole, Request, Selection, TensorMeta, Trace, ValueRef
from neural_flow.registry import Registry

Node = tuple[Literal["stage", "join"], int]
"""One end of a line: a stage id, or the id of the op that joins."""


class Isolated(Protocol):
    """Inputs for one run of the model's own code, whose every change is undone afterwards."""

    @property
    def args(self) -> tuple[Any, ...]:
        """Positional arguments."""
        ...

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """Keyword arguments."""
        ...


Isolate = Callable[[], AbstractContextManager[Isolated]]
"""Makes a context in which the model may be run: it is left as it was, and so are inputs and random states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyQuery:
    """What a source may look at.

    ``model``, ``args`` and ``kwargs`` are only for sources that trace on their own, inside ``isolate`` where given.
    """

    trace: Trace
    selection: Selection
    model: Any = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    request: Request = field(default_factory=Request)
    isolate: Isolate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowOp:
    """One op as a source saw it, in execution order: parents have lower indices.

    ``owner`` is the id of the stage that ran it, None for glue. ``outputs`` is empty where the source knows no shapes.
    ``is_weighted`` says that the result depends on a weight whatever its inputs are. ``path`` is the innermost module
    that ran the op, ``mark`` the call on an edge that it belongs to. ``changes_shape`` is None where shapes tell.
    ``is_box`` is a whole module that the source did not look into.
    """

    target: str
    parents: tuple[ValueRef, ...] = ()
    outputs: tuple[TensorMeta, ...] = ()
    owner: int | None = None
    role: OpRole = "op"
    reads_weight: bool = False
    is_weighted: bool | None = None
    path: str = ""
    mark: EdgeMark | None = None
    changes_shape: bool | None = None
    is_box: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowGraph:
    """The answer of a source. The shared walk turns it into edges, so that all sources mean the same by an edge.

    Attributes:
        ops: stage ops and glue, in execution order; refs are (index in ``ops``, output index).
        reads: by stage id, the values handed to it (beside those that its ops read).
        leaves: by stage id, the values of each of its output leaves, as ``Stage.outputs`` counts them.
        unread: by stage id, those of ``reads`` that nothing in the stage takes in.
        is_inferred: nothing was observed; every edge only says what ran next.
        notes: what the reader of the figure should know.
    """

    ops: tuple[FlowOp, ...]
    reads: Mapping[int, tuple[ValueRef, ...]]
    leaves: Mapping[int, tuple[tuple[ValueRef, ...], ...]] = field(default_factory=lambda: MappingProxyType({}))
    unread: Mapping[int, frozenset[ValueRef]] = field(default_factory=lambda: MappingProxyType({}))
    is_inferred: bool = False
    notes: tuple[str, ...] = ()


TopologySource = Callable[[TopologyQuery], FlowGraph]
"""Raises ``TopologyUnavailable(reason)`` where it cannot answer."""

TOPOLOGY_SOURCES: Registry[TopologySource] = Registry("topology source", "neural_flow.topology")

AUTO_CHAIN = ("dataflow", "fx", "sequential")
LAST_RESORT = "sequential"


def fallback_chain(requested: str) -> tuple[str, ...]:
    """Return the sources to ask, in order: ``auto`` asks all, any other name itself and then execution order."""
    if requested == "auto":
        return AUTO_CHAIN
    return (requested,) if requested == LAST_RESORT else (requested, LAST_RESORT)
