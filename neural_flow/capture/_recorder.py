"""Turn intercepted tensor functions into small integer records."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch

from neural_flow.capture._frames import is_reached_by_name, location_text, user_place
from neural_flow.capture._functions import (
    ARRAY_READERS,
    FROM_LITERALS,
    JOINERS,
    OVERWRITES,
    UPDATES_ASIDE,
    num_lenders,
    target_name,
)
from neural_flow.capture._metas import RawMeta, finished_meta, raw_meta
from neural_flow.capture._storage_log import Refs
from neural_flow.capture._values import ValueTable
from neural_flow.capture._writes import (
    OpCall,
    Tensors,
    assigned_part,
    collect_tensors,
    elementwise_calls,
    is_among,
    is_array,
    parts_along,
)
from neural_flow.records import OpNode, OpRole

_Place = tuple[CodeType, int] | None
_RawOp = tuple[Callable[..., Any] | str, Refs, tuple[int, ...], list[RawMeta], int | None, OpRole, _Place]


class Recorder:
    """Record ops and keep the table of values up to date.

    Args:
        values: which op made the value in each tensor.

    Attributes:
        call_id: the innermost module call that is running.
        ops: what was recorded so far.
        unknown: op and tensor for each that was read although nobody saw it being made.
        num_opaque_joins: how many outputs of calls came from out of sight although ops in these calls were seen.
    """

    def __init__(self, values: ValueTable) -> None:
        self.values = values
        self.call_id: int | None = None
        self.ops: list[_RawOp] = []
        self.unknown: list[tuple[int, weakref.ref[torch.Tensor]]] = []
        self.num_opaque_joins = 0
        self._losses: Refs = ()
        self._escapes: list[tuple[int | None, int, Refs]] = []

    def record(self, call: OpCall) -> None:
        """Record one call of a tensor function."""
        if call.name.startswith("_foreach_") and (calls := elementwise_calls(call)) is not None:
            for one in calls:
                self._record_one(one)
        else:
            self._record_one(call)

    def record_plain(self, func: Callable[..., Any], leaves: Tensors, result: torch.Tensor) -> None:
        """Record a function that wrote nothing and made one tensor: the short way for by far the most ops."""
        values = self.values
        for leaf in leaves:
            if leaf is result:
                return
        if values.is_tagged(result):
            return
        parents, params = self.sources(leaves, result)
        op_id = len(self.ops)
        self.ops.append((func, parents, params, [raw_meta(result)], self.call_id, "op", user_place()))
        values.tag(result, ((op_id, 0),), op_id, can_be_view=True)

    def record_update(self, func: Callable[..., Any], leaves: Tensors) -> None:
        """Record a function that read ``leaves``, wrote the first of them and returned it: the short way for these."""
        parents, params = self.sources(leaves)
        op_id = len(self.ops)
        target, ref = leaves[0], (op_id, 0)
        self.ops.append((func, parents, params, [raw_meta(target)], self.call_id, "op", user_place()))
        self.values.write(target, ref, op_id)
        self.values.tag(target, (ref,), op_id)

    def _record_one(self, call: OpCall) -> None:
        result = call.result
        outputs = [result] if isinstance(result, torch.Tensor) else collect_tensors((result,), [])
        if call.written:
            self._record_write(call, outputs)
            return
        is_tagged = self.values.is_tagged
        fresh = [out for out in outputs if not is_tagged(out) and not is_among(out, call.leaves)]
        if not fresh:
            return
        if len(outputs) > 1 and (sources := self._separate_sources(call.leaves, fresh)) is not None:
            for index, (source, out) in enumerate(zip(sources, fresh, strict=True)):
                # one call stays one op, so that others can count calls; its further pieces only hand on
                self._make(call, self.sources([source], out), [out], "alias" if index else "op")
        else:
            self._record_pure(call, fresh)

    def _record_pure(self, call: OpCall, fresh: Tensors) -> None:
        leaves = call.leaves
        first, last = num_lenders(call.name)
        if last:
            leaves = collect_tensors((*call.args[:first], *call.args[last:], *call.kwargs.values()), [])
        if call.name in FROM_LITERALS:
            leaves = [leaf for leaf in leaves if self.values.read(leaf) is not None]
        parents, params = self.sources(leaves, fresh[0] if len(fresh) == 1 else None)
        if self.values.packed:
            held = [param_id for arg in call.args for param_id in self.values.packed.get(id(arg), ())]
            params = tuple(dict.fromkeys((*params, *held)))
        if self._losses and call.name == "__get__" and target_name(call.func) == "torch.Tensor.grad":
            parents = self._losses
        role: OpRole = "op"
        if not parents and self._escapes and call.name in ARRAY_READERS and any(map(is_array, call.args)):
            parents = self._escaped_here()
            role = "opaque" if parents else "op"
        self._make(call, (parents, params), fresh, role)
        if call.name in JOINERS and len(fresh) == 1:
            self._note_parts(call, fresh[0])

    def _note_parts(self, call: OpCall, made: torch.Tensor) -> None:
        joined = parts_along(call, made)
        if joined is None:
            return
        refs = [self.values.read(leaf) or () for leaf in call.leaves]
        if any(one != refs[0] for one in refs):
            self.values.note_parts(made, *joined, refs)

    def _make(self, call: OpCall, sources: tuple[Refs, tuple[int, ...]], outputs: Tensors, role: OpRole = "op") -> None:
        op_id = self.add(call.func, *sources, outputs, role)
        for index, out in enumerate(outputs):
            self.values.tag(out, ((op_id, index),), op_id, can_be_view=role in ("op", "alias"))

    def _separate_sources(self, leaves: Tensors, outputs: Tensors) -> Tensors | None:
        """Return the one argument that each output is a view of, where one op for all would say too much.

        That is where the outputs are views of different tensors, or of one whose parts were written separately.
        """
        values = self.values
        found: Tensors = []
        for out in outputs:
            log = values.log_of(out)
            source = next((leaf for leaf in leaves if log is not None and values.log_of(leaf) is log), None)
            if source is None or log is None:
                return None
            found.append(source)
        has_parts = any(
            ((log := values.log_of(leaf)) is not None and log.writes) or values.read_part(leaf, out) is not None
            for leaf, out in zip(found, outputs, strict=True)
        )
        return found if has_parts or any(leaf is not found[0] for leaf in leaves) else None

    def _record_write(self, call: OpCall, outputs: Tensors) -> None:
        name, args, kwargs, written = call.name, call.args, call.kwargs, call.written
        part = assigned_part(args) if name == "__setitem__" else None
        if name in OVERWRITES and (name != "__setitem__" or part is not None):
            others = (value for key, value in kwargs.items() if key not in ("self", "tensor"))
            leaves = collect_tensors((*args[1:], *others), [])
        elif name in UPDATES_ASIDE:
            leaves = [leaf for leaf in call.leaves if not is_among(leaf, written)]
        else:
            leaves = collect_tensors((*args, *(value for key, value in kwargs.items() if key != "out")), [])
        made = [out for out in outputs if is_among(out, written) or not self.values.is_tagged(out)]
        made += [tensor for tensor in written if not is_among(tensor, made)]
        op_id = self.add(call.func, *self.sources(leaves), made if part is None else [part, *made[1:]])
        for index, out in enumerate(made):
            refs = ((op_id, index),)
            is_write = is_among(out, written)
            if is_write and name != "__set__":  # which gives the tensor other bytes, and writes none
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
        still = values.still
        parents: Refs = ()
        params: list[int] = []
        for leaf in leaves:
            identity = id(leaf)
            if identity in still:
                if (param_id := still[identity]) is not None and param_id not in params:
                    params.append(param_id)
                continue
            refs = values.read(leaf, view)
            if refs is None:
                refs = self.add_unknown(leaf)
            elif identity in values.param_ids or not refs:
                param_id = values.param_of(leaf)
                if param_id is not None and param_id not in params:
                    params.append(param_id)
            if refs:
                parents = tuple(dict.fromkeys((*parents, *refs))) if parents else refs
        return parents, tuple(params)

    def read(self, tensor: torch.Tensor) -> Refs:
        """Return the values that ``tensor`` holds; a tensor that nobody saw being made gets a source of its own."""
        refs = self.values.read(tensor)
        return self.add_unknown(tensor) if refs is None else refs

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
        """Return the source of a tensor that nobody saw being made: () for a constant of the user's program.

        Where the same call handed values to array code before, the tensor is taken to come from there.
        """
        refs = () if is_reached_by_name(tensor) else self.values.read_by_address(tensor)
        if refs is not None:
            self.values.tag(tensor, refs, len(self.ops))
            return refs
        if escaped := self._escaped_here():
            return self.add_source(tensor, "opaque", "opaque", escaped)
        refs = self.add_source(tensor, "unknown", "unknown")
        self.unknown.append((refs[0][0], weakref.ref(tensor)))
        return refs

    def meta_of(self, tensor: torch.Tensor, refs: Refs) -> RawMeta:
        """Return what ``tensor`` is; where it holds just what one op made, from that op's record.

        Args:
            tensor: any tensor.
            refs: the values that it holds.
        """
        if len(refs) == 1 and self.values.holds(tensor, refs):
            op_id, index = refs[0]
            return self.ops[op_id][3][index]
        return raw_meta(tensor)

    def add_output(self, leaf: torch.Tensor, first_op_id: int, inputs: Callable[[], Tensors]) -> int | None:
        """Make an output of a call the call's own value: return the id of the op that stands for it, if it needs one.

        A value made inside the call is its own already. One that was not (an input, a parameter, something kept from
        before) becomes the output of an ``alias`` op; one that nobody saw being made, of an ``opaque`` op.

        Args:
            leaf: one output tensor of the call.
            first_op_id: the first op of the call.
            inputs: returns the tensors among its arguments.
        """
        refs = self.values.read(leaf)
        if refs is None:
            refs = () if is_reached_by_name(leaf) else self.values.read_by_address(leaf)
        if refs is None:
            self.add_source(leaf, "opaque", "opaque", self._unseen_sources(first_op_id, inputs()))
            return None
        if any(op_id >= first_op_id for op_id, _ in refs):
            return None
        param_id = self.values.param_of(leaf)
        return self.add("alias", refs, () if param_id is None else (param_id,), [leaf], "alias")

    def _unseen_sources(self, first_op_id: int, inputs: Tensors) -> Refs:
        """Return what code out of sight must have read to make an output of the call that began with this op.

        That is what the call handed to array code, or else what went in or was made in it and has not been read since.
        """
        escaped = [found for _, time, found in self._escapes if time >= first_op_id]
        if escaped:
            return tuple(dict.fromkeys(ref for found in escaped for ref in found))
        given = self.sources(inputs)[0]
        seen = [(op_id, op) for op_id, op in enumerate(self.ops[first_op_id:], first_op_id) if op[5] != "opaque"]
        if not seen:
            return given
        self.num_opaque_joins += 1
        read = {ref for _, (_, parents, *_) in seen for ref in parents}
        made = [(op_id, index) for op_id, op in seen for index in range(len(op[3]))]
        return tuple([ref for ref in (*given, *made) if ref not in read]) or given

    def record_backward(self, losses: Tensors) -> None:
        """Note that gradients read from now on come from ``losses``: a backward pass leaves them in ``.grad``."""
        self._losses = tuple(dict.fromkeys((*self._losses, *self.sources(losses)[0])))

    def escape(self, tensor: torch.Tensor) -> None:
        """Note that the values of ``tensor`` were handed to code that no tracer sees into."""
        if refs := self.values.read(tensor):
            self._escapes.append((self.call_id, len(self.ops), refs))

    def _escaped_here(self) -> Refs:
        found = [refs for call_id, _, refs in self._escapes if call_id == self.call_id]
        return tuple(dict.fromkeys(ref for refs in found for ref in refs))

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
