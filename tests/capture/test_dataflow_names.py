"""What the tensors that enter and leave a model are called."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from capture_flow import rows, trace_of
from torch import nn

pytestmark = pytest.mark.usefixtures("nothing_left")


@dataclasses.dataclass
class _Box:
    value: torch.Tensor
    label: str = ""


def test_inputs_and_outputs_have_names() -> None:
    class Named(nn.Module):
        def forward(
            self, x: torch.Tensor, pair: Any, *rest: torch.Tensor, mask: Any = None, extra: Any = None, **more: Any
        ) -> OrderedDict[str, Any]:
            return OrderedDict(logits=x + pair[0], parts=(x * 2, {"deep": rest[0]}), none=None, text="t")

    x = rows()
    model = Named()
    trace = trace_of(model, x, [x, 3, "s"], x * 1, extra={"emb": x * 2}, late=x * 3)
    assert [leaf.name for leaf in trace.inputs] == ["x", "pair[0]", "rest[0]", "extra.emb", "more.late"]
    assert [leaf.name for leaf in trace.outputs] == ["logits", "parts[0]", "parts[1].deep"]
    assert trace.inputs[0].refs != trace.inputs[1].refs
    add = next(op for op in trace.ops if op.target == "torch.Tensor.add")
    assert set(add.parents) == {*trace.inputs[0].refs, *trace.inputs[1].refs}


@pytest.mark.parametrize(
    ("output", "names"),
    [
        (lambda x: x * 1, ["output"]),
        (lambda x: (x * 1, None, [x * 2]), ["output[0]", "output[2][0]"]),
        (lambda x: (x * 1, ()), ["output[0]"]),
        (lambda x: [x * 1, 5, "s"], ["output[0]"]),
        (lambda x: _Box(x * 1), ["value"]),
        (lambda x: {1: x * 1}, ["1"]),
    ],
)
def test_outputs_of_any_nest(output: Callable[[torch.Tensor], Any], names: list[str]) -> None:
    class Root(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return output(x)

    assert [leaf.name for leaf in trace_of(Root(), rows()).outputs] == names


def test_repeated_outputs_are_leaves_of_their_own() -> None:
    class Root(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            y = x * 2
            return [y, y, x, x]

    trace = trace_of(Root(), rows())
    refs = [leaf.refs for leaf in trace.outputs]
    assert refs[0] == refs[1]
    assert refs[2] == refs[3]
    assert trace.ops[refs[2][0][0]].role == "alias"
