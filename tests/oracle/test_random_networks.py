"""Random networks, wired by adds, cats, slices, views, in-place writes and reuse: no edge is missing."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

WIDTH = 6
STEPS = st.sampled_from(["layer", "add", "mul", "cat", "slice", "inplace", "write", "view", "relu_", "repeat", "drop"])


class Random(nn.Module):
    """Runs a list of steps on a pool of values; every step reads the pool and appends to it."""

    def __init__(self, steps: list[tuple[str, int, int]]) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.steps = steps
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.narrow = nn.Linear(2 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pool = [self.layers[0](x)]
        for kind, first, second in self.steps:
            a, b = pool[first % len(pool)], pool[second % len(pool)]
            pool.append(self.step(kind, a, b, second))
        return self.head(pool[-1] + pool[len(pool) // 2])

    def step(self, kind: str, a: torch.Tensor, b: torch.Tensor, number: int) -> torch.Tensor:
        match kind:
            case "layer":
                return self.layers[number % 4](a)
            case "add":
                return a + b
            case "mul":
                return a * (1 + b)
            case "cat":
                return self.narrow(torch.cat([a, b], dim=1))
            case "slice":
                return torch.cat([a[:, :3], b[:, 3:]], dim=1)
            case "inplace":
                return a.add_(b)
            case "write":
                a[:, number % WIDTH :] = b[:, number % WIDTH :]
                return a
            case "view":
                return a.view(-1, 2, 3).transpose(1, 2).reshape(-1, WIDTH)
            case "relu_":
                return torch.relu_(a)
            case "repeat":
                buffer = torch.zeros(a.shape[0], 2 * WIDTH)
                buffer[:, :WIDTH] = a
                buffer.narrow(1, WIDTH, WIDTH).copy_(b)
                return buffer[:, :WIDTH] if number % 2 else buffer[:, WIDTH:]
            case _:
                return nn.functional.dropout(a, 0.5, training=False)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(st.lists(st.tuples(STEPS, st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=9))
def test_no_edge_that_interventions_show_is_missing(compare_with_oracle, steps):
    torch.manual_seed(0)
    missing, _ = compare_with_oracle(Random(steps), (torch.randn(3, WIDTH),), select="**")
    assert missing == set()
