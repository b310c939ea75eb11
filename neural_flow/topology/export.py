"""The topology that ``torch.export`` finds: static like fx, but it follows shapes, dicts and in-place writes too."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import warnings
from collections import Counter
from collections.abc import Generator
from typing import Any

import torch
from torch import fx, nn
from torch.export.graph_signature import InputKind, OutputKind

from neural_flow.errors import TopologyUnavailable
from neural_flow.nested import tensor_leaves
from neural_flow.records import TensorMeta, ValueRef
from neural_flow.topology._base import TOPOLOGY_SOURCES, FlowGraph, FlowOp, TopologyQuery
from neural_flow.topology.op_names import lender, op_name
from neural_flow.topology.ownership import CallPlan
from neural_flow.topology.pieces import nodes_in_piece
from neural_flow.topology.undisturbed import isolated

FAILED = "model could not be exported. Using runtime execution order instead. ({reason})"


@TOPOLOGY_SOURCES.register("export")
def export_graph(query: TopologyQuery) -> FlowGraph:
    """Export the model for the sample inputs and read the graph; every op says which module call ran it.

    Raises:
        TopologyUnavailable: the model cannot be exported, or a stage left no op in the graph.
    """
    if not isinstance(query.model, nn.Module):
        raise TopologyUnavailable(FAILED.format(reason="there is no module to export"))
    plan = CallPlan(query.trace, query.selection)
    try:
        with _silence(), torch.random.fork_rng(devices=()), isolated(query) as run:
            program = torch.export.export(query.model, run.args, dict(run.kwargs), strict=False)
            program = program.run_decompositions({})  # makes in-place writes values that can be followed
        found = _Reader(query, plan, program).read()
    except Exception as error:  # exporting runs user code and most of the compiler
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        raise TopologyUnavailable(FAILED.format(reason=reason)) from error
    if missing := plan.missing():
        raise TopologyUnavailable(FAILED.format(reason=f"the graph holds no op of {', '.join(missing)}"))
    return found


@contextlib.contextmanager
def _silence() -> Generator[None]:
    """Swallow what torch prints, logs and warns while it exports; restored on leaving."""
    loggers = [logging.getLogger(name) for name in ("torch", "torch.export", "torch._dynamo", "torch.fx")]
    levels = [logger.level for logger in loggers]
    sink = io.StringIO()
    with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for logger in loggers:
                logger.setLevel(logging.CRITICAL)
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


class _Reader:
    """Turn an exported program into ops."""

    def __init__(self, query: TopologyQuery, plan: CallPlan, program: torch.export.ExportedProgram) -> None:
        self._trace = query.trace
        self._stages = query.selection.stages
        self._plan = plan
        self._graph = program.graph_module.graph
        self._signature = program.graph_signature
        self._ops: list[FlowOp] = []
        self._refs: dict[fx.Node, tuple[ValueRef, ...]] = {}
        self._num_seen: Counter[tuple[str, int, str]] = Counter()
        self._input_stages = {stage.index: stage.stage_id for stage in self._stages if stage.kind == "input"}
        self._input_places = _input_places(query)
        self._leaves: dict[int, tuple[tuple[ValueRef, ...], ...]] = {}
        self._reads: dict[int, tuple[ValueRef, ...]] = {}

    def read(self) -> FlowGraph:
        kinds = {spec.arg.name: spec.kind for spec in self._signature.input_specs if hasattr(spec.arg, "name")}
        num_user_inputs = 0
        for node in self._graph.nodes:
            if node.op == "placeholder":
                kind = kinds.get(node.name)
                self._add_placeholder(node, kind, num_user_inputs)
                num_user_inputs += kind == InputKind.USER_INPUT and isinstance(node.meta.get("val"), torch.Tensor)
            elif node.op == "output":
                self._add_outputs(node)
            elif not self._is_item(node):
                self._add_op(node)
        return FlowGraph(ops=tuple(self._ops), reads=self._reads, leaves=self._leaves)

    def _add(self, node: fx.Node, op: FlowOp) -> None:
        index = len(self._ops)
        self._ops.append(op)
        self._refs[node] = ((index, 0),)
        if op.owner is not None and op.role == "input":
            self._leaves[op.owner] = (self._refs[node],)

    def _add_placeholder(self, node: fx.Node, kind: InputKind | None, number: int) -> None:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            self._refs[node] = ()
        elif kind == InputKind.USER_INPUT:
            place = self._input_places[number] if number < len(self._input_places) else number
            owner = self._input_stages.get(place)
            self._add(node, FlowOp(target="input", outputs=_metas(value), owner=owner, role="input"))
        else:
            has_dims = kind == InputKind.PARAMETER and value.dim() > 1
            self._add(node, FlowOp(target="constant", outputs=_metas(value), reads_weight=has_dims))

    def _add_op(self, node: fx.Node) -> None:
        path, index = _innermost_call(node)
        name = op_name(str(node.target))
        place = self._num_seen[path, index, name]
        self._num_seen[path, index, name] += 1
        self._add(
            node,
            FlowOp(
                target=name,
                parents=self._parents(node, name),
                outputs=_metas(node.meta.get("val")),
                owner=self._plan.op_owner_of(path, index, name, place),
                path=path,
                mark=self._plan.mark_of(path, index),
            ),
        )

    def _is_item(self, node: fx.Node) -> bool:
        """Return whether a node only takes one tensor out of what an op returned."""
        if op_name(str(getattr(node.target, "__name__", ""))) != "getitem" or len(node.args) != 2:
            return False
        source, key = node.args
        if not isinstance(source, fx.Node) or not isinstance(key, int) or nodes_in_piece(node) is not None:
            return False
        self._refs[node] = tuple((op, key) for op, _ in self._refs[source])
        return True

    def _parents(self, node: fx.Node, name: str) -> tuple[ValueRef, ...]:
        sources = nodes_in_piece(node) or list(node.all_input_nodes)
        if lends := lender(name):
            sources = sources[1:] if lends == "first" else sources[:1]
        return tuple(dict.fromkeys(ref for source in sources for ref in self._refs.get(source, ())))

    def _add_outputs(self, node: fx.Node) -> None:
        values = [
            value
            for value, spec in zip(_flat(node.args[0]), self._signature.output_specs, strict=True)
            if spec.kind == OutputKind.USER_OUTPUT and isinstance(value, fx.Node)
        ]
        if len(values) != len(self._trace.outputs):
            raise TopologyUnavailable(f"the graph returns {len(values)} values, not {len(self._trace.outputs)}")
        for stage in self._stages:
            if stage.kind == "output":
                self._reads[stage.stage_id] = self._refs[values[stage.index]]


def _input_places(query: TopologyQuery) -> list[int]:
    """Return, for each tensor in the order of export (arguments, then keywords as given), its input leaf."""
    bound = inspect.signature(query.model.forward).bind(*query.args, **query.kwargs)
    places: dict[int, list[int]] = {}
    leaves = [tensor for value in bound.arguments.values() for _, tensor in tensor_leaves(value)]
    for place, tensor in enumerate(leaves):
        places.setdefault(id(tensor), []).append(place)
    given = [tensor for value in (*query.args, *query.kwargs.values()) for _, tensor in tensor_leaves(value)]
    return [places[id(tensor)].pop(0) for tensor in given]


def _innermost_call(node: fx.Node) -> tuple[str, int]:
    stack: dict[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
    if not stack:
        return "", 0
    key = next(reversed(stack))
    return stack[key][0].partition("@")[0], int(key.partition("@")[2] or 0)


def _flat(value: Any) -> list[Any]:
    return [item for part in value for item in _flat(part)] if isinstance(value, list | tuple) else [value]


def _metas(value: Any) -> tuple[TensorMeta, ...]:
    if isinstance(value, torch.Tensor):
        shape = tuple(int(size) for size in value.shape)
        return (TensorMeta(shape=shape, dtype=str(value.dtype).removeprefix("torch."), device=str(value.device)),)
    return tuple(meta for item in value for meta in _metas(item)) if isinstance(value, list | tuple) else ()
