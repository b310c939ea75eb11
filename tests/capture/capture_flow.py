"""Models and questions that the tests of the tracers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from neural_flow.capture.metadata import run_metadata_pass
from neural_flow.records import Trace

SIZE = 8


def trace_of(model: nn.Module, *args: Any, **kwargs: Any) -> Trace:
    trace = run_metadata_pass(model, args, kwargs)
    assert trace.failure is None, trace.failure
    assert trace.has_dataflow
    check_consistent(trace)
    return trace


def check_consistent(trace: Trace) -> None:
    """What holds for every trace, whatever the model."""
    for op_id, op in enumerate(trace.ops):
        assert op.op_id == op_id
        assert all(parent < op_id and index < len(trace.ops[parent].outputs) for parent, index in op.parents)
    for call_id, call in enumerate(trace.calls):
        assert call.call_id == call_id
        assert len(call.inputs) == len(call.input_refs)
        assert len(call.outputs) == len(call.output_refs)
        inside = {call.call_id}
        for other in trace.calls[call_id + 1 :]:
            if other.parent_id in inside:
                inside.add(other.call_id)
        owned = {op.op_id for op in trace.ops if op.call_id in inside}
        assert owned == set(range(call.first_op_id, call.end_op_id))


def reaches(trace: Trace, source: str, target: str) -> bool:
    """Return whether a value that a call of ``source`` returned arrives in an input of a call of ``target``."""
    outputs = {ref for call in trace.calls if call.path == source for refs in call.output_refs for ref in refs}
    waiting = [ref for call in trace.calls if call.path == target for refs in call.input_refs for ref in refs]
    assert any(call.path == target for call in trace.calls)
    seen = set(waiting)
    while waiting:
        for ref in trace.ops[waiting.pop()[0]].parents:
            if ref not in seen:
                seen.add(ref)
                waiting.append(ref)
    return bool(seen & outputs)


class Between(nn.Module):
    """``first``, then a piece of code, then ``last``."""

    def __init__(self, code: Callable[..., torch.Tensor], **children: nn.Module) -> None:
        super().__init__()
        self.first = nn.Linear(SIZE, SIZE)
        self.last = nn.Linear(SIZE, SIZE)
        for name, child in children.items():
            self.add_module(name, child)
        self.code = code

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(
            self.code(self.first(x), **{name: c for name, c in self._modules.items() if name not in ("first", "last")})
        )


def rows() -> torch.Tensor:
    return torch.rand(4, SIZE) + 0.1
