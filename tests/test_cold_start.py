"""What a render imports: each of these libraries would add a tenth of a second or more to every start."""

from __future__ import annotations

import subprocess
import sys

SLOW = ("networkx", "matplotlib", "torch._dynamo", "pandas", "scipy", "torchvision", "transformers")


def test_rendering_starts_without_libraries_that_it_does_not_need():
    code = (
        "import sys, torch, neural_flow as nf, neural_flow.cli.rendering\n"
        "nf.render(torch.nn.Linear(3, 2), torch.ones(1, 3)).to_bytes('.svg')\n"
        f"print([name for name in {SLOW!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_graph_becomes_a_networkx_graph_when_asked_for():
    import torch

    import neural_flow as nf

    graph = nf.trace(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()), torch.ones(1, 3)).to_networkx()
    assert graph.graph["status"] == "complete"
    assert {graph.nodes[node]["class_name"] for node in graph} >= {"Linear"}
