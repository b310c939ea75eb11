"""The same trace gives the same stages: in every process, and in time that grows with the model."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from neural_flow.records import Request
from neural_flow.stages.select import select_stages

HERE = Path(__file__).parent
SCRIPT = """
import importlib.util, sys
def load(name):
    spec = importlib.util.spec_from_file_location(name, f"{sys.argv[1]}/{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
builder, properties = load("trace_builder").TraceBuilder, load("test_properties")
from neural_flow.records import Request
from neural_flow.stages.select import select_stages
for seed in range(40):
    _, trace = properties.random_trace(builder, seed)
    for detail in ("auto", "layer", "op"):
        print(select_stages(trace, Request(detail=detail)))
assert "torch" not in sys.modules
"""


def test_hash_seeds_change_nothing():
    said = []
    for seed in ("0", "1"):
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(HERE)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(HERE.parents[1])},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        said.append(run.stdout)
    assert said[0] == said[1]


def long_net(builder_class, num_blocks: int, width: int):
    """Write a list of residual blocks, of which no two of one width are neighbours where ``width`` is more than 1."""
    builder = builder_class()
    with builder.call("", "Net") as out:
        x = builder.input("x")
        for k in range(num_blocks):
            with builder.call(f"layers.{k}", "Block", x) as made:
                h = builder.leaf(f"layers.{k}.a", "Linear", x, 4 + k % width)
                h = builder.leaf(f"layers.{k}.b", "Linear", builder.leaf(f"layers.{k}.act", "Act", h), 8)
                made.append(builder.op("torch.add", x, h))
            x = made[0]
        out.append(x)
    return builder.finish(out[0])


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 50])
@pytest.mark.parametrize("detail", ["auto", "layer", "op"])
def test_time_grows_with_the_model(builder, detail, width):
    seconds = []
    for num_blocks in (625, 2500):
        trace = long_net(builder, num_blocks, width)
        best = 1e9
        for _ in range(3):
            start = time.process_time()
            select_stages(trace, Request(detail=detail))
            best = min(best, time.process_time() - start)
        seconds.append(best)
    print(f"stages {detail} width {width}: {seconds[1]:.2f} s for {len(trace.calls)} calls, {len(trace.ops)} ops")
    assert seconds[1] < 9 * seconds[0] + 0.05
