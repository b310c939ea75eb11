"""Probes: values observed inside functions, delivered when the function returns or raises.

Behaviour after the probes of the Rune library, on PyTorch: an emission never changes a value that the function
computes, a gradient, the random state or a traced graph.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from neural_flow import nested, torch_private
from neural_flow.probe import _in_graph
from neural_flow.probe._frames import COLLECTORS, FRAMES, Collector, place_of, record
from neural_flow.probe._hops import HopWatch
from neural_flow.probe._lanes import open_lanes, split_lanes

Observer = Callable[["Probe", Any], None]
_EVERY_EMIT: dict[int, Observer] = {}
_OBSERVER_IDS = itertools.count()
# An error of these kinds is not an outcome: what runs it wants it, and what was offered until then is dropped.
_RERAISED = (MemoryError, RecursionError, torch.OutOfMemoryError)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the collected function came to: its value, or the very exception that it raised."""

    value: Any = None
    error: BaseException | None = None

    @property
    def is_ok(self) -> bool:
        """Whether the function returned."""
        return self.error is None

    def unwrap(self) -> Any:
        """Return the value, or raise the error again with its traceback."""
        if self.error is not None:
            raise self.error
        return self.value


@dataclass(frozen=True, slots=True)
class ObserverHandle:
    """Ends one observation; ``remove`` a second time does nothing."""

    observers: dict[int, Observer]
    id: int

    def remove(self) -> None:
        """Stop calling the observer."""
        self.observers.pop(self.id, None)


class Probe:
    """Receives the values that code anywhere inside a function emits.

    Make one with ``Probe.make``; every probe is distinct from every other. ``skipped`` counts emissions that reached
    a collect but carried no value (fake tensors of a tracer or of ``torch.export``).
    """

    def __init__(self, structure: Any = None, name: str | None = None) -> None:
        self.name = name
        self.structure = structure
        self.skipped = 0
        self._observers: dict[int, Observer] = {}
        self._spec = None if structure is None else nest_spec(structure)
        self.token = _in_graph.register(self)

    @staticmethod
    def make(structure: Any = None, name: str | None = None) -> Probe:
        """Return a fresh probe.

        Args:
            structure: a nest whose containers, keys and lengths every emitted value must have; its leaves are
                ignored. None accepts any nest of tensors.
            name: shown in figures and messages.
        """
        return Probe(structure, name)

    def emit(self, value: Any) -> None:
        """Offer ``value`` to the innermost open collect of this probe; with none open, do nothing.

        What is kept is a detached copy on the value's own device; ``value`` itself is not touched. Outside every
        transform the copy has one leading row; under ``vmap`` one row for each lane.

        Args:
            value: a nest of tensors.

        Raises:
            TypeError: while a collect of this probe is open: the value has another structure than the probe's.
            RuntimeError: while a collect of this probe is open: this is the predicate of a ``while_loop``.
        """
        if torch.compiler.is_compiling():
            _in_graph.emit(self.token, value)
            return
        if self._observers or _EVERY_EMIT:
            for observer in [*self._observers.values(), *_EVERY_EMIT.values()]:
                observer(self, value)
        for collector in reversed(COLLECTORS.get()):
            if collector.probe is self:
                self._offer(collector, value, 1)
                return

    def _offer(self, collector: Collector, value: Any, depth: int) -> None:
        leaves = self._checked_leaves(value)
        frames = FRAMES.get()[collector.depth :]
        if any(frame.is_predicate for frame in frames):
            raise RuntimeError(
                f"{self!r} cannot emit in the predicate of neural_flow.probe.while_loop: transforms run predicates "
                "apart from the body; emit in the body"
            )
        if torch_private.graph_task_id() != collector.graph_task_id or _is_recomputing(sys._getframe(depth)):
            return
        if any(torch_private.is_fake(leaf) for leaf in leaves):
            if not _in_graph.route(self.token, value):
                self.skipped += 1
            return
        lanes = open_lanes()
        with torch_private.without_modes(), torch.no_grad():
            plain = [split_lanes(leaf, lanes) for leaf in leaves]
            with torch_private.outside_transforms():
                copies = iter([leaf.detach().clone() for leaf in plain])
                kept = nested.map_tensors(value, lambda _: next(copies))
                if frames:
                    record(collector, kept, lanes, place_of(depth + 1))
                else:
                    rows = len(lanes.sizes)
                    collector.offers.append(nested.map_tensors(kept, lambda leaf: _merged(leaf, rows)))

    def _checked_leaves(self, value: Any) -> list[torch.Tensor]:
        spec = nest_spec(value)
        if self._spec is not None and spec != self._spec:
            raise TypeError(f"{self!r} takes {self._spec}, but {spec} was emitted")
        return [leaf for _, leaf in nested.tensor_leaves(value)]

    def collect(self, function: Callable[[], Any], eager: bool = True) -> tuple[Outcome, list[Any]]:
        """Run ``function`` and return its outcome beside the offers to this probe that reached it, in order.

        The innermost collect of a probe takes its offers; collects of other probes let them pass. Other threads and
        other tasks offer nothing here.

        Args:
            function: takes no argument; run once.
            eager: run compiled functions and torch's own control flow as plain Python meanwhile, so that every step
                is seen (entering this imports the compiler once, about a second). Without it, a compiled function
                offers through an operation in its graph.

        Raises:
            RuntimeError: inside a function transform, or inside code that is being compiled.
            BaseException: of kinds that are no outcome (KeyboardInterrupt, SystemExit, MemoryError, RecursionError,
                torch.OutOfMemoryError): raised again, the offers dropped.
        """
        if torch.compiler.is_compiling() or torch_private.transform_levels():
            raise RuntimeError(
                "Probe.collect cannot run inside a function transform or a compiled function: there a value stands for "
                "many; call collect outside, around the transform"
            )
        torch_private.require("function_transforms", "Probe.collect")
        collector = Collector(self, len(FRAMES.get()), torch_private.graph_task_id())
        with ExitStack() as stack:
            if eager:
                stack.enter_context(torch_private.force_eager())
                stack.enter_context(HopWatch())
            else:
                _in_graph.define_operation()
            token = COLLECTORS.set((*COLLECTORS.get(), collector))
            stack.callback(COLLECTORS.reset, token)
            try:
                outcome = Outcome(value=function())
            except _RERAISED:
                raise
            except Exception as error:
                outcome = Outcome(error=error)
        return outcome, collector.offers

    def observe(self, callback: Callable[[Any], None]) -> ObserverHandle:
        """Call ``callback(value)`` at every emit of this probe, before collectors, also where none is open.

        The callback gets the value itself, wrapped by transforms or not; it must not change it. Returns a handle.
        """
        number = next(_OBSERVER_IDS)
        self._observers[number] = lambda _, value: callback(value)
        return ObserverHandle(self._observers, number)

    def __repr__(self) -> str:
        return f"Probe({self.name!r})" if self.name else "Probe()"

    def __reduce__(self) -> Any:
        return (Probe, (self.structure, self.name))


def observe_every_emit(callback: Observer) -> ObserverHandle:
    """Call ``callback(probe, value)`` at every emit of every probe. Returns a handle."""
    number = next(_OBSERVER_IDS)
    _EVERY_EMIT[number] = callback
    return ObserverHandle(_EVERY_EMIT, number)


def nest_spec(value: Any) -> str:
    """Return the structure of a nest in words: container types, keys and lengths, ``*`` for a tensor.

    Raises:
        TypeError: a leaf is no tensor.
    """
    if isinstance(value, torch.Tensor):
        return "*"
    parts = nested.children(value)
    if not parts and not isinstance(value, list | tuple | dict | set):
        raise TypeError(
            f"a probe takes nests of tensors, not {type(value).__name__} ({value!r}); use torch.tensor(...)"
        )
    inside = ", ".join(f"{name.lstrip('.')}: {nest_spec(part)}" for name, part in parts)
    return f"{type(value).__name__}({inside})"


def _merged(leaf: torch.Tensor, num_lanes: int) -> torch.Tensor:
    """Return ``leaf`` ``[*lanes, ...]`` with its lanes as one leading axis; one row where there is none."""
    return leaf.unsqueeze(0) if num_lanes == 0 else leaf.flatten(0, num_lanes - 1)


def _is_recomputing(frame: Any) -> bool:
    """Whether a checkpoint computes its values again, for someone who reads a saved tensor outside backward."""
    while frame is not None:
        if frame.f_code.co_name == "recompute_fn" and frame.f_code.co_filename.endswith("checkpoint.py"):
            return True
        frame = frame.f_back
    return False
