"""The topology that torch.fx finds by tracing the model with symbols instead of tensors."""

from __future__ import annotations

import inspect
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.overrides import resolve_name

from neural_flow.errors import TopologyUnavailable
from neural_flow.module_calls import module_paths
from neural_flow.records import TensorMeta, ValueRef
from neural_flow.topology._base import TOPOLOGY_SOURCES, FlowGraph, FlowOp, TopologyQuery
from neural_flow.topology.op_names import is_resizer, is_view, lender, op_name
from neural_flow.topology.ownership import CallPlan
from neural_flow.topology.undisturbed import isolated
from neural_flow.topology.walk import union

FAILED = "model could not be symbolically traced … Using runtime execution order instead. ({reason})"
IN_PLACE = frozenset(("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul", "setitem"))
SIZE_METHODS = frozenset(("size", "dim", "ndimension", "numel", "nelement", "stride", "element_size", "__len__"))
SIZE_ATTRIBUTES = frozenset(("shape", "ndim", "dtype", "device", "requires_grad", "layout", "is_cuda", "itemsize"))


@TOPOLOGY_SOURCES.register("fx")
def fx_graph(query: TopologyQuery) -> FlowGraph:
    """Trace the model with ``torch.fx``; the selected modules are leaves, so what happens inside them is not seen.

    Raises:
        TopologyUnavailable: the model cannot be traced with symbols, or its trace is not what ran.
    """
    if not isinstance(query.model, nn.Module):
        raise TopologyUnavailable(FAILED.format(reason="there is no module to trace"))
    plan = CallPlan(query.trace, query.selection)
    try:
        with torch.random.fork_rng(devices=()), isolated(query):
            tracer = _StageTracer(query.model, plan)
            graph = tracer.trace(query.model, _constants(query))
            found = _Reader(query, plan, tracer.calls).read(graph)
    except Exception as error:  # user code may raise anything when it meets a symbol
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        raise TopologyUnavailable(FAILED.format(reason=reason)) from error
    if missing := plan.missing():
        raise TopologyUnavailable(FAILED.format(reason=f"the trace does not hold {', '.join(missing)}"))
    return found


def _constants(query: TopologyQuery) -> dict[str, Any] | None:
    """Return the arguments that are plain values: with them the model takes the branches that it took."""
    signature = inspect.signature(query.model.forward)
    bound = signature.bind(*query.args, **query.kwargs)
    bound.apply_defaults()
    found = {
        name: value for name, value in bound.arguments.items() if isinstance(value, bool | int | float | str | None)
    }
    return found or None


class _StageTracer(fx.Tracer):
    """Trace down to the selected modules, and note for each node which call made it."""

    def __init__(self, model: nn.Module, plan: CallPlan) -> None:
        super().__init__()
        self._module_paths = module_paths(model)
        self._plan = plan
        self.calls: dict[fx.Node, tuple[str, int]] = {}

    def path_of_module(self, mod: nn.Module) -> str:
        """Return the path that stages use, also of modules kept in plain lists and inside wrappers."""
        path = self._module_paths.get(mod)
        return path if path is not None else super().path_of_module(mod)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Stop at selected modules; enter any other one that holds a selected module."""
        if module_qualified_name in self._plan.paths:
            return True
        if module_qualified_name in self._plan.above:
            return False
        return hasattr(m, "_nf_layer") or super().is_leaf_module(m, module_qualified_name)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Trace a call; a hooked module that is entered passes for the layer that it wraps."""
        layer = getattr(m, "_nf_layer", None)
        return super().call_module(m, layer.forward if isinstance(layer, nn.Module) else forward, args, kwargs)

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        """Create a node and note the innermost call that is running."""
        node = super().create_node(*args, **kwargs)
        self.calls[node] = ("", 0)
        if self.module_stack:
            key, (path, _) = next(reversed(self.module_stack.items()))
            self.calls[node] = (path, int(key.partition("@")[2] or 0))
        return node


class _Reader:
    """Turn an fx graph into ops."""

    def __init__(self, query: TopologyQuery, plan: CallPlan, calls: Mapping[fx.Node, tuple[str, int]]) -> None:
        self._trace = query.trace
        self._stages = {stage.stage_id: stage for stage in query.selection.stages}
        self._root: nn.Module = query.model
        self._modules = {path: module for module, path in module_paths(query.model).items()}
        self._plan = plan
        self._calls = calls
        self._ops: list[FlowOp] = []
        self._refs: dict[fx.Node, tuple[ValueRef, ...]] = {}  # empty: sizes, constants
        self._roots: dict[fx.Node, fx.Node] = {}  # what a view or a written tensor shows the bytes of
        self._nests: dict[fx.Node, str] = {}  # nodes that stand for a nest of inputs, by its name
        self._leaves: dict[int, tuple[tuple[ValueRef, ...], ...]] = {}
        self._reads: dict[int, tuple[ValueRef, ...]] = {}
        self._num_seen: Counter[tuple[str, int, str]] = Counter()
        self._inputs = {
            query.trace.inputs[stage.index].name: stage
            for stage in query.selection.stages
            if stage.kind == "input" and stage.index < len(query.trace.inputs)
        }

    def read(self, graph: fx.Graph) -> FlowGraph:
        for node in graph.nodes:
            if node.op == "placeholder":
                self._add_input(node, str(node.target).lstrip("*"))
            elif node.op == "output":
                self._add_outputs(node.args[0])
            elif node.op == "call_module":
                self._add_module(node)
            elif not self._is_size(node) and not self._is_item(node):
                self._add_op(node)
        return FlowGraph(ops=tuple(self._ops), reads=self._reads, leaves=self._leaves)

    def _add(self, node: fx.Node, op: FlowOp) -> None:
        index = len(self._ops)
        self._ops.append(op)
        self._refs[node] = ((index, 0),)
        if op.owner is not None:
            self._leaves[op.owner] = tuple(((index, place),) for place in range(max(len(op.outputs), 1)))

    def _add_input(self, node: fx.Node, name: str) -> None:
        stage = self._inputs.get(name)
        if stage is None:
            self._refs[node] = ()
            self._nests[node] = name
        else:
            self._add(node, FlowOp(target="input", outputs=stage.outputs, owner=stage.stage_id, role="input"))

    def _add_module(self, node: fx.Node) -> None:
        path, index = self._calls[node]
        owner = self._plan.owner_of(path, index)
        stage = None if owner is None else self._stages[owner]
        outputs, target = self._observed(path, index)
        self._add(
            node,
            FlowOp(
                target=target or _snake(path.rpartition(".")[2]),
                parents=self._parents(node),
                outputs=outputs if stage is None or stage.joined else stage.outputs,
                owner=owner,
                is_weighted=True if stage is not None and stage.num_params else None,
                path=path,
                mark=self._plan.mark_of(path, index),
                changes_shape=is_resizer(target),
                is_box=True,
            ),
        )
        is_in_place = getattr(self._modules.get(str(node.target)), "inplace", False) is True
        if is_in_place and isinstance(written := _first(node), fx.Node):
            self._write(written, node)

    def _observed(self, path: str, index: int) -> tuple[tuple[TensorMeta, ...], str]:
        """Return what the metadata pass knows of a call: its outputs, and the op that made the last of them."""
        call_id = self._plan.call_ids.get((path, index))
        if call_id is None:
            return (), ""
        call = self._trace.calls[call_id]
        has_ops = call.end_op_id > call.first_op_id
        return call.outputs, self._trace.ops[call.end_op_id - 1].target if has_ops else ""

    def _add_op(self, node: fx.Node) -> None:
        path, index = self._calls[node]
        name = op_name(_target(node))
        place = self._num_seen[path, index, name]
        self._num_seen[path, index, name] += 1
        self._add(
            node,
            FlowOp(
                target=name,
                parents=self._parents(node),
                owner=self._plan.op_owner_of(path, index, name, place),
                reads_weight=node.op == "get_attr" and _num_dims(self._root, str(node.target)) > 1,
                path=path,
                mark=self._plan.mark_of(path, index),
                changes_shape=is_resizer(name),
            ),
        )
        if node.op != "get_attr" and is_view(name) and isinstance(source := _first(node), fx.Node):
            self._roots[node] = self._roots.get(source, source)
        if isinstance(written := _written(node), fx.Node):
            self._write(written, node)

    def _write(self, written: fx.Node, node: fx.Node) -> None:
        """Note that ``node`` wrote a tensor: whoever reads it from now on, or a view of the same bytes, reads this."""
        root = self._roots.get(written, written)
        for other, refs in tuple(self._refs.items()):
            if other is not written and other is not node and self._roots.get(other, other) is root:
                self._refs[other] = union(refs, self._refs[node])
        self._refs[written] = self._refs[node]
        self._roots[node] = root

    def _is_size(self, node: fx.Node) -> bool:
        """Return whether a node yields sizes and types or is made of such, and so carries no values."""
        sources = node.all_input_nodes
        is_size = (node.op == "call_method" and node.target in SIZE_METHODS) or (
            node.op == "call_function" and node.target is getattr and node.args[1] in SIZE_ATTRIBUTES
        )
        if is_size or (sources and not any(self._refs[source] or source in self._nests for source in sources)):
            self._refs[node] = ()
            return True
        return False

    def _is_item(self, node: fx.Node) -> bool:
        """Return whether a node takes one tensor out of a nest of inputs or out of what a module returned."""
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node) or op_name(_target(node)) not in ("getitem", "getattr"):
            return False
        key = node.args[1]
        if source in self._nests:
            self._add_input(node, self._nests[source] + (f"[{key}]" if isinstance(key, int) else f".{key}"))
            return True
        refs = self._refs[source]
        outputs = self._ops[refs[0][0]].outputs if len(refs) == 1 else ()
        if source.op == "call_module" and isinstance(key, int) and -len(outputs) <= key < len(outputs) > 1:
            self._refs[node] = ((refs[0][0], key % len(outputs)),)
            return True
        return False

    def _parents(self, node: fx.Node) -> tuple[ValueRef, ...]:
        sources = list(node.all_input_nodes)
        if lends := lender(op_name(_target(node))):
            sources = sources[1:] if lends == "first" else sources[:1]
        return tuple(dict.fromkeys(ref for source in sources for ref in self._refs[source]))

    def _add_outputs(self, value: Any) -> None:
        nodes = list(_nodes_in(value))
        num_leaves = len(self._trace.outputs)
        if len(nodes) not in (1, num_leaves):
            raise TopologyUnavailable(f"the trace returns {len(nodes)} values, not {num_leaves}")
        for stage in self._stages.values():
            if stage.kind == "output":
                node = nodes[stage.index if len(nodes) == num_leaves else 0]
                self._reads[stage.stage_id] = self._refs[node]


def _nodes_in(value: Any) -> Iterator[fx.Node]:
    if isinstance(value, fx.Node):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _nodes_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _nodes_in(item)


def _target(node: fx.Node) -> str:
    if isinstance(node.target, str):
        return node.target
    name = resolve_name(node.target) or getattr(node.target, "__name__", "")
    return name if name and "<" not in name else re.sub(r"_\d+$", "", node.name)


def _first(node: fx.Node) -> Any:
    return node.args[0] if node.args else None


def _written(node: fx.Node) -> Any:
    """Return the node whose tensor an op writes in place, or None."""
    if node.kwargs.get("out") is not None:
        return node.kwargs["out"]
    if node.op == "get_attr":
        return None
    name = str(node.target if isinstance(node.target, str) else getattr(node.target, "__name__", ""))
    is_method = name.endswith("_") and not name.endswith("__")
    is_operator = node.op == "call_function" and getattr(operator, name, None) is node.target and name in IN_PLACE
    return _first(node) if is_method or is_operator or node.kwargs.get("inplace") is True else None


def _num_dims(root: nn.Module, path: str) -> int:
    value: Any = root
    for part in path.split("."):
        value = getattr(value, part, None)
    return value.dim() if isinstance(value, torch.Tensor) else 0


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
