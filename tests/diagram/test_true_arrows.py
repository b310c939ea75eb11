"""Nets whose repeats differ from the one that is drawn: no arrow without a value, and every turn leads back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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

Check = Callable[..., None]
FalseArrows = Callable[[Topology, Diagram], list[tuple[str, str, str]]]


@pytest.fixture
def draw(check: Check, false_arrows: FalseArrows) -> Callable[..., tuple[Topology, Diagram]]:
    """Return the function that draws a model and checks what is true of every figure."""

    def drawn(model: nn.Module, *args: Any) -> tuple[Topology, Diagram]:
        trace = run_metadata_pass(model.eval(), args)
        topology = resolve_topology(trace, select_stages(trace, Request()), Request())
        diagram = build_diagram(topology)
        check(diagram, topology.stages)
        assert false_arrows(topology, diagram) == []
        return topology, diagram

    return drawn


def names_of(diagram: Diagram) -> list[str]:
    """Return the label of each card, and the symbol of each ring with what feeds it first."""
    names: list[str] = []
    for node in diagram.nodes:
        source = next((arrow.source for arrow in diagram.arrows if arrow.target == node.node_id), 0)
        names.append(node.label if node.role == "card" else f"{node.symbol}({names[source]})")
    return names


def arrows_of(diagram: Diagram, *, are_returns: bool = False) -> set[tuple[str, str]]:
    names = names_of(diagram)
    return {
        (names[arrow.source], names[arrow.target])
        for arrow in diagram.arrows
        if (arrow.kind == "return") == are_returns
    }


class GatedBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.filter, self.gate = nn.Conv1d(8, 8, 3, padding=1), nn.Conv1d(8, 8, 3, padding=1)
        self.residual, self.skip = nn.Conv1d(8, 8, 1), nn.Conv1d(8, 16, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = torch.tanh(self.filter(x)) * torch.sigmoid(self.gate(x))
        return x + self.residual(z), self.skip(z)


class WaveNet(nn.Module):
    def __init__(self, num_blocks: int) -> None:
        super().__init__()
        self.causal = nn.Conv1d(1, 8, 1)
        self.blocks = nn.ModuleList(GatedBlock() for _ in range(num_blocks))
        self.post = nn.Conv1d(16, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, total = self.causal(x), torch.zeros(())
        for block in self.blocks:
            x, skip = block(x)
            total = total + skip
        return self.post(F.relu(total))


def test_the_sum_of_all_skips_leaves_from_the_skip(draw: Callable[..., tuple[Topology, Diagram]]):
    _, diagram = draw(WaveNet(6), torch.randn(1, 1, 32))
    arrows = arrows_of(diagram)
    assert {("skip", "add(skip)"), ("add(skip)", "post")} <= arrows
    assert {source for source, target in arrows if target == "post"} == {"add(skip)"}
    assert {("causal", "add(causal)"), ("residual", "add(causal)")} <= arrows
    (fold,) = diagram.frames
    assert "add(causal)" in {names_of(diagram)[node] for node in fold.node_ids}


def test_an_arrow_moved_to_another_end_is_found(
    draw: Callable[..., tuple[Topology, Diagram]], false_arrows: FalseArrows
):
    topology, diagram = draw(WaveNet(6), torch.randn(1, 1, 32))
    names = names_of(diagram)
    place = next(a.arrow_id for a in diagram.arrows if names[a.target] == "post")
    for wrong in ("residual", "add(causal)", "x"):
        arrows = list(diagram.arrows)
        arrows[place] = replace(arrows[place], source=names.index(wrong))
        assert len(false_arrows(topology, replace(diagram, arrows=tuple(arrows)))) == 1


class Tapped(nn.Module):
    """Results of all layers are summed; so is what the last one hands on."""

    def __init__(self, *, adds_last: bool) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(nn.Linear(8, 8) for _ in range(5)), nn.Linear(8, 2)
        self.adds_last = adds_last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sides = []
        for layer in self.layers:
            x = F.relu(x + layer(x))
            sides.append(x)
        total = torch.stack(sides).sum(0) if not self.adds_last else sum(sides, torch.zeros(())) + x
        return self.head(total)


@pytest.mark.parametrize("adds_last", [False, True])
def test_a_sum_over_a_closed_repeat_stands_behind_it(draw: Callable[..., tuple[Topology, Diagram]], adds_last: bool):
    _, diagram = draw(Tapped(adds_last=adds_last), torch.randn(2, 8))
    symbol = "add(Linear)" if adds_last else "concat(Linear)"
    assert arrows_of(diagram) == {("x", "Linear"), ("Linear", symbol), (symbol, "head"), ("head", "output")}
    assert not any(arrow.kind == "return" for arrow in diagram.arrows)


class Equilibrium(nn.Module):
    """A loop that starts with zeros, so that its first turn has nothing to add to."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        z = torch.zeros_like(x)
        for _ in range(5):
            z = self.norm(z + self.second(x.repeat(1, 2) + self.first(z)))
        return self.head(z)


def test_a_loop_from_zeros_shows_the_sums_of_its_later_turns(draw: Callable[..., tuple[Topology, Diagram]]):
    _, diagram = draw(Equilibrium(), torch.randn(2, 8))
    assert ("second", "add(second)") in arrows_of(diagram)
    assert ("second", "norm") not in arrows_of(diagram)
    assert arrows_of(diagram, are_returns=True) == {("norm", "first"), ("norm", "add(second)")}


class Decoder(nn.Module):
    """Two cells; a running sum that only the next turn reads; a context that is joined to the next input."""

    def __init__(self) -> None:
        super().__init__()
        self.prenet, self.cell, self.memory = nn.Linear(4, 8), nn.GRUCell(16, 8), nn.Linear(8, 8)
        self.weigh, self.project = nn.Linear(8, 8), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        memory = self.memory(x)
        frame, state, context = torch.zeros(2, 4), torch.zeros(2, 8), torch.zeros(2, 8)
        seen, frames = torch.zeros(2, 8), []
        for _ in range(5):
            state = self.cell(torch.cat([self.prenet(frame), context], 1), state)
            weights = torch.softmax(self.weigh(state + seen), 1)
            seen, context = seen + weights, weights * memory
            frame = self.project(torch.cat([state, context], 1))
            frames.append(frame)
        return torch.stack(frames, 1)


def test_every_return_of_a_loop_is_drawn(draw: Callable[..., tuple[Topology, Diagram]]):
    _, diagram = draw(Decoder(), torch.randn(2, 8))
    assert ("weigh", "add(weigh)") in arrows_of(diagram)
    assert arrows_of(diagram, are_returns=True) == {
        ("project", "prenet"),
        ("mul(memory)", "concat(prenet)"),
        ("cell", "cell"),
        ("add(weigh)", "add(weigh)"),
        ("add(weigh)", "add(cell)"),
    }


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        total = torch.zeros_like(x)
        for _ in range(5):
            total = total + self.second(torch.tanh(self.first(x * (1 + total))))
        return total


def test_a_first_turn_that_goes_past_a_join_has_no_line_of_its_own(draw: Callable[..., tuple[Topology, Diagram]]):
    _, diagram = draw(Scaled(), torch.randn(2, 8))
    arrows = arrows_of(diagram)
    assert {("stem", "mul(stem)"), ("mul(stem)", "first")} <= arrows
    assert ("stem", "first") not in arrows
    assert arrows_of(diagram, are_returns=True) == {("add(second)", "mul(stem)"), ("add(second)", "add(second)")}


class Aided(nn.Module):
    """One of the middle blocks has a head of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.ModuleDict({"up": nn.Linear(8, 16), "down": nn.Linear(16, 8)}) for _ in range(4))
        self.aid, self.head = nn.Linear(16, 2), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        aid = torch.zeros(())
        for number, block in enumerate(self.blocks):
            inner = F.relu(block["up"](x))
            if number == 2:
                aid = self.aid(inner)
            x = x + block["down"](inner)
        return self.head(x), aid


def test_what_one_member_has_alone_hangs_on_what_it_reads(draw: Callable[..., tuple[Topology, Diagram]]):
    _, diagram = draw(Aided(), torch.randn(2, 8))
    assert ("aid", "output[1]") in arrows_of(diagram)
    assert not any(target == "aid" and source.startswith("add") for source, target in arrows_of(diagram))
