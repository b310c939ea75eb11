"""One module call while it is followed, and where among the calls an exception came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from neural_flow.capture._frames import is_library_file
from neural_flow.capture._metas import RawMeta, finished_meta
from neural_flow.capture._model_info import class_name
from neural_flow.capture._storage_log import Refs
from neural_flow.errors import causes_of
from neural_flow.module_calls import CallFrame
from neural_flow.nested import tensor_leaves
from neural_flow.records import Failure, ModuleCall


class FollowedCall:
    """One module call while it is being followed; a plain class, because one is made for every call.

    Args:
        frame: the call on the stack.
        has_kwargs: whether its keyword arguments were seen when it was entered.
    """

    __slots__ = (
        "end_op_id", "first_op_id", "frame", "has_kwargs", "has_returned", "input_refs", "inputs", "output_refs",
        "outputs", "parent_id",
    )  # fmt: skip

    def __init__(self, frame: CallFrame, *, has_kwargs: bool) -> None:
        parent = frame.parent
        self.frame = frame
        self.parent_id = None if parent is None else parent.call_id
        self.first_op_id = 0
        self.end_op_id: int | None = None
        self.has_kwargs = has_kwargs
        self.has_returned = False
        self.inputs: list[RawMeta] = []
        self.input_refs: list[Refs] = []
        self.outputs: list[RawMeta] = []
        self.output_refs: list[Refs] = []

    def finished(self, num_ops: int) -> ModuleCall:
        """Return the record of this call; one that never ended took all ``num_ops`` ops."""
        return ModuleCall(
            call_id=self.frame.call_id,
            path=self.frame.path,
            call_index=self.frame.call_index,
            class_name=class_name(self.frame.module),
            parent_id=self.parent_id,
            inputs=tuple([finished_meta(raw) for raw in self.inputs]),
            outputs=tuple([finished_meta(raw) for raw in self.outputs]),
            input_refs=tuple(self.input_refs),
            output_refs=tuple(self.output_refs),
            first_op_id=self.first_op_id,
            end_op_id=num_ops if self.end_op_id is None else self.end_op_id,
            has_returned=self.has_returned,
        )


def tensors_in(values: tuple[Any, ...]) -> list[torch.Tensor]:
    """Return the tensor leaves of ``values``, in order."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif value is not None:
            found += [leaf for _, leaf in tensor_leaves(value)]
    return found


def failure_of(
    error: BaseException, raised: Sequence[tuple[BaseException, int]], calls: Sequence[FollowedCall]
) -> Failure:
    """Return where the model raised: the innermost call that ``error``, or what it was raised from, came through.

    Args:
        error: the exception that left the model.
        raised: each exception that left a call, with the id of the innermost such call.
        calls: all calls.
    """
    chain = causes_of(error)
    call_id = next((call_id for known, call_id in raised if any(known is one for one in chain)), 0)
    call = calls[call_id] if calls else None
    return Failure(
        module="" if call is None else call.frame.path,
        call=0 if call is None else call.frame.call_index,
        call_id=None if call is None else call.frame.call_id,
        type=type(error).__name__,
        message=str(error),
        inputs=() if call is None else tuple(finished_meta(raw) for raw in call.inputs),
        location=_raised_at(error),
    )


def _raised_at(error: BaseException) -> str | None:
    place = None
    trace = error.__traceback__
    while trace is not None:
        if not is_library_file(trace.tb_frame.f_code.co_filename):
            place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
