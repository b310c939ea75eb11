"""Random programs of views and in-place ops, against an oracle that shares no code: NaN.

Each source module's output is poisoned in turn; what a sink reads then holds NaN exactly where a value of that
source arrived.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from neural_flow.capture.dataflow import DataflowTracer
from neural_flow.capture.dispatch import DispatchTracer
from neural_flow.capture.metadata import run_metadata_pass
from neural_flow.records import Trace

ROWS, COLUMNS, SOURCES = 4, 6, 3
BLOCKS = [(slice(r, r + 2), slice(c, c + 3)) for r in (0, 2) for c in (0, 3)]  # a partition: parts are never covered

Step = Callable[[list[torch.Tensor]], None]


class Source(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.is_poisoned = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (torch.nan if self.is_poisoned else 1 + self.number)


class Sink(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.has_nan: list[bool] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.has_nan.append(bool(x.isnan().any()))
        return x.sum()


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One step on a list of full-size tensors: ``target`` and ``other`` are positions in it."""

    kind: str
    target: int
    other: int
    place: tuple[slice, slice]

    def run(self, tensors: list[torch.Tensor], sink: Sink) -> None:
        target, other, place = tensors[self.target], tensors[self.other], self.place
        actions: dict[str, Callable[[], Any]] = {
            "assign": lambda: target.__setitem__(place, other[place]),
            "view add": lambda: target[place].add_(other[place]),
            "view copy": lambda: target[place].copy_(other[place]),
            "data copy": lambda: target.data[place].copy_(other[place]),
            "as_strided": lambda: target.as_strided(target.shape, target.stride()).mul_(2),
            "zero": lambda: target[place].zero_(),
            "zero all": lambda: target.zero_(),
            "out": lambda: torch.mul(other, 2, out=target) if target is not other else None,
            "unbind": lambda: target.unbind(0)[place[0].start].add_(1),
            "row": lambda: target.T[place[1].start].copy_(other.T[place[1].start]),
            "foreach": lambda: torch._foreach_add_([target[place]], [other[place]]),
            "add": lambda: tensors.append(target + other),
            "clone": lambda: tensors.append(target.clone()),
            "alias": lambda: tensors.append(target.view(ROWS, COLUMNS)),
            "read": lambda: sink(target[place]),
            "read all": lambda: sink(target),
        }
        actions[self.kind]()


KINDS = [
    "assign", "view add", "view copy", "data copy", "as_strided", "zero", "zero all", "out", "unbind", "row", "foreach",
    "add", "clone", "alias", "read", "read all",
]  # fmt: skip


class Program(nn.Module):
    def __init__(self, instructions: Sequence[Instruction]) -> None:
        super().__init__()
        self.sources = nn.ModuleList(Source(number) for number in range(SOURCES))
        self.sink = Sink()
        self.instructions = instructions

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tensors = [source(x) for source in self.sources] + [torch.zeros(ROWS, COLUMNS)]
        for instruction in self.instructions:
            bounded = dataclasses.replace(
                instruction, target=instruction.target % len(tensors), other=instruction.other % len(tensors)
            )
            bounded.run(tensors, self.sink)
        return self.sink(tensors[-1])


def places(is_partition: bool) -> st.SearchStrategy[tuple[slice, slice]]:
    if is_partition:
        return st.sampled_from(BLOCKS)
    rows = st.tuples(st.integers(0, ROWS - 1), st.integers(1, ROWS)).map(lambda p: slice(p[0], max(p[0] + 1, p[1])))
    columns = st.tuples(st.integers(0, COLUMNS - 1), st.integers(1, COLUMNS))
    return st.tuples(rows, columns.map(lambda p: slice(p[0], max(p[0] + 1, p[1]))))


def programs(kinds: Sequence[str], *, is_partition: bool) -> st.SearchStrategy[list[Instruction]]:
    numbers = st.integers(0, 7)
    return st.lists(
        st.builds(Instruction, st.sampled_from(kinds), numbers, numbers, places(is_partition)), min_size=1, max_size=14
    )


def poisoned_reads(program: Program, number: int) -> list[bool]:
    source = program.sources[number]
    assert isinstance(source, Source)
    program.sink.has_nan = []
    source.is_poisoned = True
    with torch.no_grad():
        program(torch.ones(ROWS, COLUMNS))
    source.is_poisoned = False
    return program.sink.has_nan


def traced_reads(trace: Trace, number: int) -> list[bool]:
    """For each call of the sink, whether its input comes from source ``number`` by any way through the ops."""
    outputs = {
        ref for call in trace.calls if call.path == f"sources.{number}" for refs in call.output_refs for ref in refs
    }
    reads: list[bool] = []
    for call in trace.calls:
        if call.path == "sink":
            seen = set(call.input_refs[0])
            waiting = list(seen)
            while waiting:
                fresh = [ref for ref in trace.ops[waiting.pop()[0]].parents if ref not in seen]
                seen.update(fresh)
                waiting += fresh
            reads.append(bool(seen & outputs))
    return reads


@given(programs(KINDS, is_partition=False))
@settings(max_examples=150, deadline=None)
def test_no_dependency_is_missed(instructions: list[Instruction]) -> None:
    program = Program(instructions)
    with torch.no_grad(), DataflowTracer(program) as tracer:
        program(torch.ones(ROWS, COLUMNS))
    assert tracer.error is None
    for number in range(SOURCES):
        real = poisoned_reads(program, number)
        traced = traced_reads(tracer.trace, number)
        assert all(there or not expected for there, expected in zip(traced, real, strict=True)), (number, real, traced)


# an op on a whole tensor makes one value of it, whatever part is read later
IN_PARTS = ["assign", "view add", "view copy", "data copy", "zero", "zero all", "foreach", "alias", "read", "read all"]


@given(programs(IN_PARTS, is_partition=True))
@settings(max_examples=150, deadline=None)
def test_no_dependency_is_invented_where_parts_do_not_cover_each_other(instructions: list[Instruction]) -> None:
    program = Program(instructions)
    with torch.no_grad(), DataflowTracer(program) as tracer:
        program(torch.ones(ROWS, COLUMNS))
    for number in range(SOURCES):
        assert traced_reads(tracer.trace, number) == poisoned_reads(program, number)


@given(programs(KINDS, is_partition=False))
@settings(max_examples=40, deadline=None)
def test_no_dependency_is_missed_below_autograd(instructions: list[Instruction]) -> None:
    program = Program(instructions)
    with torch.no_grad(), DispatchTracer(program) as tracer:
        program(torch.ones(ROWS, COLUMNS))
    assert tracer.error is None
    for number in range(SOURCES):
        real = poisoned_reads(program, number)
        traced = traced_reads(tracer.trace, number)
        assert all(there or not expected for there, expected in zip(traced, real, strict=True)), (number, real, traced)


@given(programs(KINDS, is_partition=False))
@settings(max_examples=40, deadline=None)
def test_inference_mode_misses_nothing(instructions: list[Instruction]) -> None:
    class Inferring(Program):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.inference_mode():
                return super().forward(x)

    program = Inferring(instructions)
    trace = run_metadata_pass(program, (torch.ones(ROWS, COLUMNS),))
    assert trace.has_dataflow
    for number in range(SOURCES):
        real = poisoned_reads(program, number)
        traced = traced_reads(trace, number)
        assert all(there or not expected for there, expected in zip(traced, real, strict=True)), (number, real, traced)
