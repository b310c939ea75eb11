"""The calls of a trace as selection sees them: mass, visibility, keys and children, computed once."""

from __future__ import annotations

import re
from functools import cached_property
from itertools import accumulate

from neural_flow.records import ModuleCall, ModuleInfo, OpNode, Trace
from neural_flow.stages._signals import Signals, is_float

SEQUENTIAL = "torch.nn.modules.container.Sequential"
MODULE_DICT = "torch.nn.modules.container.ModuleDict"
NUMBER = re.compile(r"_?\d+[a-z]?(?![a-z])|_[a-z]$")
"""What tells siblings of one name apart: ``conv1``, ``layer_3``, ``inception4b``, ``block_a``."""


class Net:
    """Everything that selection asks about the calls of one trace.

    Args:
        trace: what the metadata pass saw.
        hidden: calls that must not become stages, with all that runs inside them.
        forced: calls that count as visible whatever they do, and are never opened (where the model raised).
    """

    def __init__(
        self, trace: Trace, *, hidden: frozenset[int] = frozenset(), forced: frozenset[int] = frozenset()
    ) -> None:
        self.trace = trace
        self.calls = trace.calls
        self.forced = forced
        self._modules = {module.path: module for module in trace.modules}
        num = len(trace.calls)
        self.depth = [0] * num
        self.child_calls: list[list[int]] = [[] for _ in range(num)]
        self._is_hidden = [False] * num
        for call in trace.calls:
            parent = call.parent_id
            if parent is not None:
                self.depth[call.call_id] = self.depth[parent] + 1
                self.child_calls[parent].append(call.call_id)
                self._is_hidden[call.call_id] = self._is_hidden[parent]
            if call.call_id in hidden:
                self._is_hidden[call.call_id] = True
        self.signals = Signals(trace)
        self._measure_calls()
        self._make_keys()

    def info(self, call_id: int) -> ModuleInfo | None:
        """Return the module that a call ran."""
        return self._modules.get(self.calls[call_id].path)

    def class_of(self, call_id: int) -> str:
        """Return the qualified class name of a call's module, the bare one where the module is unknown."""
        info = self._modules.get(self.calls[call_id].path)
        return info.qualified_name if info is not None else self.calls[call_id].class_name

    def num_params(self, call_id: int) -> int:
        """Return the number of distinct parameter elements in a call's module."""
        info = self._modules.get(self.calls[call_id].path)
        return info.num_params if info is not None else 0

    def family(self, call_id: int, scope_id: int) -> str:
        """Return the name of a call inside another one without what counts: equal for members of one list or row.

        Modules that their author named after what they do (``query``, ``key``) are no repeats of each other. The names
        in a ``ModuleDict`` count like numbers.
        """
        prefix = self.calls[scope_id].path
        path = self.calls[call_id].path
        names = (path.removeprefix(f"{prefix}.") if prefix else path).split(".")
        holder = self._modules.get(path.rpartition(".")[0])
        if len(names) > 1 and holder is not None and holder.qualified_name == MODULE_DICT:
            names[-1] = ""
        return ".".join(NUMBER.sub("", name) for name in names)

    def num_reads(self, first_op: int, end_op: int) -> int:
        """Return how often a range of ops reads a signal that was made before it."""
        parents = self.signals.parents
        return sum(parent < first_op for op_id in range(first_op, end_op) for parent in parents[op_id])

    def mass_between(self, first_op: int, end_op: int) -> int:
        """Return the number of heavy signal ops in a range of ops."""
        return self._mass_before[end_op] - self._mass_before[first_op]

    @cached_property
    def total_mass(self) -> int:
        """Number of heavy signal ops of the whole net."""
        return self._mass_before[-1]

    def is_sequential(self, call_id: int) -> bool:
        """Return whether a call ran a plain ``nn.Sequential``."""
        return self.class_of(call_id) == SEQUENTIAL

    def float_shapes(self, op: OpNode | ModuleCall) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of all float outputs."""
        return tuple(meta.shape for meta in op.outputs if is_float(meta.dtype))

    def visible_children(self, call_id: int) -> list[int]:
        """Return the child calls that may become cards, in call order."""
        return [child for child in self.child_calls[call_id] if self.is_visible[child]]

    def op_key(self, op_id: int) -> int:
        """Return the key of an op that applies weights: its name and the shapes of these."""
        params = self.trace.params
        shapes = tuple(params[p].shape for p in self.signals.applied_params(op_id))
        return self._intern(("op", self.signals.name(op_id), shapes))

    def _measure_calls(self) -> None:
        signals, trace = self.signals, self.trace
        heavy = [int(h and s) for h, s in zip(signals.is_heavy, signals.is_signal, strict=True)]
        self._mass_before = list(accumulate(heavy, initial=0))
        any_heavy_before = list(accumulate(map(int, signals.is_heavy), initial=0))
        self.own_ops: list[list[int]] = [[] for _ in trace.calls]
        for op in trace.ops:
            if op.call_id is not None and signals.is_weighted[op.op_id]:
                self.own_ops[op.call_id].append(op.op_id)
        num = len(trace.calls)
        self.mass = [0] * num
        self.is_light = [False] * num
        self.is_visible = [False] * num
        self.has_children = [False] * num
        self.is_leaf_like = [True] * num
        self.num_calls = [1] * num
        for call in reversed(trace.calls):
            index = call.call_id
            if call.parent_id is not None:
                self.num_calls[call.parent_id] += self.num_calls[index]
            mass = self.mass_between(call.first_op_id, call.end_op_id)
            has_heavy = any_heavy_before[call.end_op_id] > any_heavy_before[call.first_op_id]
            emits = any(signals.is_signal[op_id] for refs in call.output_refs for op_id, _ in refs)
            self.mass[index] = mass
            self.is_light[index] = not has_heavy and emits and self.num_params(index) > 0
            visible = (mass >= 1 or self.is_light[index]) and not self._is_hidden[index]
            self.is_visible[index] = visible
            self.has_children[index] = bool(self.own_ops[index]) or any(
                self.is_visible[child] for child in self.child_calls[index]
            )
            if index in self._forced_chain:
                self.is_visible[index] = True
                self.is_leaf_like[index] = index in self.forced
            else:
                self.is_leaf_like[index] = mass <= 1 or not self.has_children[index]

    @cached_property
    def _forced_chain(self) -> frozenset[int]:
        chain: set[int] = set()
        for start in self.forced:
            current: int | None = start
            while current is not None and current not in chain:
                chain.add(current)
                current = self.calls[current].parent_id
        return frozenset(chain)

    def _make_keys(self) -> None:
        self._interned: dict[object, int] = {}
        self.key = [0] * len(self.calls)
        paths_by_key: dict[int, set[str]] = {}
        for call in reversed(self.calls):
            index = call.call_id
            if self.is_sequential(index):
                children = tuple(self.key[child] for child in self.visible_children(index))
                key = self._intern(("sequential", children))
            else:
                key = self._intern(self.class_of(index))
            self.key[index] = key
            if self.is_visible[index]:
                paths_by_key.setdefault(key, set()).add(call.path)
        self.is_repeated_key = {key: len(paths) > 1 for key, paths in paths_by_key.items()}
        self.is_recursive_key: dict[int, bool] = {}
        keys_inside: list[frozenset[int]] = [frozenset()] * len(self.calls)
        for call in self.calls:
            index, key = call.call_id, self.key[call.call_id]
            above = keys_inside[call.parent_id] if call.parent_id is not None else frozenset[int]()
            if self.is_visible[index] and not self.is_leaf_like[index]:
                if key in above:
                    self.is_recursive_key[key] = True
                keys_inside[index] = above | {key}
            else:
                keys_inside[index] = above

    def _intern(self, value: object) -> int:
        return self._interned.setdefault(value, len(self._interned))
