"""From modules to diagrams: nets that people draw by hand, and random ones against what is true of every figure."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from neural_flow.capture.metadata import run_metadata_pass
from neural_flow.diagram import build_diagram
from neural_flow.drawing import Diagram
from neural_flow.records import Request, Topology
from neural_flow.stages.select import select_stages
from neural_flow.topology.resolve import resolve_topology


def draw(model: nn.Module, *args: Any, request: Request | None = None) -> tuple[Topology, Diagram]:
    request = request or Request()
    trace = run_metadata_pass(model.eval(), args)
    topology = resolve_topology(trace, select_stages(trace, request), request)
    return topology, build_diagram(topology)


def rings_into(diagram: Diagram) -> list[tuple[str, str]]:
    """Return (symbol, label of the card it feeds) of each ring, in order; empty where it feeds a ring only."""
    found = []
    for node in diagram.nodes:
        if node.role == "ring":
            fed = [diagram.nodes[a.target] for a in diagram.arrows if a.source == node.node_id and a.kind == "primary"]
            found.append((node.symbol, next((card.label for card in fed if card.role == "card"), "")))
    return found


class Bottleneck(nn.Module):
    def __init__(self, num_in: int, num_out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(num_in, num_out, 1), nn.BatchNorm2d(num_out)
        self.conv2, self.bn2 = nn.Conv2d(num_out, num_out, 3, stride, 1), nn.BatchNorm2d(num_out)
        self.downsample = nn.Conv2d(num_in, num_out, 1, stride) if stride > 1 or num_in != num_out else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.layer1 = nn.Sequential(Bottleneck(8, 16, 1), *(Bottleneck(16, 16, 1) for _ in range(2)))
        self.layer2 = nn.Sequential(Bottleneck(16, 32, 2), *(Bottleneck(32, 32, 1) for _ in range(3)))
        self.fc = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer2(self.layer1(F.max_pool2d(self.stem(x), 2)))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def test_a_resnet_has_one_residual_ring_a_stage(check: Callable[..., None]):
    topology, diagram = draw(ResNet(), torch.randn(1, 3, 32, 32))
    check(diagram, topology.stages)
    assert [symbol for symbol, _ in rings_into(diagram)] == ["add", "add"]
    assert rings_into(diagram)[-1] == ("add", "fc")
    assert [frame.badge for frame in diagram.frames if frame.kind == "fold"] == ["×3", "×4"]
    assert {arrow.text for arrow in diagram.arrows} >= {"pool ÷2", "global pool"}
    skips = [arrow for arrow in diagram.arrows if arrow.kind == "skip"]
    assert [diagram.nodes[arrow.target].role for arrow in skips] == ["ring", "ring"]


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(16), nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm2, self.mlp = nn.LayerNorm(16), nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(50, 16), nn.Embedding(8, 16)
        self.h, self.ln_f = nn.ModuleList(Layer() for _ in range(6)), nn.LayerNorm(16)
        self.head = nn.Linear(16, 50)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for layer in self.h:
            x = layer(x)
        return self.head(self.ln_f(x))


def test_a_transformer_has_two_residual_rings_and_one_for_its_positions(check: Callable[..., None]):
    topology, diagram = draw(Gpt(), torch.zeros(1, 8, dtype=torch.int64))
    check(diagram, topology.stages)
    (frame,) = (frame for frame in diagram.frames if frame.kind == "fold")
    assert (frame.badge, sum(diagram.nodes[node].role == "ring" for node in frame.node_ids)) == ("×6", 2)
    assert rings_into(diagram) == [("add", "norm1"), ("add", "norm2"), ("add", "ln_f")]


class Double(nn.Module):
    def __init__(self, num_in: int, num_out: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(num_in, num_out, 3, padding=1), nn.Conv2d(num_out, num_out, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.b(F.relu(self.a(x))))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = (4, 8, 16)
        self.downs = nn.ModuleList(Double(a, b) for a, b in zip((1, 4, 8), widths, strict=True))
        self.mid = Double(16, 32)
        self.ups = nn.ModuleList(nn.ConvTranspose2d(2 * b, b, 2, 2) for b in reversed(widths))
        self.decs = nn.ModuleList(Double(2 * b, b) for b in reversed(widths))
        self.head = nn.Conv2d(4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for down in self.downs:
            x = down(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.mid(x)
        for up, dec in zip(self.ups, self.decs, strict=True):
            x = dec(torch.cat([up(x), skips.pop()], 1))
        return self.head(x)


def test_a_unet_has_a_concat_ring_a_level_and_up_convolutions_on_its_arrows(check: Callable[..., None]):
    topology, diagram = draw(UNet(), torch.randn(1, 1, 32, 32))
    check(diagram, topology.stages)
    assert [symbol for symbol, _ in rings_into(diagram)] == ["concat"] * 3
    texts = [arrow.text for arrow in diagram.arrows if arrow.text]
    assert texts[:3] == ["pool ÷2"] * 3
    assert len(texts) == 6
    assert all("×2" in text for text in texts[3:])
    assert [arrow.kind for arrow in diagram.arrows].count("skip") == 3


# -- random nets -----------------------------------------------------------------------------------------------------


class Leaf(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.lin(x)))


class Add(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.f = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.f(x)


class Cat(Add):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__(inner)
        self.proj = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.proj(torch.cat([x, self.f(x)], -1))


class Twins(nn.Module):
    def __init__(self, parts: list[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = self.parts[0](x)
        for part in self.parts[1:]:
            total = total + part(x)
        return total


class Loop(Add):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x
        for _ in range(3):
            h = self.f(h + x)
        return h


class State(Add):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, total = torch.zeros_like(x), torch.zeros_like(x)
        for _ in range(4):
            h = self.f(x * h + x) + h
            total = total + h
        return total


class Stack(nn.Module):
    """Repeats in a residual stream, with a memory, with a running total of results or of what is added, or plain."""

    def __init__(self, parts: list[nn.Module], how: str) -> None:
        super().__init__()
        self.layers, self.how = nn.ModuleList(parts), how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        memory, total = x, torch.zeros(())
        for layer in self.layers:
            y = layer(x + memory if self.how == "memory" else x)
            x = x + y if self.how in ("residual", "taps") else y
            total = total + (y if self.how == "taps" else x)
        return total if self.how in ("total", "taps") else x


class Shaped(nn.Module):
    """A U without resizing: skips meet by addition."""

    def __init__(self, downs: list[nn.Module], mid: nn.Module, ups: list[nn.Module]) -> None:
        super().__init__()
        self.downs, self.mid, self.ups = nn.ModuleList(downs), mid, nn.ModuleList(ups)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for down in self.downs:
            x = down(x)
            skips.append(x)
        x = self.mid(x)
        for up in self.ups:
            x = up(x + skips.pop())
        return x


def random_net(rng: random.Random, depth: int) -> Callable[[], nn.Module]:
    """Return a function that makes one and the same random net, with new weights every time."""
    if depth == 0 or rng.random() < 0.15:
        return Leaf
    kind = rng.choice(["sequence", "add", "cat", "twins", "loop", "state", "stack", "stack", "shaped"])
    part, count = random_net(rng, depth - 1), rng.randint(2, 4)
    if kind == "sequence":
        parts = [random_net(rng, depth - 1) for _ in range(count)]
        return lambda: nn.Sequential(*(make() for make in parts))
    if kind == "stack":
        how = rng.choice(["residual", "memory", "total", "taps", "plain"])
        return lambda: Stack([part() for _ in range(count)], how)
    if kind == "shaped":
        other, middle = random_net(rng, depth - 1), random_net(rng, depth - 1)
        return lambda: Shaped([part() for _ in range(count)], middle(), [other() for _ in range(count)])
    if kind == "twins":
        return lambda: Twins([part() for _ in range(count)])
    wrapper = {"add": Add, "cat": Cat, "loop": Loop, "state": State}[kind]
    return lambda: wrapper(part())


def card_pairs(diagram: Diagram) -> set[tuple[int, int]]:
    """Return the cards that reach each other forward, through rings alone."""
    targets: dict[int, list[int]] = {node.node_id: [] for node in diagram.nodes}
    for arrow in diagram.arrows:
        if arrow.kind != "return":
            targets[arrow.source].append(arrow.target)
    found: set[tuple[int, int]] = set()
    for node in diagram.nodes:
        queue = list(targets[node.node_id]) if node.role == "card" else []
        seen: set[int] = set()
        while queue:
            at = queue.pop()
            if at not in seen:
                seen.add(at)
                if diagram.nodes[at].role == "ring":
                    queue += targets[at]
                else:
                    found.add((node.node_id, at))
    return found


def check_random_net(seed: int, check: Callable[..., None], false_arrows: Callable[..., object]) -> None:
    torch.manual_seed(seed)
    model = random_net(random.Random(seed), 3)()
    for request in (Request(), Request(has_folds=False, detail="layer")):
        topology, diagram = draw(model, torch.randn(2, 8), request=request)
        check(diagram, topology.stages)
        assert false_arrows(topology, diagram) == []
        fed = {arrow.target for arrow in diagram.arrows}
        for node in diagram.nodes:
            assert node.node_id in fed or topology.stages[node.stage_id or 0].kind == "input"
        edges = {(edge.source, edge.target) for edge in topology.edges}
        pairs = card_pairs(diagram)
        for a, b in pairs:  # no arrow without a value that flows
            first, second = diagram.nodes[a].stage_ids, diagram.nodes[b].stage_ids
            assert any((source, target) in edges for source in first for target in second), (seed, a, b)
        if not topology.folds:
            node_of = {stage: node.node_id for node in diagram.nodes for stage in node.stage_ids}
            assert pairs == {(node_of[source], node_of[target]) for source, target in edges}


@pytest.mark.parametrize("seed", range(12))
def test_random_nets_are_drawn_as_they_flow(seed: int, check: Callable[..., None], false_arrows: Callable[..., object]):
    check_random_net(seed, check, false_arrows)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 200))
def test_many_random_nets_are_drawn_as_they_flow(
    seed: int, check: Callable[..., None], false_arrows: Callable[..., object]
):
    check_random_net(seed, check, false_arrows)
