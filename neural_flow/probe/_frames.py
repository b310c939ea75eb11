"""Open constructs and open collects of this context, and what an emission adds to them.

A *site* is one emit call as the code wrote it: the chain of code positions from the outermost construct to the emit.
A site that runs many times inside one outermost construct makes one offer, with a row for each execution.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Generator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from neural_flow import nested, torch_private
from neural_flow.probe._lanes import Lanes, open_lanes

_TORCH = torch.__path__[0]

Place = tuple[Any, ...]
"""Where a construct or an emission stands in the step of the construct round it: code positions and an occurrence."""


@dataclass(slots=True, eq=False)
class Frame:
    """One running construct. ``step`` counts executions of its body; ``mask`` is which lanes take part in this one.

    A construct without steps of its own (one of torch's) takes each emission of a site for the next step.
    """

    name: str
    place: Place
    lanes: Lanes
    has_own_steps: bool = True
    runner_id: int = 0
    step: int = -1
    branch: int = 0
    mask: torch.Tensor | None = None
    is_predicate: bool = False
    counts: dict[Place, int] = field(default_factory=dict[Place, int])

    def next_step(self, *, branch: int = 0, mask: torch.Tensor | None = None) -> None:
        """Begin another execution of the body."""
        self.step += 1
        self.branch = branch
        self.mask = mask
        self.counts = {}

    def mark_runner(self) -> None:
        """Note that the caller's Python frame is the one that runs the body: chains of code positions end there."""
        self.runner_id = id(sys._getframe(1))


@dataclass(slots=True, eq=False)
class Execution:
    """One execution of a site: where in the nest it happened, and its value with its lanes as leading axes."""

    steps: tuple[int, ...]
    lanes: Lanes
    frame_depths: tuple[int, ...]
    value: Any
    masks: tuple[torch.Tensor, ...]


@dataclass(slots=True, eq=False)
class SiteTree:
    """Sites of one outermost construct, as a tree of places in order of first execution."""

    executions: list[Execution] = field(default_factory=list[Execution])
    inner: dict[tuple[int, Place], SiteTree] = field(default_factory=dict[tuple[int, Place], "SiteTree"])

    def sites(self) -> list[list[Execution]]:
        """Return the executions of each site: in order of first execution, but the true branch before the false."""
        found = [self.executions] if self.executions else []
        for _, child in sorted(self.inner.items(), key=lambda item: item[0][0]):  # a stable sort: by branch only
            found += child.sites()
        return found


@dataclass(slots=True, eq=False)
class Collector:
    """One open collect of ``probe``."""

    probe: Any
    depth: int
    graph_task_id: int
    offers: list[Any] = field(default_factory=list[Any])
    tree: SiteTree = field(default_factory=SiteTree)

    def flush(self) -> None:
        """Turn the executions of the construct that ended into offers."""
        tree, self.tree = self.tree, SiteTree()
        for executions in tree.sites():
            offer = merge_rows(executions)
            if offer is not None:
                self.offers.append(offer)


COLLECTORS: ContextVar[tuple[Collector, ...]] = ContextVar("neural_flow_collectors", default=())
FRAMES: ContextVar[tuple[Frame, ...]] = ContextVar("neural_flow_frames", default=())


def place_of(depth: int) -> Place:
    """Return where the caller ``depth`` frames up stands in the innermost construct, with its occurrence in the step.

    The chain of code positions tells two calls of one helper apart; the occurrence tells turns of a Python loop apart.
    """
    frames = FRAMES.get()
    if not frames:
        return ()
    innermost = frames[-1]
    frame = sys._getframe(depth + 1)
    chain: list[Any] = []
    while frame is not None and id(frame) != innermost.runner_id:
        # torch's own constructs run their body from several lines of theirs, which are one site all the same
        if innermost.has_own_steps or not frame.f_code.co_filename.startswith(_TORCH):
            chain += (frame.f_code, frame.f_lasti)
        frame = frame.f_back
    place = tuple(chain)
    if not innermost.has_own_steps:
        innermost.step += 1
        return (*place, 0)
    count = innermost.counts.get(place, 0)
    innermost.counts[place] = count + 1
    return (*place, count)


def merge_rows(executions: list[Execution]) -> Any:
    """Return one value whose leaves have a row for each execution, the outer loop or map major; None without rows.

    Whether a held lane took part is read from its device once.
    """
    keys = [_row_keys(execution) for execution in executions]
    width = max(key.shape[1] for key in keys)
    table = np.concatenate([np.pad(key, ((0, 0), (0, width - key.shape[1])), constant_values=-1) for key in keys])
    order = np.lexsort(table.T[::-1])
    if any(execution.masks for execution in executions):
        held = torch.cat([_row_mask(execution) for execution in executions]).cpu().numpy()
        order = order[held[order]]
        if not len(order):
            return None
    leaves = [[leaf for _, leaf in nested.tensor_leaves(execution.value)] for execution in executions]
    flat = [_flat_rows(execution, found) for execution, found in zip(executions, leaves, strict=True)]
    columns = [torch.cat(column) for column in zip(*flat, strict=True)]
    if not np.array_equal(order, np.arange(len(table))):
        columns = [column[torch.from_numpy(order).to(column.device)] for column in columns]
    rows = iter(columns)
    return nested.map_tensors(executions[0].value, lambda _: next(rows))


def _flat_rows(execution: Execution, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    num_lanes = len(execution.lanes.sizes)
    num_rows = int(np.prod(execution.lanes.sizes, dtype=np.int64))
    return [leaf.reshape(num_rows, *leaf.shape[num_lanes:]) for leaf in leaves]


def _row_keys(execution: Execution) -> np.ndarray[Any, Any]:
    """Return ``[rows, nesting]``: for each lane combination its indices, step indices set between where they nest."""
    columns: list[tuple[float, int]] = [(level + 0.5, -1 - index) for index, level in enumerate(execution.lanes.levels)]
    columns += [(float(depth), step) for depth, step in zip(execution.frame_depths, execution.steps, strict=True)]
    columns.sort(key=lambda column: column[0])  # stable: constructs at one depth stay in their own order
    rows = list(itertools.product(*(range(size) for size in execution.lanes.sizes)))
    return np.array([[row[-1 - what] if what < 0 else what for _, what in columns] for row in rows]).reshape(
        len(rows), len(columns)
    )


def _row_mask(execution: Execution) -> torch.Tensor:
    sizes = execution.lanes.sizes
    whole = [mask.reshape(*mask.shape, *[1] * (len(sizes) - mask.dim())).expand(sizes) for mask in execution.masks]
    taken = whole[0] if whole else torch.ones(sizes, dtype=torch.bool)
    for mask in whole[1:]:
        taken = taken & mask
    return taken.reshape(-1)


def record(collector: Collector, value: Any, lanes: Lanes, place: Place) -> None:
    """Add one execution of the site at ``place`` to the construct that is open above ``collector``."""
    frames = FRAMES.get()[collector.depth :]
    tree = collector.tree
    for frame, following in zip(frames, [*(inner.place for inner in frames[1:]), place], strict=True):
        tree = tree.inner.setdefault((frame.branch, following), SiteTree())
    tree.executions.append(
        Execution(
            steps=tuple(frame.step for frame in frames),
            lanes=lanes,
            frame_depths=tuple(frame.lanes.levels[-1] + 1 if frame.lanes.levels else 0 for frame in frames),
            value=value,
            masks=tuple(frame.mask for frame in frames if frame.mask is not None),
        )
    )


@contextlib.contextmanager
def open_construct(name: str, *, depth: int, has_own_steps: bool = True) -> Generator[Frame]:
    """Context in which a construct runs; its caller is ``depth`` frames above. Leaving it delivers, also on errors."""
    outer = FRAMES.get()
    frame = Frame(name, place_of(depth + 2), open_lanes(), has_own_steps)
    frame.runner_id = id(sys._getframe(2))
    token = FRAMES.set((*outer, frame))
    try:
        yield frame
    finally:
        FRAMES.reset(token)
        for collector in COLLECTORS.get():
            if collector.depth == len(outer):
                with torch_private.without_modes(), torch_private.outside_transforms(), torch.no_grad():
                    collector.flush()
