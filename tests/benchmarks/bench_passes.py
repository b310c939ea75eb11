"""What looking at a model costs beside running it; run: python tests/benchmarks/bench_passes.py [nets] [tiny] [cold].

Each row is a median over interleaved runs in one process, in CPU seconds (user and system) on one thread. A ratio is
to one plain forward of the same model without gradients. The last column is what the row is meant to stay under.
Deep, big and cold rows run in fresh processes, so that peaks of memory and imports are their own.
"""

from __future__ import annotations

import itertools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[2]
ROWS = ("nets", "tiny", "memory", "deep", "big", "cold")
NUM_ROUNDS = 9
MAX_SECONDS = 40.0


def report(row: str, value: float, unit: str, most: float, note: str = "") -> None:
    verdict = "" if value <= most else "  over"
    print(f"{row:44} {value:9.2f} {unit:3} of {most:g}{verdict}  {note}", flush=True)


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


# -- nets ----------------------------------------------------------------------------------------------------------


def nets() -> None:
    """Print both passes as multiples of a forward, for sample models and for models of real size."""
    import torch

    torch.set_num_threads(1)
    for name, (model, args, most) in real_models().items():
        net_rows(name, model.eval(), args, most)


def real_models() -> dict[str, tuple[Any, tuple[Any, ...], float]]:
    import torch

    from sample_models.gpt2 import GPT2
    from sample_models.resnet50 import ResNet
    from sample_models.unet import UNet
    from sample_models.vit import VisionTransformer

    torch.manual_seed(0)
    return {
        "U-Net 128² (sample)": (UNet(), (torch.randn(1, 1, 128, 128),), 2.4),
        "U-Net 256², 32 wide": (UNet(width=32), (torch.randn(1, 1, 256, 256),), 2.4),
        "ResNet-50 224²": (ResNet(), (torch.randn(1, 3, 224, 224),), 2.4),
        "ViT 12 x 192 (sample)": (VisionTransformer(), (torch.randn(1, 3, 224, 224),), 2.3),
        "ViT-B 224²": (VisionTransformer(width=768, num_heads=12), (torch.randn(1, 3, 224, 224),), 2.3),
        "GPT-2 (sample)": (GPT2(), (torch.randint(0, 500, (1, 12)),), 2.3),
        "GPT-2 12 x 768, 256 tokens": (
            GPT2(width=768),
            (torch.randint(0, 500, (1, 256)),),
            2.3,
        ),
    }


def net_rows(name: str, model: Any, args: tuple[Any, ...], most: float) -> None:
    import torch

    from neural_flow.capture.activations import run_capture_pass
    from neural_flow.capture.metadata import run_metadata_pass
    from neural_flow.options import Options, make_request
    from neural_flow.stages.select import select_stages
    from neural_flow.topology.resolve import resolve_topology

    request = make_request(Options())
    trace = run_metadata_pass(model, args)
    topology = resolve_topology(trace, select_stages(trace, request), request, model, args, {})

    def forward() -> None:
        with torch.no_grad():
            model(*args)

    works = {
        "forward": forward,
        "metadata": lambda: run_metadata_pass(model, args),
        "capture": lambda: run_capture_pass(model, args, {}, topology, trace=trace, **pictures_of(topology)),
    }
    times = interleaved(works)
    once = statistics.median(times["forward"])
    note = f"(forward {1000 * once:.0f} ms, {len(trace.ops)} ops, {len(topology.stages)} stages)"
    both = [first + second for first, second in zip(times["metadata"], times["capture"], strict=True)]
    report(f"{name}: structure", ratio(times["metadata"], times["forward"]), "x", 1.15, note)
    report(f"{name}: both passes", ratio(both, times["forward"]), "x", most)


def pictures_of(topology: Any) -> dict[str, Any]:
    """Return what the pipeline tells the capture pass to draw."""
    from neural_flow import pipeline

    choose = getattr(pipeline, "drawn_stage_ids", None)
    return {} if choose is None else {"picture_ids": choose(topology)}


def interleaved(works: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Return the CPU seconds of each of ``works``, in rounds: a busy machine slows all of a round down alike."""
    times: dict[str, list[float]] = {name: [] for name in works}
    start = time.monotonic()
    for index in range(10 * NUM_ROUNDS):
        for name, work in works.items():
            times[name].append(cpu_seconds(work))
        if time.monotonic() - start > MAX_SECONDS or (index >= NUM_ROUNDS and time.monotonic() - start > 4):
            break
    return {name: found[1:] for name, found in times.items()}  # the first round fills caches


def ratio(times: list[float], base: list[float]) -> float:
    return statistics.median(time / forward for time, forward in zip(times, base, strict=True))


# -- tiny ops ------------------------------------------------------------------------------------------------------


def tiny() -> None:
    """Print what the metadata pass costs an op, on a chain of ops that do next to nothing."""
    import torch
    from torch import nn

    from neural_flow.capture.dataflow import DataflowTracer
    from neural_flow.capture.metadata import run_metadata_pass

    torch.set_num_threads(1)

    class Chain(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(1000):
                x = torch.relu(x) + 1.0
            return x

    layers = nn.Sequential(*[nn.ReLU() for _ in range(2000)])
    chain, args = Chain(), (torch.randn(4),)

    def traced() -> None:
        with torch.no_grad(), DataflowTracer(chain):
            chain(*args)

    for name, model, work in (
        ("chain of functions, tracer alone", chain, traced),
        ("chain of functions, whole pass", chain, lambda: run_metadata_pass(chain, args)),
        ("chain of modules, whole pass", layers, lambda: run_metadata_pass(layers, args)),
    ):

        def forward(model: nn.Module = model) -> None:
            with torch.no_grad():
                model(*args)

        times = interleaved({"forward": forward, "pass": work})
        added = [seen - plain for seen, plain in zip(times["pass"], times["forward"], strict=True)]
        report(name, 1e6 * statistics.median(added) / 2000, "µs", 30.0, "(2000 ops)")


# -- rows of their own process -------------------------------------------------------------------------------------

PREPARE = """
import re, sys, time, torch
torch.set_num_threads(1)
from torch import nn
# ru_maxrss would begin at what the process that started this one had
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
"""

DEEP = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.act = nn.Linear(8, 8), nn.ReLU()
    def forward(self, x):
        return x + self.act(self.fc(x))
model, x = nn.Sequential(*[Block() for _ in range(int(sys.argv[1]))]), torch.randn(2, 8)
model(x)
import neural_flow as nf
nf.render(nn.Sequential(nn.Linear(8, 8)), x).to_bytes(".svg")
start = time.process_time()
nf.render(model, x).save(sys.argv[2])
print(time.process_time() - start, peak())
"""

LLAMA = """
from transformers import LlamaConfig, LlamaForCausalLM
with torch.device("meta"):
    model = LlamaForCausalLM(LlamaConfig({sizes}))
ids = torch.zeros(1, 16, dtype=torch.long)
import neural_flow as nf
import torch._subclasses.fake_tensor, torch._dynamo
small = nn.Sequential(nn.Linear(4, 4))
nf.trace(small, torch.randn(1, 4), fake=True)
before, start = peak(), time.process_time()
nf.render(model, (ids,), {{"use_cache": False}}, fake=True).save(sys.argv[1])
print(time.process_time() - start, peak() - before)
"""


def run_fresh(code: str, *args: str) -> list[float]:
    """Run ``code`` in a process of its own and return the numbers that it prints."""
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), *args]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=fresh_environment())
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return [float(word) for word in done.stdout.split()]


def fresh_environment() -> dict[str, str]:
    """Return the environment of a new process: one thread, compiled files kept as an installed package has them."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return env | {"PYTHONPATH": f"{ROOT}:{ROOT}/sample_models", "OMP_NUM_THREADS": "1"}


def deep() -> None:
    """Print what very deep models take from model to file."""
    with tempfile.TemporaryDirectory() as folder:
        for count, most in ((1000, 3.0), (3000, 8.0)):
            seconds, peak = run_fresh(PREPARE + DEEP, str(count), f"{folder}/deep.svg")
            report(f"{count} residual blocks to a file", seconds, "s", most, f"(peak {peak:.0f} MB)")


def memory() -> None:
    """Print what both passes hold at their peak beyond a forward: tensors, and objects of Python."""
    import torch

    torch.set_num_threads(1)
    for name, (model, args, _) in real_models().items():
        memory_rows(name, model.eval(), args)


def memory_rows(name: str, model: Any, args: tuple[Any, ...]) -> None:
    import torch

    from neural_flow.capture.activations import run_capture_pass
    from neural_flow.capture.metadata import run_metadata_pass
    from neural_flow.options import Options, make_request
    from neural_flow.stages.select import select_stages
    from neural_flow.topology.resolve import resolve_topology

    request = make_request(Options())

    def forward() -> None:
        with torch.no_grad():
            model(*args)

    trace = run_metadata_pass(model, args)
    topology = resolve_topology(trace, select_stages(trace, request), request, model, args, {})
    passes: list[Callable[[], Any]] = [
        lambda: run_metadata_pass(model, args),
        lambda: run_capture_pass(model, args, {}, topology, trace=trace, **pictures_of(topology)),
    ]
    summaries = passes[1]().summaries.values()
    pictures = sum(array.nbytes for summary in summaries for array in summary.arrays.values()) / 2**20
    plain = peak_of_tensors(forward)
    for what, run in zip(("structure", "capture"), passes, strict=True):
        tensors, objects = peak_of_tensors(run) - plain, peak_of_objects(run)
        note = f"(tensors {tensors:.2f}, objects {objects:.2f}, pictures {pictures:.2f}; forward {plain:.0f})"
        report(f"{name}: extra peak, {what}", tensors + objects, "MB", 10.0, note)


def peak_of_tensors(work: Callable[[], object]) -> float:
    """Return the peak of what the allocator has handed out for tensors, in MB."""
    from neural_flow.torch_private import AllocationLog

    with AllocationLog() as log:
        work()
    return max(itertools.accumulate(log.nbytes), default=0) / 2**20


def peak_of_objects(work: Callable[[], object]) -> float:
    """Return the peak of what Python has handed out for objects, in MB."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


def big() -> None:
    """Print what models too large for this machine take on fake tensors."""
    for name, sizes, seconds_most, most in (
        ("Llama-7B, fake", "", 4.0, 100.0),
        (
            "Llama-70B, fake",
            "hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64, "
            "num_key_value_heads=8",
            10.0,
            200.0,
        ),
    ):
        with tempfile.TemporaryDirectory() as folder:
            seconds, peak = run_fresh(PREPARE + LLAMA.format(sizes=sizes), f"{folder}/llama.svg")
        report(f"{name}: render beyond imports", seconds, "s", seconds_most)
        report(f"{name}: extra peak", peak, "MB", most)


def cold() -> None:
    """Print a whole ``render`` from the command line beside importing torch, building the model and one forward."""
    forward = """
    import torch
    from sample_models.unet import neural_flow_inputs, neural_flow_model
    model, x = neural_flow_model().eval(), neural_flow_inputs()
    with torch.no_grad():
        model(x)
    """
    with tempfile.TemporaryDirectory() as folder:
        rows = {
            "forward": ["-c", textwrap.dedent(forward)],
            "render": ["-m", "neural_flow", "render", "sample_models/unet.py", "-o", f"{folder}/unet.svg"],
            "help": ["-m", "neural_flow", "--help"],
        }
        times: dict[str, list[float]] = {name: [] for name in rows}
        for _ in range(NUM_ROUNDS + 1):
            for name, words in rows.items():
                times[name].append(fresh_seconds(words))
        times = {name: found[1:] for name, found in times.items()}  # the first round compiles
    note = f"(forward {statistics.median(times['forward']):.2f} s)"
    report("cold render of the U-Net", ratio(times["render"], times["forward"]), "x", 1.5, note)
    report("neural-flow --help", statistics.median(times["help"]), "s", 0.25)


def fresh_seconds(words: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, capture_output=True, cwd=ROOT, env=fresh_environment())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    sys.path[:0] = [str(ROOT), str(ROOT / "sample_models")]
    wanted = sys.argv[1:] or list(ROWS)
    for row in wanted:
        if row not in ROWS:
            raise SystemExit(f"no such rows: {row}; choose from {', '.join(ROWS)}")
        globals()[row]()


if __name__ == "__main__":
    main()
