"""Traces written by hand, stages chosen by path, and edges as rows that a test can be read against."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from neural_flow.records import (
    EdgeMark,
    Leaf,
    ModuleCall,
    ModuleInfo,
    OpNode,
    OpRole,
    ParamInfo,
    Selection,
    Stage,
    TensorMeta,
    Topology,
    Trace,
    ValueRef,
)


class TraceDraft:
    """A trace under construction: inputs, calls as contexts, ops; each returns a value."""

    def __init__(self) -> None:
        self.ops: list[OpNode] = []
        self.calls: list[ModuleCall] = [ModuleCall(call_id=0, path="", call_index=0, class_name="Net", parent_id=None)]
        self.params: list[ParamInfo] = []
        self.inputs: list[Leaf] = []
        self.outputs: list[Leaf] = []
        self._stack = [0]

    def input(self, name: str, shape: tuple[int, ...] = (1, 4), dtype: str = "float32") -> ValueRef:
        value = self.op("input", shape=shape, dtype=dtype, role="input", call_id=None)
        self.inputs.append(Leaf(name=name, meta=self.meta(value), refs=(value,)))
        return value

    def op(
        self,
        target: str,
        *parents: ValueRef,
        shape: tuple[int, ...] | None = None,
        dtype: str = "float32",
        weight: bool = False,
        role: OpRole = "op",
        num_outputs: int = 1,
        call_id: int | None = -1,
    ) -> ValueRef:
        index = len(self.ops)
        if weight:
            self.params.append(
                ParamInfo(
                    param_id=len(self.params),
                    names=("w",),
                    shape=(2, 2),
                    dtype="float32",
                    nbytes=16,
                    requires_grad=True,
                )
            )
        if shape is None:
            shape = self.meta(parents[0]).shape if parents else (1, 4)
        self.ops.append(
            OpNode(
                op_id=index,
                target=target,
                parents=parents,
                params=(len(self.params) - 1,) if weight else (),
                outputs=(TensorMeta(shape=shape, dtype=dtype),) * num_outputs,
                call_id=self._stack[-1] if call_id == -1 else call_id,
                role=role,
            )
        )
        return index, 0

    def meta(self, value: ValueRef) -> TensorMeta:
        return self.ops[value[0]].outputs[value[1]]

    @contextmanager
    def call(self, path: str, *inputs: ValueRef, class_name: str = "Block") -> Iterator[list[ValueRef]]:
        """Run ops inside a call; put its output values into the list."""
        call_id, first = len(self.calls), len(self.ops)
        index = sum(call.path == path for call in self.calls)
        self.calls.append(
            ModuleCall(call_id=call_id, path=path, call_index=index, class_name=class_name, parent_id=self._stack[-1])
        )
        self._stack.append(call_id)
        outputs: list[ValueRef] = []
        yield outputs
        self._stack.pop()
        self.calls[call_id] = ModuleCall(
            call_id=call_id,
            path=path,
            call_index=index,
            class_name=class_name,
            parent_id=self._stack[-1],
            inputs=tuple(self.meta(value) for value in inputs),
            outputs=tuple(self.meta(value) for value in outputs),
            input_refs=tuple((value,) for value in inputs),
            output_refs=tuple((value,) for value in outputs),
            first_op_id=first,
            end_op_id=len(self.ops),
        )

    def layer(
        self, path: str, *inputs: ValueRef, target: str = "conv2d", shape: tuple[int, ...] | None = None
    ) -> ValueRef:
        """Run a module of one weighted op."""
        with self.call(path, *inputs, class_name="Conv2d") as outputs:
            outputs.append(self.op(target, *inputs, shape=shape, weight=True))
        return outputs[0]

    def output(self, value: ValueRef, name: str = "output") -> None:
        self.outputs.append(Leaf(name=name, meta=self.meta(value), refs=(value,)))

    def trace(self, **changes: Any) -> Trace:
        paths = dict.fromkeys(call.path for call in self.calls)
        return Trace(
            **{
                "model_name": "Net",
                "class_name": "Net",
                "params": tuple(self.params),
                "modules": tuple(ModuleInfo(path=path, class_name="M", qualified_name="M") for path in paths),
                "calls": tuple(self.calls),
                "ops": tuple(self.ops),
                "inputs": tuple(self.inputs),
                "outputs": tuple(self.outputs),
                **changes,
            }
        )


def choose(
    trace: Trace,
    wanted: Callable[[ModuleCall], bool] | Sequence[str],
    *,
    ops: Sequence[int] = (),
    joined: dict[int, tuple[int, ...]] | None = None,
    marks: tuple[EdgeMark, ...] = (),
) -> Selection:
    """Return the selection of all calls whose path is wanted, in execution order, and of some ops."""
    is_wanted = wanted if callable(wanted) else lambda call: call.path in wanted
    joined = joined or {}
    hidden = {call_id for ids in joined.values() for call_id in ids}
    chosen = [
        (call.first_op_id, call.call_id, None) for call in trace.calls if is_wanted(call) and call.call_id not in hidden
    ]
    stages = [
        Stage(stage_id=k, kind="input", name=leaf.name, label=leaf.name, index=k, outputs=(leaf.meta,))
        for k, leaf in enumerate(trace.inputs)
    ]
    for _, call_id, op_id in sorted([*chosen, *((op, -1, op) for op in ops)], key=lambda item: (item[0], item[1])):
        if op_id is not None:
            op = trace.ops[op_id]
            stages.append(
                Stage(
                    stage_id=len(stages),
                    kind="op",
                    name=op.target,
                    label=op.target,
                    class_name=op.target,
                    call_id=op.call_id,
                    op_id=op_id,
                    outputs=op.outputs,
                    path=trace.calls[op.call_id or 0].path,
                )
            )
            continue
        call = trace.calls[call_id]
        last = trace.calls[joined[call_id][-1]] if call_id in joined else call
        name = call.path + (f"#{call.call_index}" if call.call_index else "")
        stages.append(
            Stage(
                stage_id=len(stages),
                kind="module",
                name=name,
                label=name,
                class_name=call.class_name,
                path=call.path,
                call_id=call_id,
                call_index=call.call_index,
                joined=joined.get(call_id, ()),
                inputs=call.inputs,
                outputs=last.outputs,
            )
        )
    for k, leaf in enumerate(trace.outputs):
        stages.append(
            Stage(
                stage_id=len(stages),
                kind="output",
                name=leaf.name,
                label=leaf.name,
                index=k,
                inputs=(leaf.meta,),
                outputs=(leaf.meta,),
            )
        )
    return Selection(stages=tuple(stages), marks=marks)


def rows(topology: Topology, *fields: str) -> set[tuple[Any, ...]]:
    """Return edges as (source name, target name, chosen fields)."""
    names = {stage.stage_id: stage.name for stage in topology.stages}
    return {
        (names[edge.source], names[edge.target], *(getattr(edge, field) for field in fields)) for edge in topology.edges
    }


@pytest.fixture(name="TraceDraft")
def _draft() -> type[TraceDraft]:
    return TraceDraft


@pytest.fixture(name="choose")
def _choose() -> Callable[..., Selection]:
    return choose


@pytest.fixture(name="rows")
def _rows() -> Callable[..., set[tuple[Any, ...]]]:
    return rows
