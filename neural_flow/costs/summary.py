"""The summary of a model: its modules as a tree, with shapes, parameters, and what each of them costs."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

from torch import nn

from neural_flow.capture.measure._base import MeasureOptions
from neural_flow.costs._calls import CALL_MEASURES
from neural_flow.errors import UnknownNameError
from neural_flow.nested import tensor_leaves
from neural_flow.options import as_arguments
from neural_flow.pipeline import observe
from neural_flow.records import ModelInfo, ModuleCall, ModuleInfo, TensorMeta, Trace

COLUMNS = ("flops", "saved", "time")


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRow:
    """One module of the tree; numbers are over its whole subtree and all of its calls.

    Attributes:
        path: ``""`` is the model itself.
        depth: 0 for the model itself.
        class_name: its class.
        num_calls: how often it ran; 0 where it did not.
        inputs: what its first call was given.
        outputs: what its first call returned.
        num_params: distinct parameters of the subtree.
        num_own_params: those that the module holds itself.
        num_shared_params: parameters among them that an earlier row outside of this branch has counted.
        num_trainable_params: those that require a gradient.
        param_nbytes: bytes of the distinct parameters.
        flops: floating-point operations of its calls; None where not measured.
        activation_nbytes: bytes that its calls returned.
        saved_nbytes: bytes that its calls save for backward, in training mode; None where not measured.
        seconds: wall-clock time of its calls; None where not measured.
    """

    path: str
    depth: int
    class_name: str
    num_calls: int = 0
    inputs: tuple[TensorMeta, ...] = ()
    outputs: tuple[TensorMeta, ...] = ()
    num_params: int = 0
    num_own_params: int = 0
    num_shared_params: int = 0
    num_trainable_params: int = 0
    param_nbytes: int = 0
    flops: float | None = None
    activation_nbytes: int = 0
    saved_nbytes: float | None = None
    seconds: float | None = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryTable:
    """The tree in the order of the modules, and the totals of the model.

    Attributes:
        model: totals; each distinct parameter counts once.
        rows: parents before their children; the first row is the model itself.
        num_loose_params: parameters that no module that ran holds, and those that modules with children hold.
        notes: what was left out, and why.
    """

    model: ModelInfo
    rows: tuple[SummaryRow, ...]
    num_loose_params: int = 0
    notes: tuple[str, ...] = ()


def summary_table(
    model: nn.Module,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    depth: int | None = None,
    columns: Iterable[str] = COLUMNS,
    train: bool = False,
    **options: Any,
) -> SummaryTable:
    """Return the tree of modules with what each of them costs.

    The model runs once to be looked at, once for each of FLOPs and saved bytes, and four times for time; it is left bit
    for bit as it was.

    Args:
        model: any module.
        args: a tuple of positional arguments; anything else is the one argument.
        kwargs: keyword arguments of forward.
        depth: number of levels below the model; None shows all.
        columns: which measurements to make: any of ``flops``, ``saved``, ``time``.
        train: whether shapes, FLOPs and time are those of training mode.
        options: further options of ``render``: ``seed``, ...

    Raises:
        ForwardError: the model raised.
        UnknownNameError: there is no such measurement.
    """
    call = (as_arguments(args), dict(kwargs or {}))
    for name in columns:
        if name not in CALL_MEASURES:
            raise UnknownNameError("measurement", name, CALL_MEASURES)
    found, topology = observe(model, *call, train=train, **options)
    shown = [info for info in found.modules if depth is None or _depth(info.path) <= depth]
    asked = MeasureOptions(trace=found, train=train or None, seed=options.get("seed"))
    notes: list[str] = []
    costs: dict[str, dict[str, float]] = {}
    for name in columns:
        if name == "time" and _is_on_meta(model, call):
            notes.append("time was not measured: nothing is computed on meta")
            continue
        try:
            with redirect_stdout(io.StringIO()):  # what the model prints has been seen once
                costs[name] = CALL_MEASURES[name](model, *call, asked)
        except Exception as error:  # a summary without this column is worth having
            notes.append(f"{name} was not measured: {type(error).__name__}: {error}")
    return SummaryTable(
        model=topology.model,
        rows=_rows(found, shown, costs),
        num_loose_params=_num_loose(found),
        notes=tuple(notes),
    )


def _rows(found: Trace, shown: list[ModuleInfo], costs: Mapping[str, Mapping[str, float]]) -> tuple[SummaryRow, ...]:
    calls: dict[str, list[ModuleCall]] = {}
    for call in found.calls:
        calls.setdefault(call.path, []).append(call)
    sizes = {param.param_id: param.numel for param in found.params}
    first_paths: dict[int, str] = {}
    rows: list[SummaryRow] = []
    for info in shown:
        own_calls = calls.get(info.path, [])
        shared = [
            param_id
            for param_id in info.param_ids
            if param_id in first_paths and not _is_related(first_paths[param_id], info.path)
        ]
        for param_id in info.own_param_ids:
            first_paths.setdefault(param_id, info.path)
        rows.append(
            SummaryRow(
                path=info.path,
                depth=_depth(info.path),
                class_name=info.class_name,
                num_calls=len(own_calls),
                inputs=own_calls[0].inputs if own_calls else (),
                outputs=own_calls[0].outputs if own_calls else (),
                num_params=info.num_params,
                num_own_params=sum(sizes[param_id] for param_id in info.own_param_ids),
                num_shared_params=sum(sizes[param_id] for param_id in shared),
                num_trainable_params=info.num_trainable_params,
                param_nbytes=info.param_nbytes,
                activation_nbytes=sum(meta.nbytes for call in own_calls for meta in call.outputs),
                flops=_cost_of(info.path, costs.get("flops"), calls),
                saved_nbytes=_cost_of(info.path, costs.get("saved"), calls),
                seconds=_cost_of(info.path, costs.get("time"), calls),
            )
        )
    return tuple(rows)


def _cost_of(path: str, cost: Mapping[str, float] | None, calls: Mapping[str, object]) -> float | None:
    """Return the cost of a module; of a container that never runs, that of the outermost modules in it that do."""
    if not cost:
        return None
    if path in calls:
        return cost.get(path)
    inner = [one for one in cost if one.startswith(f"{path}.") or not path]
    outermost = [one for one in inner if not any(one.startswith(f"{other}.") for other in inner)]
    return sum(cost[one] for one in outermost) if outermost else None


def _is_on_meta(model: nn.Module, call: tuple[tuple[Any, ...], dict[str, Any]]) -> bool:
    tensors = (*model.parameters(), *model.buffers(), *(tensor for _, tensor in tensor_leaves(call)))
    return any(tensor.device.type == "meta" for tensor in tensors)


def _is_related(one: str, other: str) -> bool:
    """Return whether one path lies on the way to the other."""
    return one == other or not one or not other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _num_loose(found: Trace) -> int:
    """Return the number of parameters that lie in no row of their own: beside children, or in what never ran."""
    sizes = {param.param_id: param.numel for param in found.params}
    called = {call.path for call in found.calls}
    held = {
        param_id
        for info in found.modules
        if info.path in called and not info.child_paths
        for param_id in info.own_param_ids
    }
    return sum(size for param_id, size in sizes.items() if param_id not in held)


def _depth(path: str) -> int:
    return path.count(".") + 1 if path else 0
