"""Traces made by hand: modules that call each other and ops that read values, without running anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from neural_flow.records import Failure, Leaf, ModuleCall, ModuleInfo, OpNode, ParamInfo, TensorMeta, Trace

Value = tuple[int, int]


@dataclass
class _Module:
    class_name: str
    own: list[int] = field(default_factory=list)
    calls: int = 0


class TraceBuilder:
    """Write a trace step by step.

    ``weighted`` collects the ops that apply a matrix, ``light`` those that apply a vector, as they are written.
    """

    def __init__(self, class_name: str = "Net") -> None:
        self._class_name = class_name
        self._ops: list[OpNode] = []
        self._calls: list[ModuleCall] = []
        self._stack: list[int] = []
        self._modules: dict[str, _Module] = {}
        self._params: list[ParamInfo] = []
        self._param_ids: dict[str, int] = {}
        self._inputs: list[Leaf] = []
        self.weighted: list[int] = []

    def input(self, name: str, shape: tuple[int, ...] = (1, 8), dtype: str = "float32") -> Value:
        value = self._op(name, (), (), shape, dtype, role="input")
        self._inputs.append(Leaf(name=name, meta=TensorMeta(shape=shape, dtype=dtype), refs=(value,)))
        return value

    def op(self, target: str, *parents: Value, shape: tuple[int, ...] = (1, 8), dtype: str = "float32") -> Value:
        return self._op(target, parents, (), shape, dtype)

    def linear(self, x: Value, width: int = 8, name: str = "weight") -> Value:
        """Apply a matrix that the running module owns."""
        shape = self._ops[x[0]].outputs[x[1]].shape
        params = (self._param(name, (width, shape[-1])), self._param(name + "_bias", (width,)))
        value = self._op("torch.nn.functional.linear", (x,), params, (*shape[:-1], width))
        self.weighted.append(value[0])
        return value

    def norm(self, x: Value) -> Value:
        """Apply a scale that the running module owns."""
        shape = self._ops[x[0]].outputs[x[1]].shape
        return self._op("torch.nn.functional.layer_norm", (x,), (self._param("scale", (shape[-1],)),), shape)

    @contextmanager
    def call(self, path: str, class_name: str, *inputs: Value) -> Iterator[list[Value]]:
        """Run a module; the list that is yielded takes its outputs."""
        module = self._modules.setdefault(path, _Module(class_name))
        call_id = len(self._calls)
        call = ModuleCall(
            call_id=call_id, path=path, call_index=module.calls, class_name=class_name,
            parent_id=self._stack[-1] if self._stack else None, inputs=tuple(self._meta(v) for v in inputs),
            input_refs=tuple((v,) for v in inputs), first_op_id=len(self._ops), has_returned=False,
        )  # fmt: skip
        module.calls += 1
        self._calls.append(call)
        self._stack.append(call_id)
        outputs: list[Value] = []
        yield outputs
        self._stack.pop()
        self._end(call_id, outputs, has_returned=True)

    def leaf(self, path: str, kind: str, x: Value, width: int = 8) -> Value:
        """Run a module that is one layer: Linear, Norm or Act."""
        with self.call(path, kind, x) as out:
            out.append(
                self.linear(x, width)
                if kind == "Linear"
                else self.norm(x)
                if kind == "Norm"
                else self.op("torch.relu", x, shape=self._meta(x).shape)
            )
        return out[0]

    def finish(self, *outputs: Value, failure: Failure | None = None, has_dataflow: bool = True) -> Trace:
        """Return the trace. The root must have been called with path ``""``."""
        for call_id in reversed(self._stack):
            self._end(call_id, [], has_returned=False)
        leaves = tuple(
            Leaf(name="output" if len(outputs) == 1 else f"output[{k}]", meta=self._meta(v), refs=(v,))
            for k, v in enumerate(outputs)
        )
        trace = Trace(
            model_name=self._class_name, class_name=self._class_name, params=tuple(self._params),
            modules=tuple(self._infos()), calls=tuple(self._calls), ops=tuple(self._ops), inputs=tuple(self._inputs),
            outputs=leaves, failure=failure, has_dataflow=has_dataflow,
        )  # fmt: skip
        return trace if has_dataflow else without_dataflow(trace)

    def _op(self, target, parents, params, shape, dtype="float32", role="op") -> Value:
        op_id = len(self._ops)
        owner = self._stack[-1] if self._stack else None
        self._ops.append(
            OpNode(
                op_id=op_id, target=target, parents=tuple(dict.fromkeys(parents)), params=params,
                outputs=(TensorMeta(shape=shape, dtype=dtype),), call_id=owner, role=role,
            )
        )  # fmt: skip
        return op_id, 0

    def _param(self, name: str, shape: tuple[int, ...]) -> int:
        path = self._calls[self._stack[-1]].path
        full = f"{path}.{name}" if path else name
        if full not in self._param_ids:
            self._param_ids[full] = len(self._params)
            size = 1
            for n in shape:
                size *= n
            self._params.append(
                ParamInfo(
                    param_id=len(self._params),
                    names=(full,),
                    shape=shape,
                    dtype="float32",
                    nbytes=4 * size,
                    requires_grad=True,
                )
            )
            self._modules[path].own.append(self._param_ids[full])
        return self._param_ids[full]

    def _end(self, call_id: int, outputs: list[Value], *, has_returned: bool) -> None:
        self._calls[call_id] = replace(
            self._calls[call_id], end_op_id=len(self._ops), outputs=tuple(self._meta(v) for v in outputs),
            output_refs=tuple((v,) for v in outputs), has_returned=has_returned,
        )  # fmt: skip

    def _meta(self, value: Value) -> TensorMeta:
        return self._ops[value[0]].outputs[value[1]]

    def _infos(self) -> Iterator[ModuleInfo]:
        under: dict[str, set[int]] = {path: set() for path in self._modules}
        for path, module in self._modules.items():
            parts = path.split(".") if path else []
            for size in range(len(parts) + 1):
                holder = ".".join(parts[:size])
                if holder in under:
                    under[holder].update(module.own)
        for path, module in self._modules.items():
            ids = tuple(sorted(under[path]))
            is_plain = module.class_name == "Sequential"
            params = [self._params[k] for k in ids]
            yield ModuleInfo(
                path=path, class_name=module.class_name, own_param_ids=tuple(module.own), param_ids=ids,
                qualified_name="torch.nn.modules.container.Sequential" if is_plain else f"nets.{module.class_name}",
                num_params=sum(p.numel for p in params), param_nbytes=sum(p.nbytes for p in params),
            )  # fmt: skip


def without_dataflow(trace: Trace) -> Trace:
    """Return what a run without the tracer leaves of a trace: calls and their shapes."""
    calls = tuple(replace(call, input_refs=(), output_refs=(), first_op_id=0, end_op_id=0) for call in trace.calls)
    return replace(
        trace, calls=calls, ops=(), has_dataflow=False, inputs=tuple(replace(leaf, refs=()) for leaf in trace.inputs),
        outputs=tuple(replace(leaf, refs=()) for leaf in trace.outputs),
    )  # fmt: skip
