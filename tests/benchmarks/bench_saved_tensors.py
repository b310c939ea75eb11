"""What offloading saves and costs. Run: python tests/benchmarks/bench_saved_tensors.py [LAYERS] [BATCH] [WIDTH].

Prints, for one step of a deep perceptron, the peak of the allocator above what lived before, the peak of the process's
resident memory, the seconds of the step, and how many tensors went where; then microseconds a saved tensor for each
pair of hooks. Each memory row runs in a process of its own, so that none inherits the other's peak.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from neural_flow.saved_tensors import offload_saved_tensors, record_saved_tensors, saved_tensor_hooks
from neural_flow.torch_private import AllocationLog

NUM_LAYERS, BATCH, WIDTH = 80, 10_000, 512  # activations of 20 MB
NUM_PACKED = 2_000


def make_step(num_layers: int, batch: int, width: int) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    layers = [layer for _ in range(num_layers) for layer in (nn.Linear(width, width), nn.Tanh())]
    return nn.Sequential(*layers), torch.randn(batch, width)


def contexts(model: nn.Module) -> dict[str, Callable[[], Any]]:
    return {
        "plain": contextlib.nullcontext,
        "record": lambda: record_saved_tensors(model),
        "offload to disk": offload_saved_tensors,
        "offload to cpu": lambda: offload_saved_tensors(to="cpu"),
    }


def run_step(name: str, sizes: tuple[int, int, int], pipe: Any) -> None:
    model, x = make_step(*sizes)
    context = contexts(model)[name]()
    start = time.perf_counter()
    with AllocationLog() as log:
        with context:
            loss = model(x).square().mean()
        loss.backward()
    seconds = time.perf_counter() - start
    live = peak = 0
    for nbytes in log.nbytes:
        live += nbytes
        peak = max(peak, live)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    checksum = sum(float(param.grad.double().sum()) for param in model.parameters() if param.grad is not None)
    stored, left = getattr(context, "num_stored", 0), getattr(context, "num_files", 0)
    pipe.send((peak, resident, seconds, stored, left, checksum))


def memory_rows(sizes: tuple[int, int, int]) -> None:
    print(f"{sizes[0]} layers, activations of {sizes[1] * sizes[2] * 4 / 1e6:.1f} MB")
    print(f"{'':18}{'allocator MB':>14}{'resident MB':>14}{'seconds':>10}{'stored':>8}{'left':>6}  gradients")
    # else glibc keeps freed blocks of this size in its heap, and resident memory says little
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "1000000"
    spawn = multiprocessing.get_context("spawn")
    checksums: list[float] = []
    for name in contexts(nn.Identity()):
        receive, send = spawn.Pipe(duplex=False)
        process = spawn.Process(target=run_step, args=(name, sizes, send))
        process.start()
        peak, resident, seconds, stored, left, checksum = receive.recv()
        process.join()
        checksums.append(checksum)
        equal = "equal" if checksum == checksums[0] else "DIFFERENT"
        print(f"{name:18}{peak / 1e6:14.1f}{resident / 1e6:14.1f}{seconds:10.2f}{stored:8}{left:6}  {equal}")


def hook_rows() -> None:
    x = torch.ones(8, requires_grad=True)
    rows: dict[str, Callable[[], Any]] = {
        "plain": contextlib.nullcontext,
        "torch, detach": lambda: torch.autograd.graph.saved_tensors_hooks(torch.Tensor.detach, lambda packed: packed),
        "saved_tensor_hooks": lambda: saved_tensor_hooks(torch.Tensor.detach, lambda packed: packed),
        "record": lambda: record_saved_tensors(nn.Identity()),
        "offload, all small": offload_saved_tensors,
    }
    print(f"\n{'':20}{'us an exp':>12}")
    least = dict.fromkeys(rows, float("inf"))
    for _ in range(7):
        for name, make in rows.items():
            with make():
                start = time.process_time()
                for _ in range(NUM_PACKED):
                    x.exp()
                least[name] = min(least[name], 1e6 * (time.process_time() - start) / NUM_PACKED)
    for name, microseconds in least.items():
        print(f"{name:20}{microseconds:12.1f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    given = [int(one) for one in sys.argv[1:]]
    memory_rows((*given, *(NUM_LAYERS, BATCH, WIDTH)[len(given) :]))  # type: ignore[arg-type]  # three in all
    hook_rows()
