"""What hooks cost a call, beside the hooks of torch. Run: python tests/benchmarks/bench_hooks.py.

Prints CPU microseconds a call, the least of many interleaved rounds on one thread, and what each row adds to the bare
layer. The layer does nothing, so that only the call is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import nn

from neural_flow.hooks import Hooks, with_hooks

NUM_ROUNDS = 15
NUM_CALLS = 4_000
MAX_ADDED_WITHOUT_HOOKS_US = 3.0


def seconds_a_call(function: Callable[[], object], num_calls: int) -> float:
    start = time.process_time()
    for _ in range(num_calls):
        function()
    return (time.process_time() - start) / num_calls


def least_microseconds(rows: dict[str, Callable[[], object]], num_calls: int) -> dict[str, float]:
    least = dict.fromkeys(rows, float("inf"))
    for _ in range(NUM_ROUNDS):
        for name, function in rows.items():
            least[name] = min(least[name], 1e6 * seconds_a_call(function, num_calls))
    return least


def wrapped(register: Callable[[Hooks], object] | None = None) -> nn.Module:
    wrapper, hooks = with_hooks(nn.Identity())
    if register is not None:
        register(hooks)
    return wrapper


def native(register: Callable[[nn.Module], object]) -> nn.Module:
    layer = nn.Identity()
    register(layer)
    return layer


def forward_modules() -> dict[str, nn.Module]:
    return {
        "bare layer": nn.Identity(),
        "with_hooks, none registered": wrapped(),
        "with_hooks, one forward hook": wrapped(lambda hooks: hooks.add_forward_hook(lambda x, y: y)),
        "torch, one forward hook": native(lambda layer: layer.register_forward_hook(lambda module, args, y: None)),
        "with_hooks, one forward pre-hook": wrapped(lambda hooks: hooks.add_forward_pre_hook(lambda x: x)),
        "torch, one forward pre-hook": native(lambda layer: layer.register_forward_pre_hook(lambda module, args: None)),
    }


def backward_modules() -> dict[str, nn.Module]:
    return {
        "bare layer": nn.Identity(),
        "with_hooks, none registered": wrapped(),
        "with_hooks, one backward hook": wrapped(lambda hooks: hooks.add_backward_hook(lambda g: g)),
        "torch, one backward hook": native(
            lambda layer: layer.register_full_backward_hook(lambda module, inputs, outputs: None)
        ),
    }


def print_rows(title: str, least: dict[str, float]) -> None:
    print(f"{title:<36}{'µs a call':>12}{'added':>10}")
    for name, microseconds in least.items():
        print(f"  {name:<34}{microseconds:>12.2f}{microseconds - least['bare layer']:>10.2f}")


def main() -> None:
    torch.set_num_threads(1)
    x = torch.ones(1)
    with torch.no_grad():
        forward = least_microseconds(
            {name: lambda module=module: module(x) for name, module in forward_modules().items()}, NUM_CALLS
        )
    print_rows("forward", forward)
    added = forward["with_hooks, none registered"] - forward["bare layer"]
    print(f"  target: at most {MAX_ADDED_WITHOUT_HOOKS_US} µs added where none is registered; measured {added:.2f}\n")

    leaf = torch.ones(1, requires_grad=True)
    backward = least_microseconds(
        {
            name: lambda module=module: torch.autograd.grad(module(leaf * 1), leaf)
            for name, module in backward_modules().items()
        },
        NUM_CALLS // 10,
    )
    print_rows("forward and backward", backward)


if __name__ == "__main__":
    main()
