"""An interventional oracle for edges, sharing no code with any tracer.

Pin the output of every stage to its recorded value, nudge one source at a time, run the model again: whatever stage
input or stage output changes then has a direct edge from the nudged source. Values decide, not provenance.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))

CallKey = tuple[str, int]


@dataclass
class Watched:
    """What one run showed: the tensors that went into each stage, and those that came out before pinning."""

    inputs: dict[CallKey, list[torch.Tensor]] = field(default_factory=dict)
    outputs: dict[CallKey, list[torch.Tensor]] = field(default_factory=dict)
    result: list[torch.Tensor] = field(default_factory=list)
    calls: list[CallKey] = field(default_factory=list)


def tensors_of(value: Any, seen: frozenset[int] = frozenset()) -> list[torch.Tensor]:
    """Return all tensors in a nest, in order; objects are looked into through their ``__dict__``."""
    if isinstance(value, torch.Tensor):
        return [value]
    if id(value) in seen or isinstance(value, str | bytes | int | float | nn.Module | type(None)):
        return []
    inside = seen | {id(value)}
    if isinstance(value, Mapping):
        parts: list[Any] = list(value.values())
    elif isinstance(value, list | tuple | set):
        parts = list(value)
    else:
        parts = list(vars(value).values()) if hasattr(value, "__dict__") and not callable(value) else []
    return [leaf for part in parts for leaf in tensors_of(part, inside)]


def result_leaves(value: Any) -> list[torch.Tensor]:
    """Return the tensors that a model returned; of an object that is no container (a cache), only its own tensors."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [leaf for part in value.values() for leaf in result_leaves(part)]
    if isinstance(value, list | tuple | set):
        return [leaf for part in value for leaf in result_leaves(part)]
    fields = vars(value).values() if hasattr(value, "__dict__") and not callable(value) else ()
    is_record = dataclasses.is_dataclass(value)
    return [leaf for part in fields if is_record or isinstance(part, torch.Tensor) for leaf in result_leaves(part)]


def put_back(value: Any, leaves: list[torch.Tensor]) -> Any:
    """Return ``value`` with its tensors taken from ``leaves`` in order (consumed)."""
    if isinstance(value, torch.Tensor):
        return leaves.pop(0)
    if isinstance(value, Mapping):
        made = {key: put_back(part, leaves) for key, part in value.items()}
        return made if type(value) is dict else type(value)(**made)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[put_back(part, leaves) for part in value])
    if isinstance(value, list | tuple):
        return type(value)(put_back(part, leaves) for part in value)
    return value


def nudged(tensor: torch.Tensor, scale: float) -> torch.Tensor:
    """Return another value of the same kind, further away for a larger scale."""
    generator = torch.Generator().manual_seed(7)
    if tensor.is_floating_point():
        # non-negative and large: a nudge must show through a ReLU that was off
        return tensor + scale * (0.5 + torch.rand(tensor.shape, generator=generator)).to(tensor.dtype)
    if tensor.is_complex():
        return tensor + scale * torch.rand(tensor.shape, generator=generator).to(tensor.dtype)
    if tensor.dtype == torch.bool:
        return ~tensor
    if scale < 1.0:  # the smallest number: what ids use for padding, and positions are counted round
        return torch.cat([tensor[..., :-1], torch.zeros_like(tensor[..., -1:])], -1) if tensor.dim() else tensor
    return tensor.flip(-1) if tensor.dim() and tensor.shape[-1] > 1 else tensor - 1


def nudged_leaves(leaves: list[torch.Tensor], scale: float) -> list[torch.Tensor]:
    """Nudge the floating leaves, or all where none floats: the sizes in a packed sequence must stay what they are."""
    floats = [leaf.is_floating_point() or leaf.is_complex() for leaf in leaves]
    return [
        nudged(leaf, scale) if is_float or not any(floats) else leaf
        for leaf, is_float in zip(leaves, floats, strict=True)
    ]


def run(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    ends: Mapping[CallKey, CallKey],
    pinned: Watched | None = None,
    nudge: CallKey | None = None,
    scale: float = 1.0,
) -> Watched:
    """Run once. ``ends`` maps the first call of each stage to the call whose output is the stage's."""
    watched = Watched()
    starts = set(ends)
    owner = {end: start for start, end in ends.items()}
    counts: dict[str, int] = {}
    running: dict[nn.Module, list[CallKey]] = {}
    handles: list[Any] = []

    def before(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            key = (path, counts.get(path, 0))
            counts[path] = key[1] + 1
            running.setdefault(module, []).append(key)
            watched.calls.append(key)
            if key in starts:
                watched.inputs[key] = [leaf.detach().clone() for leaf in tensors_of((args, kwargs))]

        return hook

    def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        key = running[module].pop()
        if key not in owner:
            return None
        start = owner[key]
        watched.outputs[start] = [leaf.detach().clone() for leaf in tensors_of(output)]
        if pinned is None:
            return None
        values = [leaf.clone() for leaf in pinned.outputs[start]]
        return put_back(output, nudged_leaves(values, scale) if start == nudge else values)

    wanted = {path for path, _ in {*ends, *ends.values()}}
    for path, module in model.named_modules():
        if path in wanted:
            handles.append(module.register_forward_pre_hook(before(path), with_kwargs=True))
            handles.append(module.register_forward_hook(after, with_kwargs=True))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            copies = [leaf.clone() for leaf in tensors_of((args, kwargs))]
            given = put_back([list(args), kwargs], copies)
            watched.result = [leaf.detach().clone() for leaf in result_leaves(model(*given[0], **given[1]))]
    finally:
        for handle in handles:
            handle.remove()
        model.load_state_dict(state)
    return watched


def differ(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    """Whether two lists of tensors hold other values."""
    return len(first) != len(second) or any(
        a.shape != b.shape or not torch.equal(torch.nan_to_num(a.float()), torch.nan_to_num(b.float()))
        if not a.is_complex()
        else not torch.equal(a, b)
        for a, b in zip(first, second, strict=True)
    )


def name_of(key: CallKey) -> str:
    return f"{key[0]}#{key[1]}" if key[1] else key[0]


def oracle_edges(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], ends: Mapping[CallKey, CallKey]
) -> set[tuple[str, str]]:
    """Return (source, target) names of the edges that interventions show; inputs are ``in:k``, outputs ``out:k``."""
    was_training = {module: module.training for module in model.modules()}
    model.eval()
    base = run(model, args, kwargs, ends)
    edges: set[tuple[str, str]] = set()

    def compare(source: str, run_nudged: Callable[[float], Watched], own: CallKey | None) -> None:
        # a large nudge shows through saturation; where it turns a branch or a loop, a small one may not
        for scale in (1.0, 1e-3):
            try:
                seen = run_nudged(scale)
            except (RuntimeError, ValueError, IndexError):
                continue  # the model refuses the other value (lengths, ids): it cannot be asked
            if seen.calls == base.calls:
                note(source, seen, own)

    def note(source: str, seen: Watched, own: CallKey | None) -> None:
        for key in ends:
            if key == own or key not in seen.inputs:
                continue
            came_out = [watched.outputs.get(key, []) for watched in (base, seen)]  # none where the call raised
            if differ(base.inputs[key], seen.inputs[key]) or differ(*came_out):
                edges.add((source, name_of(key)))
        for index, (old, new) in enumerate(zip(base.result, seen.result, strict=True)):
            if differ([old], [new]):
                edges.add((source, f"out:{index}"))

    for key in ends:
        if key in base.outputs:
            compare(name_of(key), lambda scale, key=key: run(model, args, kwargs, ends, base, key, scale), key)
    leaves = tensors_of((args, kwargs))

    def run_with_input(chosen: torch.Tensor, scale: float) -> Watched:
        changed = [nudged(leaf, scale) if leaf is chosen else leaf for leaf in leaves]
        new_args, new_kwargs = put_back([list(args), kwargs], changed)
        return run(model, tuple(new_args), new_kwargs, ends, base)

    for index, leaf in enumerate(leaves):
        compare(f"in:{index}", lambda scale, leaf=leaf: run_with_input(leaf, scale), None)
    for module, flag in was_training.items():
        module.training = flag
    return edges


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many architectures of libraries were compared, and which were exact."""
    found = [
        (value, report.outcome)
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        for key, value in report.user_properties
        if key == "architecture"
    ]
    if found:
        exact = sorted(name.removesuffix(" =") for (name, _) in found if name.endswith(" ="))
        rest = sorted(name for (name, _) in found if not name.endswith(" ="))
        terminalreporter.section("architectures")
        terminalreporter.line(f"{len(found)} architectures, {len(exact)} exact: {', '.join(exact)}")
        terminalreporter.line(f"with edges that values do not show, each explained: {', '.join(rest)}")


@pytest.fixture
def compare_with_oracle() -> Callable[..., tuple[set[tuple[str, str]], set[tuple[str, str]]]]:
    """Return a function: (model, args, kwargs, options) -> (edges that are missing, edges that values do not show)."""
    from neural_flow import pipeline  # imported late: collecting these tests must not cost an import of everything

    def compare(
        model: nn.Module, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, **options: Any
    ) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
        order = [*inspect.signature(model.forward).parameters]  # keyword inputs are numbered as forward names them
        kwargs = dict(sorted((kwargs or {}).items(), key=lambda item: (*order, item[0]).index(item[0])))
        topology = pipeline.trace(model, args, kwargs, **options).record
        if any(stage.kind in ("op", "probe") for stage in topology.stages):  # only modules can be pinned
            paths = [stage.path for stage in topology.stages if stage.kind == "module"]
            topology = pipeline.trace(model, args, kwargs, select=list(dict.fromkeys(paths))).record
        names: dict[int, str] = {}
        ends: dict[CallKey, CallKey] = {}
        for stage in topology.stages:
            if stage.kind in ("input", "output"):
                names[stage.stage_id] = f"{'in' if stage.kind == 'input' else 'out'}:{stage.index}"
            else:
                key = (stage.path, stage.call_index)
                names[stage.stage_id] = name_of(key)
                last = stage.joined_names[-1] if stage.joined_names else name_of(key)
                path, _, index = last.partition("#")
                ends[key] = (path, int(index or 0))
        traced = {(names[edge.source], names[edge.target]) for edge in topology.edges if not edge.inferred}
        shown = oracle_edges(model, args, dict(kwargs or {}), ends)
        return shown - traced, traced - shown

    return compare
