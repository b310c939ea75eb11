"""Replay a backward pass on paper: which memory lives when, from the shapes in the graph alone.

The order is that of torch's engine: of the nodes whose gradients have all arrived, the one made last goes first, and
parameters collect theirs at once. A node lives on its incoming gradients and on what it saved, makes its outgoing
gradients, and then lets go of both.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

LAST = 2**64 - 1  # the sequence number of nodes that collect gradients

# Nodes that hand on the memory of the gradient that they were given, as a view or as it is.
ALIASING = frozenset(
    {
        "Add", "Sub", "View", "UnsafeView", "ReshapeAlias", "T", "Transpose", "Permute", "Squeeze",
        "Unsqueeze", "Alias", "Clone", "Cat", "Sum", "Detach", "Stack", "Unflatten", "LiftFresh", "ToCopy",
        "Movedim",
    }
)  # fmt: skip

# Nodes whose result lies in the memory of what they were given.
VIEWS = frozenset(
    {
        "View", "UnsafeView", "ReshapeAlias", "T", "Transpose", "Permute", "Squeeze", "Unsqueeze", "Alias",
        "Detach", "Unflatten", "Movedim", "Expand", "Slice", "Select", "Split", "Narrow", "Unbind",
        "AsStrided", "Diagonal", "SplitWithSizes", "Unfold",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """One node of the autograd graph, as plain data.

    Attributes:
        name: class without its ending (``Addmm``, ``AccumulateGrad``).
        sequence: number in the order of making; the largest ready one runs first.
        stage_id: the stage that made it, None outside of all stages.
        saved: numbers of the storages that it saved.
        loads: bytes of each tensor that it saved, by the number of its storage: what comes back from a file.
        results: those of the storages that are its own results; the others are what it was given.
        inputs: bytes of the gradient of each of its outputs, which it is given.
        following: (node, which of its outputs) of each gradient that it makes; None where nobody wants it.
    """

    name: str
    sequence: int
    stage_id: int | None = None
    saved: tuple[int, ...] = ()
    loads: Mapping[int, int] = field(default_factory=dict[int, int])
    results: tuple[int, ...] = ()
    inputs: tuple[int, ...] = ()
    following: tuple[tuple[int, int] | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """All that decides the memory of a forward with its backward.

    Attributes:
        nodes: the graph; the first one is that of the loss.
        storages: bytes by number, of what the graph saved, beyond parameters, buffers and inputs of the model.
        held: numbers of storages that something else than the graph keeps alive, such as the output.
        held_nbytes: bytes that live besides: outputs that nobody saved.
        loss_sequence: nodes with larger numbers belong to the loss, which is one function: what it makes on its way
            lives until it returns.
    """

    nodes: tuple[GraphNode, ...]
    storages: Mapping[int, int]
    held: frozenset[int] = frozenset()
    held_nbytes: int = 0
    loss_sequence: int = LAST


def peak_nbytes(
    step: Step,
    *,
    recomputed: Mapping[int, Collection[int]] | None = None,
    extra: Mapping[int, int] | None = None,
    offloaded: Collection[int] = (),
) -> int:
    """Return the most bytes that live at once, in forward or in backward.

    Args:
        step: the graph.
        recomputed: storages by stage that come to life only when backward enters the stage.
        extra: bytes by number of storages that such stages keep from forward instead: their inputs.
        offloaded: storages in files, which are read for the node that needs them.
    """
    replay = _Replay(step, recomputed or {}, extra or {}, frozenset(offloaded))
    later = {number for numbers in (recomputed or {}).values() for number in numbers}
    return max(replay.run(), _forward_peak(step, later | set(offloaded), sum((extra or {}).values())))


def _forward_peak(step: Step, passing: Collection[int], extra: int) -> int:
    """Return the most bytes that live at once in forward: what is saved so far, and results on their way.

    Args:
        step: the graph.
        passing: storages that forward does not keep.
        extra: bytes that it keeps instead.
    """
    order = sorted((node.sequence, index) for index, node in enumerate(step.nodes) if node.name != "AccumulateGrad")
    ends, saved_sizes = _lifetimes(step, passing)
    kept: set[int] = set()
    freed: dict[int, int] = {}
    live = peak = extra
    for place, (sequence, index) in enumerate(order):
        node = step.nodes[index]
        for number in node.saved:
            if number not in kept and number not in passing:
                kept.add(number)
                live += step.storages.get(number, 0)
        if node.name not in VIEWS:
            for slot, nbytes in enumerate(node.inputs):
                if nbytes not in saved_sizes[index]:
                    live += nbytes
                    is_of_loss = sequence > step.loss_sequence
                    last = len(order) if is_of_loss else max(ends.get((index, slot), place), place)
                    freed[last] = freed.get(last, 0) + nbytes
        peak = max(peak, live)
        live -= freed.pop(place, 0)
    return peak


def _lifetimes(step: Step, passing: Collection[int]) -> tuple[dict[tuple[int, int], int], list[set[int]]]:
    """Return when each result is read last, and for each node the sizes of results that somebody saves.

    A view lives in the memory of what it was made of, so that its readers are those of its source.
    """
    order = sorted((node.sequence, index) for index, node in enumerate(step.nodes) if node.name != "AccumulateGrad")
    sizes: list[set[int]] = [set() for _ in step.nodes]
    ends: dict[tuple[int, int], int] = {}
    for place, (_, index) in reversed(list(enumerate(order))):
        node = step.nodes[index]
        kept = {number: nbytes for number, nbytes in node.loads.items() if number not in passing}
        sizes[index] |= {nbytes for number, nbytes in kept.items() if number in node.results}
        given = {nbytes for number, nbytes in kept.items() if number not in node.results}
        own_end = max((ends[index, slot] for slot in range(len(node.inputs)) if (index, slot) in ends), default=place)
        end = own_end if node.name in VIEWS else place
        for target in node.following:
            if target is not None:
                ends[target] = max(ends.get(target, 0), end)
                sizes[target[0]] |= sizes[index] if node.name in VIEWS else given
    return ends, sizes


class _Replay:
    def __init__(
        self,
        step: Step,
        recomputed: Mapping[int, Collection[int]],
        extra: Mapping[int, int],
        offloaded: frozenset[int],
    ) -> None:
        self.step = step
        self.recomputed = {stage_id: set(numbers) for stage_id, numbers in recomputed.items()}
        self.offloaded = offloaded
        later = {number for numbers in self.recomputed.values() for number in numbers}
        self.num_users: dict[int, int] = {}
        for node in step.nodes:
            for number in node.saved:
                self.num_users[number] = self.num_users.get(number, 0) + 1
        at_once = [number for number in self.num_users if number not in later and number not in offloaded]
        self.live = sum(step.storages.get(number, 0) for number in at_once)
        self.live += sum(
            step.storages.get(number, 0)
            for number in step.held
            if number not in self.num_users or number in offloaded or number in later
        )
        self.live += step.held_nbytes + sum(extra.values())
        self.peak = self.live
        self.buffers: dict[int, tuple[int, int]] = {}  # number -> (bytes, how many hold it)
        self.arrived: dict[int, dict[int, int]] = {}  # node -> which output -> buffer

    def run(self) -> int:
        """Return the peak."""
        nodes = self.step.nodes
        if not nodes:
            return self.peak
        missing = [0] * len(nodes)
        for node in nodes:
            for target in node.following:
                if target is not None:
                    missing[target[0]] += 1
        self.arrived[0] = {0: self._make(nodes[0].inputs[0] if nodes[0].inputs else 0)}
        ready = [(-nodes[0].sequence, 0)]
        while ready:
            _, index = heapq.heappop(ready)
            self._evaluate(index)
            for target in nodes[index].following:
                if target is not None:
                    missing[target[0]] -= 1
                    if missing[target[0]] == 0:
                        heapq.heappush(ready, (-nodes[target[0]].sequence, target[0]))
        return self.peak

    def _evaluate(self, index: int) -> None:
        node = self.step.nodes[index]
        if node.stage_id in self.recomputed:
            self._grow(sum(self.step.storages.get(one, 0) for one in self.recomputed.pop(node.stage_id)))
        loaded = sum(nbytes for number, nbytes in node.loads.items() if number in self.offloaded)
        self._grow(loaded)
        given = self.arrived.pop(index, {})
        if node.name != "AccumulateGrad":  # it keeps what it is given, as the parameter's gradient
            sent = self._outgoing(node, given)
            for target, buffer in sent:
                self._deliver(target, buffer)
            for buffer in given.values():
                self._drop(buffer)
        self.live -= loaded
        for number in node.saved:
            self.num_users[number] -= 1
            if self.num_users[number] == 0 and number not in self.step.held and number not in self.offloaded:
                self.live -= self.step.storages.get(number, 0)

    def _outgoing(self, node: GraphNode, given: Mapping[int, int]) -> list[tuple[tuple[int, int], int]]:
        sent: list[tuple[tuple[int, int], int]] = []
        for target in node.following:
            if target is None:
                continue
            nbytes = self._size_of(target)
            source = given.get(0)
            is_alias = node.name in ALIASING and source is not None
            if is_alias and source is not None and (node.name in ("Cat", "Stack", "Sum") or self._same(source, nbytes)):
                self._hold(source)
                sent.append((target, source))
            else:
                sent.append((target, self._make(nbytes)))
        return sent

    def _size_of(self, target: tuple[int, int]) -> int:
        inputs = self.step.nodes[target[0]].inputs
        return inputs[target[1]] if target[1] < len(inputs) else 0

    def _same(self, buffer: int, nbytes: int) -> bool:
        return self.buffers[buffer][0] == nbytes

    def _deliver(self, target: tuple[int, int], buffer: int) -> None:
        slots = self.arrived.setdefault(target[0], {})
        known = slots.get(target[1])
        if known is None:
            slots[target[1]] = buffer
            return
        slots[target[1]] = self._make(self._size_of(target))
        self._drop(known)
        self._drop(buffer)

    def _make(self, nbytes: int) -> int:
        number = len(self.buffers)
        self.buffers[number] = (nbytes, 1)
        self._grow(nbytes)
        return number

    def _hold(self, buffer: int) -> None:
        nbytes, num_holders = self.buffers[buffer]
        self.buffers[buffer] = (nbytes, num_holders + 1)

    def _drop(self, buffer: int) -> None:
        nbytes, num_holders = self.buffers[buffer]
        self.buffers[buffer] = (nbytes, num_holders - 1)
        if num_holders == 1:
            self.live -= nbytes

    def _grow(self, nbytes: int) -> None:
        self.live += nbytes
        self.peak = max(self.peak, self.live)
