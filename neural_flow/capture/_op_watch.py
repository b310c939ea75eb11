"""Find the ops that are drawn as cards while they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from neural_flow.capture._functions import is_in_place, short_name, target_name
from neural_flow.capture._plan import OpKey
from neural_flow.capture._writes import collect_tensors, versions_of
from neural_flow.module_calls import ModuleCallStack
from neural_flow.records import Stage


class OpWatch(TorchFunctionMode):
    """Call ``on_output(stage, tensors)`` for each op that shows a stage: the n-th of its target in its call.

    Calls that changed nothing (a cast to the same dtype) are not counted: the metadata pass recorded none either.
    Functions that ``on_output`` runs are not seen.

    Args:
        stack: follows the calls of the model; entered by the caller.
        plan: what to look for.
        on_output: gets the stage and the tensors that the op returned.
        on_start: gets the stage before the op runs.
    """

    def __init__(
        self,
        stack: ModuleCallStack,
        plan: Mapping[OpKey, Mapping[int, Stage]],
        on_output: Callable[[Stage, Sequence[torch.Tensor]], object],
        on_start: Callable[[Stage], object] | None = None,
    ) -> None:
        super().__init__()
        self.current: Stage | None = None
        self._stack = stack
        self._plan = plan
        self._on_output = on_output
        self._on_start = on_start
        self._num_seen: dict[OpKey, int] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run ``func`` and hand on its result if it shows a stage."""
        kwargs = kwargs or {}
        frame = self._stack.current
        key = (-1 if frame is None else frame.call_id, target_name(func))
        stages = self._plan.get(key)
        if stages is None:
            return func(*args, **kwargs)
        index = self._num_seen.get(key, 0)
        leaves = collect_tensors((*args, *kwargs.values()), [])
        versions = versions_of(leaves)
        self.current = stages.get(index)
        if self.current is not None and self._on_start is not None:
            self._on_start(self.current)
        try:
            result = func(*args, **kwargs)
        finally:
            self.current = None
        tensors = collect_tensors((result,), [])
        is_write = is_in_place(short_name(func)) if versions is None else versions_of(leaves) != versions
        if not is_write and all(any(out is leaf for leaf in leaves) for out in tensors):
            return result  # it changed nothing, so the metadata pass recorded nothing
        self._num_seen[key] = index + 1
        stage = stages.get(index)
        shown = tensors or leaves[:1]
        if stage is not None and shown:
            self._on_output(stage, shown)
        return result
