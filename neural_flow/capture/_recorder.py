"""Turn intercepted torch functions into small integer records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any

import torch

from neural_flow.capture._frames import location_text, user_frame, user_place
from neural_flow.capture._functions import OVERWRITES, UPDATES_ASIDE, is_in_place, num_lenders, target_name
from neural_flow.capture._metas import RawMeta, finished_meta, raw_meta
from neural_flow.capture._storage_log import Refs
from neural_flow.capture._values import ValueTable
from neural_flow.records import OpNode, OpRole, ValueRef

Tensors = list[torch.Tensor]
_Place = tuple[CodeType, int] | None
_RawOp = tuple[Callable[..., Any] | str, Refs, tuple[int, ...], list[RawMeta], int | None, OpRole, _Place]

_BASIC_INDEX = (int, slice, type(None), type(Ellipsis))


def collect_tensors(items: Iterable[Any], found: Tensors) -> Tensors:
    """Append every tensor among the arguments of a torch function to ``found``, in order, and return it."""
    for item in items:
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, list | tuple):
            collect_tensors(item, found)
        elif isinstance(item, dict):
            collect_tensors(item.values(), found)
    return found


def versions_of(tensors: Tensors) -> list[int] | None:
    """Return the version counters of ``tensors``, or None where one of them has none (inference tensors)."""
    try:
        return [tensor._version for tensor in tensors]
    except RuntimeError:
        return None


class Recorder:
    """Record ops and keep the table of values up to date.

    Args:
        values: which op made the value in each tensor.
    """

    def __init__(self, values: ValueTable) -> None:
        self.values = values
        self.call_id: int | None = None
        self.ops: list[_RawOp] = []
        self.has_unknown = False
        self.has_opaque = False

    # -- one op ----------------------------------------------------------------------------------------------------

    def record(
        self,
        func: Callable[..., Any],
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: Tensors,
        versions: list[int] | None,
        result: Any,
    ) -> None:
        """Record one call of a torch function that has returned.

        Args:
            func: the function.
            name: its bare name.
            args: its positional arguments.
            kwargs: its keyword arguments.
            leaves: all tensors among the arguments.
            versions: their version counters before the call, or None where there are none.
            result: what it returned.
        """
        written = _written(name, args, kwargs, leaves, versions)
        outputs = [result] if isinstance(result, torch.Tensor) else collect_tensors((result,), [])
        if not written:
            is_tagged = self.values.is_tagged
            fresh = [out for out in outputs if not is_tagged(out) and not _is_among(out, leaves)]
            if fresh:
                self._record_pure(func, name, args, kwargs, leaves, fresh)
            return
        self._record_write(func, name, args, kwargs, written, outputs)

    def _record_pure(
        self,
        func: Callable[..., Any],
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: Tensors,
        fresh: Tensors,
    ) -> None:
        first, last = num_lenders(name)
        if last:
            leaves = collect_tensors((*args[:first], *args[last:], *kwargs.values()), [])
        view = fresh[0] if len(fresh) == 1 else None
        op_id = self.add(func, *self.sources(leaves, view), fresh)
        for index, out in enumerate(fresh):
            self.values.tag(out, ((op_id, index),), op_id)

    def _record_write(
        self,
        func: Callable[..., Any],
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        written: Tensors,
        outputs: Tensors,
    ) -> None:
        part = _assigned_part(args) if name == "__setitem__" else None
        if name in OVERWRITES and (name != "__setitem__" or part is not None):
            leaves = collect_tensors((*args[1:], *(v for k, v in kwargs.items() if k not in ("self", "tensor"))), [])
        elif name in UPDATES_ASIDE:
            leaves = [leaf for leaf in collect_tensors((*args, *kwargs.values()), []) if not _is_among(leaf, written)]
        else:
            leaves = collect_tensors((*args, *(v for k, v in kwargs.items() if k != "out")), [])
        made = [out for out in outputs if _is_among(out, written) or not self.values.is_tagged(out)]
        made += [tensor for tensor in written if not _is_among(tensor, made)]
        op_id = self.add(func, *self.sources(leaves), made if part is None else [part, *made[1:]])
        for index, out in enumerate(made):
            refs = ((op_id, index),)
            is_write = _is_among(out, written)
            if is_write and name not in ("__set__", "set_"):  # these two give the tensor other bytes, and write none
                self.values.write(out if part is None else part, refs[0], op_id)
            if part is None or not is_write:
                self.values.tag(out, refs, op_id)

    def sources(self, leaves: Tensors, view: torch.Tensor | None = None) -> tuple[Refs, tuple[int, ...]]:
        """Return the values that ``leaves`` hold, each once, and the ids of the parameters among them.

        Args:
            leaves: the tensors that an op reads.
            view: the only result of the op; of a tensor that it is a view of, only these bytes are read.
        """
        values = self.values
        parents: dict[ValueRef, None] = {}
        params: dict[int, None] = {}
        for leaf in leaves:
            refs = values.read(leaf, view)
            if refs is None:
                refs = self.add_unknown(leaf)
            elif not refs:
                param_id = values.param_of(leaf)
                if param_id is not None:
                    params[param_id] = None
                continue
            elif id(leaf) in values.param_ids:
                params[values.param_ids[id(leaf)]] = None
            for ref in refs:
                parents[ref] = None
        return tuple(parents), tuple(params)

    def read(self, tensor: torch.Tensor) -> Refs:
        """Return the values that ``tensor`` holds; a tensor that nobody saw being made gets a source of its own."""
        refs = self.values.read(tensor)
        return self.add_unknown(tensor) if refs is None else refs

    def hand_on(
        self, leaf: torch.Tensor, first_op_id: int, inputs: Callable[[], Tensors], *, can_replace: bool
    ) -> torch.Tensor:
        """Return what a call gives to its caller in place of its output leaf, so that its value is the call's own.

        A leaf that was made inside the call is handed on as it is. One that was not (an input, a parameter, a value
        kept from before) becomes the output of an ``alias`` op, on a fresh alias of the tensor; one that nobody saw
        being made, the output of an ``opaque`` op that reads all inputs.

        Args:
            leaf: one output tensor of the call.
            first_op_id: the first op of the call.
            inputs: returns the tensors among its arguments.
            can_replace: whether the output can hold another tensor object.
        """
        refs = self.values.read(leaf)
        if refs is None:
            if not _is_global(leaf):
                self.has_opaque = True
                self.add_source(leaf, "opaque", "opaque", self.sources(inputs())[0])
                return leaf
            refs = ()
        if any(op_id >= first_op_id for op_id, _ in refs):
            return leaf
        param_id = self.values.param_of(leaf)
        op_id = self.add("alias", refs, () if param_id is None else (param_id,), [leaf], "alias")
        handed = fresh_alias(leaf) if can_replace else None
        if handed is None:
            handed = leaf
            if not refs:  # a parameter or constant keeps being one for those who read it elsewhere
                return leaf
        self.values.tag(handed, ((op_id, 0),), op_id)
        return handed

    # -- making ops ------------------------------------------------------------------------------------------------

    def add(
        self,
        func: Callable[..., Any] | str,
        parents: Refs,
        params: tuple[int, ...],
        outputs: Tensors,
        role: OpRole = "op",
    ) -> int:
        """Append an op and return its id."""
        op_id = len(self.ops)
        metas = [raw_meta(out) for out in outputs]
        self.ops.append((func, parents, params, metas, self.call_id, role, user_place()))
        return op_id

    def add_source(self, tensor: torch.Tensor, role: OpRole, target: str, parents: Refs = ()) -> Refs:
        """Append an op that stands for where ``tensor`` comes from, and tag the tensor with it."""
        op_id = self.add(target, parents, (), [tensor], role)
        refs = ((op_id, 0),)
        self.values.tag(tensor, refs, op_id)
        return refs

    def add_unknown(self, tensor: torch.Tensor) -> Refs:
        """Return the source of a tensor that nobody saw being made: () for a constant of the user's program."""
        if _is_global(tensor):
            self.values.tag(tensor, (), len(self.ops))
            return ()
        self.has_unknown = True
        return self.add_source(tensor, "unknown", "unknown")

    def finished_ops(self) -> tuple[OpNode, ...]:
        """Return the records of all ops."""
        return tuple(
            OpNode(
                op_id=op_id,
                target=func if isinstance(func, str) else target_name(func),
                parents=parents,
                params=params,
                outputs=tuple([finished_meta(meta) for meta in metas]),
                call_id=call_id,
                role=role,
                location=location_text(place),
            )
            for op_id, (func, parents, params, metas, call_id, role, place) in enumerate(self.ops)
        )


def fresh_alias(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return another object with the same bytes, version counter and gradient; None where there can be none."""
    if type(tensor) is not torch.Tensor and not (type(tensor) is torch.nn.Parameter and not torch.is_grad_enabled()):
        return None
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        return None
    try:
        alias = tensor.view_as(tensor) if tensor.requires_grad and torch.is_grad_enabled() else tensor.detach()
    except (RuntimeError, NotImplementedError):
        return None
    if vars(tensor):
        vars(alias).update(vars(tensor))
    return alias


def _is_among(tensor: torch.Tensor, tensors: Tensors) -> bool:
    return any(tensor is other for other in tensors)


def _written(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: Tensors, versions: list[int] | None
) -> Tensors:
    """Return which arguments a call has written."""
    if name in ("__set__", "set_"):
        return [args[0]]
    if versions is not None:
        changed = [leaf for leaf, old in zip(leaves, versions, strict=True) if leaf._version != old]
        if not changed:
            return []
    else:
        changed = leaves
    if "out" in kwargs and kwargs["out"] is not None:
        targets = collect_tensors((kwargs["out"],), [])
    elif is_in_place(name):
        targets = collect_tensors(args[:1] or kwargs.values(), [])
    elif versions is None:
        targets = collect_tensors(args[:1], []) if kwargs.get("inplace") is True else []
    else:
        targets = changed  # a view and its base share one counter, so names tell more where they tell anything
    unique: Tensors = []
    for target in targets:
        if _is_among(target, changed) and not _is_among(target, unique):
            unique.append(target)
    return unique


def _assigned_part(args: tuple[Any, ...]) -> torch.Tensor | None:
    """Return the view that an assignment by plain indices has written, or None where it gathered positions."""
    target, index = args[0], args[1]
    items = index if isinstance(index, tuple) else (index,)
    for item in items:
        if isinstance(item, bool):
            return None
        if isinstance(item, torch.Tensor):
            if item.ndim or item.dtype is torch.bool:
                return None
        elif not isinstance(item, _BASIC_INDEX):
            return None
    try:
        return target[index]
    except Exception:  # an index that only this tensor's own class understands
        return None


def _is_global(tensor: torch.Tensor) -> bool:
    """Return whether the running function reaches ``tensor`` by its globals, its closure or its object's class."""
    frame = user_frame()
    if frame is None:
        return False
    names = frame.f_locals
    owner = names.get("self")
    spaces = [frame.f_globals, {name: names[name] for name in frame.f_code.co_freevars if name in names}]
    spaces += [vars(kind) for kind in type(owner).__mro__]
    return any(value is tensor for space in spaces for value in tuple(space.values()))
