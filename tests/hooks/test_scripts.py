"""Random scripts of registrations and passes, against hooks written as plain lists of functions over numbers.

The reference knows nothing of tensors, modules or autograd: a site is a list of layers of wrapping, each with three
lists of (id, function), and backward is done by hand. All numbers are small integers, so that equal means equal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import nn

from neural_flow import nested
from neural_flow.hooks import with_hooks


class Stop(Exception):
    pass


@dataclasses.dataclass
class Two:
    first: Any
    second: Any


NESTS: dict[str, Callable[[Any, Any], Any]] = {
    "tensor": lambda a, b: a,
    "tuple": lambda a, b: (a, b),
    "dict": lambda a, b: {"a": a, "n": 3, "b": b},
    "dataclass": Two,
    "nested": lambda a, b: [a, {"b": (b, None)}],
}
KINDS = ("pre", "post", "back")


@dataclasses.dataclass(frozen=True)
class Site:
    """One layer: its output leaves are the input times each factor; the next site gets those that are used, summed."""

    nest: str
    factors: tuple[int, int]
    used: tuple[bool, bool]
    num_wrappers: int
    is_trained: bool

    @property
    def num_leaves(self) -> int:
        return 1 if self.nest == "tensor" else 2

    @property
    def used_leaves(self) -> list[int]:
        return [index for index in range(self.num_leaves) if self.num_leaves == 1 or self.used[index]]


@dataclasses.dataclass(frozen=True)
class Hook:
    """``value * times + plus``; a post-hook adds ``plus`` times the input; a failing one raises instead."""

    times: int
    plus: int
    fails: bool


# The model with real wrappers.


class Layer(nn.Module):
    def __init__(self, site: Site) -> None:
        super().__init__()
        self.site = site
        self.factors = nn.Parameter(torch.tensor(site.factors, dtype=torch.float64), requires_grad=site.is_trained)

    def forward(self, x: torch.Tensor) -> Any:
        return NESTS[self.site.nest](x * self.factors[0], x * self.factors[1])


class Real:
    def __init__(self, sites: list[Site]) -> None:
        self.log: list[Any] = []
        self.layers = [Layer(site) for site in sites]
        self.hooks: list[list[Any]] = []
        self.handles: list[Any] = []
        self.sites = sites
        self.modules: list[nn.Module] = []
        for site, layer in zip(sites, self.layers, strict=True):
            module: nn.Module = layer
            all_hooks = []
            for _ in range(site.num_wrappers):
                module, hooks = with_hooks(module)
                all_hooks.append(hooks)
            self.modules.append(module)
            self.hooks.append(all_hooks)

    def add(self, kind: str, site: int, wrapper: int, hook: Hook) -> None:
        number = len(self.handles)

        def enter() -> None:
            self.log.append((kind, number))
            if hook.fails:
                raise Stop(number)

        def pre(x: torch.Tensor) -> torch.Tensor:
            enter()
            return x * hook.times + hook.plus

        def post(x: torch.Tensor, y: Any) -> Any:
            enter()
            return nested.map_tensors(y, lambda leaf: leaf * hook.times + x * hook.plus)

        def back(g: Any) -> Any:
            enter()
            return nested.map_tensors(g, lambda leaf: leaf * hook.times + hook.plus)

        hooks = self.hooks[site][wrapper]
        if kind == "pre":
            self.handles.append(hooks.add_forward_pre_hook(pre))
        elif kind == "post":
            self.handles.append(hooks.add_forward_hook(post))
        else:
            self.handles.append(hooks.add_backward_hook(back))

    def remove(self, number: int) -> None:
        self.handles[number].remove()

    def forward(self, value: int, needs_gradient: bool) -> tuple[Any, torch.Tensor]:
        x = torch.tensor(float(value), dtype=torch.float64, requires_grad=needs_gradient)
        y = x
        for site, module in zip(self.sites, self.modules, strict=True):
            leaves = [leaf for _, leaf in nested.tensor_leaves(module(y))]
            y = sum((leaves[index] for index in site.used_leaves), torch.zeros((), dtype=torch.float64))
        return y, x

    def value(self, run: tuple[Any, torch.Tensor]) -> float:
        return run[0].item()

    def backward(self, run: tuple[Any, torch.Tensor]) -> list[Any]:
        output, x = run
        wanted = [tensor for tensor in (x, *[layer.factors for layer in self.layers]) if tensor.requires_grad]
        if not output.requires_grad:
            return []
        found = torch.autograd.grad(output, wanted, retain_graph=True, allow_unused=True)
        return [None if gradient is None else gradient.tolist() for gradient in found]


# The reference.


class Reference:
    def __init__(self, sites: list[Site]) -> None:
        self.log: list[Any] = []
        self.sites = sites
        self.lists = [
            [{kind: [] for kind in KINDS} for _ in range(site.num_wrappers)] for site in sites
        ]  # innermost first
        self.where: list[tuple[str, int, int, Hook]] = []

    def add(self, kind: str, site: int, wrapper: int, hook: Hook) -> None:
        self.lists[site][wrapper][kind].append(len(self.where))
        self.where.append((kind, site, wrapper, hook))

    def remove(self, number: int) -> None:
        kind, site, wrapper, _ = self.where[number]
        if number in self.lists[site][wrapper][kind]:
            self.lists[site][wrapper][kind].remove(number)

    def enter(self, kind: str, number: int) -> Hook:
        self.log.append((kind, number))
        hook = self.where[number][3]
        if hook.fails:
            raise Stop(number)
        return hook

    def forward(self, value: int, needs_gradient: bool, is_grad_enabled: bool = True) -> dict[str, Any]:
        x = float(value)
        requires = needs_gradient
        tape: list[Any] = []
        for index, site in enumerate(self.sites):
            wrappers = self.lists[index]
            inputs = []
            for wrapper in reversed(wrappers):  # outermost first
                times = 1
                for number in list(wrapper["pre"]):
                    hook = self.enter("pre", number)
                    x, times = x * hook.times + hook.plus, times * hook.times
                inputs.append((x, times))
            leaves = [x * factor for factor in site.factors[: site.num_leaves]]
            output_requires = requires or site.is_trained
            steps: list[Any] = []
            for wrapper, (seen, _) in zip(wrappers, reversed(inputs), strict=True):  # innermost first
                for number in list(wrapper["post"]):
                    hook = self.enter("post", number)
                    leaves = [leaf * hook.times + seen * hook.plus for leaf in leaves]
                    steps.append(("post", hook))
                if wrapper["back"] and output_requires and is_grad_enabled:
                    steps.append(("gate", list(wrapper["back"]), index, wrapper))
                steps.append(("leave",))
            tape.append((site, x, inputs, steps, requires))
            x = sum(leaves[used] for used in site.used_leaves)
            requires = output_requires
        return {"value": x, "tape": tape, "requires": requires and is_grad_enabled, "needs_gradient": needs_gradient}

    def value(self, run: dict[str, Any]) -> float:
        return run["value"]

    def backward(self, run: dict[str, Any]) -> list[Any]:
        if not run["requires"]:
            return []
        gradient: float | None = 1.0
        factor_gradients: list[Any] = [None] * len(self.sites)
        for index in reversed(range(len(self.sites))):
            site, x, inputs, steps, requires = run["tape"][index]
            if gradient is None:
                break
            leaves: list[float | None] = [
                gradient if used in site.used_leaves else None for used in range(site.num_leaves)
            ]
            into_inputs: list[float | None] = [None] * len(inputs)  # outermost first, as inputs
            depth = 0
            for step in reversed(steps):  # from the outermost wrapper inwards
                if step[0] == "leave":
                    depth += 1
                elif step[0] == "post":
                    hook = step[1]
                    reached = [leaf * hook.plus for leaf in leaves if leaf is not None]
                    before = into_inputs[depth - 1]
                    into_inputs[depth - 1] = sum(reached) + (before or 0.0)
                    leaves = [None if leaf is None else leaf * hook.times for leaf in leaves]
                else:
                    _, numbers, _, wrapper = step
                    for number in [number for number in numbers if number in wrapper["back"]]:
                        hook = self.enter("back", number)
                        leaves = [None if leaf is None else leaf * hook.times + hook.plus for leaf in leaves]
            if site.is_trained:
                factor_gradients[index] = [0.0, 0.0]
                for used, leaf in enumerate(leaves):
                    factor_gradients[index][used] = 0.0 if leaf is None else leaf * x
            into = sum(leaf * factor for leaf, factor in zip(leaves, site.factors, strict=False) if leaf is not None)
            for (_, times), extra in zip(reversed(inputs), reversed(into_inputs), strict=True):  # innermost first
                into = (into + (extra or 0.0)) * times
            gradient = into if requires else None
        return [gradient] * run["needs_gradient"] + [
            factor_gradients[index] for index, site in enumerate(self.sites) if site.is_trained
        ]


small = st.integers(-2, 2)
sites = st.builds(
    Site,
    nest=st.sampled_from(list(NESTS)),
    factors=st.tuples(small, small),
    used=st.sampled_from([(True, True), (True, False), (False, True)]),
    num_wrappers=st.integers(1, 2),
    is_trained=st.booleans(),
)
hooks = st.builds(Hook, times=small, plus=small, fails=st.integers(0, 11).map(lambda number: number == 0))
steps = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(KINDS), st.integers(0, 9), st.integers(0, 1), hooks),
    st.tuples(st.just("remove"), st.integers(0, 9)),
    st.tuples(st.just("forward"), small, st.booleans(), st.integers(0, 3).map(bool)),
    st.tuples(st.just("backward"), st.integers(0, 9)),
)


def outcome(function: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return "value", function()
    except Stop as error:
        return "stopped", error.args[0]


def run_script(sites: list[Site], script: list[tuple[Any, ...]]) -> None:
    real, reference = Real(sites), Reference(sites)
    num_handles = 0
    runs: list[tuple[Any, Any]] = []
    for name, *details in [*script, ("forward", 2, True, True), ("backward", 9)]:
        if name == "add":
            kind, site, wrapper, hook = details
            site %= len(sites)
            for model in (real, reference):
                model.add(kind, site, wrapper % sites[site].num_wrappers, hook)
            num_handles += 1
        elif name == "remove" and num_handles:
            for model in (real, reference):
                model.remove(details[0] % num_handles)
        elif name == "forward":
            value, needs_gradient, is_grad_enabled = details
            with torch.set_grad_enabled(is_grad_enabled):
                found = outcome(partial(real.forward, value, needs_gradient))
            expected = outcome(partial(reference.forward, value, needs_gradient, is_grad_enabled))
            assert found[0] == expected[0]
            if found[0] == "stopped":
                assert found[1] == expected[1]
            else:
                assert real.value(found[1]) == reference.value(expected[1])
                runs.append((found[1], expected[1]))
        elif name == "backward" and runs:
            ours, theirs = runs[-1 - details[0] % len(runs)]
            assert outcome(partial(real.backward, ours)) == outcome(partial(reference.backward, theirs))
        assert real.log == reference.log


@settings(max_examples=150, deadline=None)
@given(st.lists(sites, min_size=1, max_size=3), st.lists(steps, min_size=3, max_size=14))
def test_scripts_do_what_lists_of_functions_do(sites, script):
    run_script(sites, script)


def test_the_reference_is_right_about_a_case_done_by_hand():
    site = Site(nest="tuple", factors=(2, 3), used=(True, False), num_wrappers=1, is_trained=True)
    reference = Reference([site])
    reference.add("pre", 0, 0, Hook(times=2, plus=1, fails=False))
    reference.add("post", 0, 0, Hook(times=1, plus=1, fails=False))
    reference.add("back", 0, 0, Hook(times=2, plus=1, fails=False))
    run = reference.forward(5, True)
    assert run["value"] == 2 * 11 + 11
    # g = 1 -> 3 behind the gate; y = f x + x, x = 2 v + 1
    assert reference.backward(run) == [2 * (3 * 2 + 3), [3 * 11, 0.0]]
    assert reference.log == [("pre", 0), ("post", 1), ("back", 2)]


def test_the_comparison_notices_a_difference(monkeypatch: pytest.MonkeyPatch):
    site = Site(nest="dict", factors=(2, 3), used=(True, True), num_wrappers=2, is_trained=False)
    double = Hook(times=2, plus=0, fails=False)
    script = [("add", "back", 0, 1, double), ("forward", 1, True, True), ("remove", 0), ("backward", 0)]
    run_script([site], script)
    monkeypatch.setattr(Reference, "remove", lambda self, number: None)
    with pytest.raises(AssertionError):
        run_script([site], script)
