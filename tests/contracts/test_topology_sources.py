"""What every topology source must do, once per registered name."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from neural_flow.capture.metadata import run_metadata_pass
from neural_flow.records import ModuleCall, Request, Selection, Stage, Topology, Trace
from neural_flow.topology._base import TOPOLOGY_SOURCES
from neural_flow.topology.resolve import resolve_topology

SOURCES = TOPOLOGY_SOURCES.names()
OBSERVERS = tuple(name for name in SOURCES if name != "sequential")


class Double(nn.Module):
    def __init__(self, num_in: int, num_out: int) -> None:
        super().__init__()
        self.a = nn.Conv2d(num_in, num_out, 3, padding=1)
        self.b = nn.Conv2d(num_out, num_out, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.b(F.relu(self.a(x))))


class UNet(nn.Module):
    """Skips by cat, a residual add, one activation module for two places, resizing by functions."""

    def __init__(self) -> None:
        super().__init__()
        self.enc, self.mid, self.dec = Double(1, 4), Double(4, 4), Double(8, 4)
        self.act, self.head = nn.ReLU(), nn.Conv2d(4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skip = self.act(self.enc(x))
        down = F.max_pool2d(skip, 2)
        mid = self.act(self.mid(down) + down)
        up = F.interpolate(mid, scale_factor=2)
        return self.head(self.dec(torch.cat([up, skip], 1)))


class Towers(nn.Module):
    """Two inputs of which one is a nest, a keyword, a dict of outputs, a shared tower."""

    def __init__(self) -> None:
        super().__init__()
        self.tower, self.table = nn.Linear(4, 4), nn.Linear(3, 4)
        self.fuse, self.head_a, self.head_b = nn.Linear(12, 4), nn.Linear(4, 2), nn.Linear(4, 1)

    def forward(self, pair: tuple[torch.Tensor, torch.Tensor], *, table: torch.Tensor, scale: float = 1.0) -> Any:
        left, right = pair
        merged = torch.cat([self.tower(left), self.tower(right) * scale, self.table(table)], -1)
        fused = self.fuse(merged)
        return {"a": self.head_a(fused), "b": self.head_b(fused)}


class Recurrent(nn.Module):
    """A module that returns several tensors, an optional argument that is not given, a shape taken from the input."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm, self.head = nn.Embedding(10, 4), nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 2)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        x = self.embed(ids)
        if mask is not None:
            x = x * mask
        out, _ = self.lstm(x)
        return self.head(out.reshape(out.shape[0], -1, 6)[:, -1])


class Attention(nn.Module):
    """q, k and v meet in glue of the parent; a residual stream of several layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.ModuleDict({k: nn.Linear(4, 4) for k in "qkvo"}) for _ in range(3))
        self.norm = nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            q, k, v = layer["q"](x), layer["k"](x), layer["v"](x)
            weights = torch.softmax(q @ k.transpose(-1, -2), -1)
            x = x + layer["o"](weights @ v)
        return self.norm(x)


def leaf_calls(trace: Trace) -> Callable[[ModuleCall], bool]:
    parents = {call.parent_id for call in trace.calls}
    return lambda call: call.call_id not in parents


def named(*class_names: str) -> Callable[[Trace], Callable[[ModuleCall], bool]]:
    return lambda trace: lambda call: call.class_name in class_names


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...], dict[str, Any], Any]] = {
    "unet blocks": (UNet, (torch.randn(1, 1, 8, 8),), {}, named("Double", "ReLU", "Conv2d")),
    "unet leaves": (UNet, (torch.randn(1, 1, 8, 8),), {}, leaf_calls),
    "towers": (
        Towers,
        ((torch.randn(2, 4), torch.randn(2, 4)),),
        {"table": torch.randn(2, 3), "scale": 2.0},
        leaf_calls,
    ),
    "recurrent": (Recurrent, (torch.zeros(2, 5, dtype=torch.int64),), {}, leaf_calls),
    "attention": (Attention, (torch.randn(1, 3, 4),), {}, leaf_calls),
    "whole": (UNet, (torch.randn(1, 1, 8, 8),), {}, named("UNet")),
}


def choose(trace: Trace, wanted: Callable[[ModuleCall], bool]) -> Selection:
    """Return a selection of wanted calls, none inside another."""
    stages = [
        Stage(stage_id=k, kind="input", name=leaf.name, label=leaf.name, index=k, outputs=(leaf.meta,))
        for k, leaf in enumerate(trace.inputs)
    ]
    covered: set[int] = set()
    for call in trace.calls:
        if call.parent_id in covered or wanted(call):
            if call.parent_id not in covered:
                name = f"{call.path}#{call.call_index}"
                stages.append(
                    Stage(
                        stage_id=len(stages),
                        kind="module",
                        name=name,
                        label=name,
                        class_name=call.class_name,
                        path=call.path,
                        call_id=call.call_id,
                        call_index=call.call_index,
                        inputs=call.inputs,
                        outputs=call.outputs,
                        num_params=1,
                    )
                )
            covered.add(call.call_id)
    for k, leaf in enumerate(trace.outputs):
        stages.append(Stage(stage_id=len(stages), kind="output", name=leaf.name, label=leaf.name, index=k))
    return Selection(stages=tuple(stages))


@cache
def topology_of(case: str, source: str) -> Topology:
    torch.manual_seed(0)
    make, args, kwargs, wanted = CASES[case]
    model = make().eval()
    trace = run_metadata_pass(model, args, kwargs)
    return resolve_topology(
        trace, choose(trace, wanted(trace)), Request(topology=source), model=model, args=args, kwargs=kwargs
    )


def edge_set(topology: Topology) -> set[tuple[Any, ...]]:
    return {(edge.source, edge.target, edge.kind, edge.plumbing) for edge in topology.edges}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("source", SOURCES)
def test_answers_with_an_acyclic_connected_graph_of_the_stages(source: str, case: str):
    topology = topology_of(case, source)
    assert topology.source == source
    places = {stage.stage_id: place for place, stage in enumerate(topology.stages)}
    assert all(places[edge.source] < places[edge.target] for edge in topology.edges)
    assert len({(edge.source, edge.target) for edge in topology.edges}) == len(topology.edges)
    fed = {edge.target for edge in topology.edges}
    assert all(stage.stage_id in fed for stage in topology.stages if stage.kind != "input")
    assert all(edge.inferred == (source == "sequential") for edge in topology.edges)
    primaries = [edge.target for edge in topology.edges if edge.kind == "primary"]
    assert sorted(primaries) == sorted(fed)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("source", OBSERVERS)
def test_all_observers_see_the_same_edges(source: str, case: str):
    assert edge_set(topology_of(case, source)) == edge_set(topology_of(case, "dataflow"))


@pytest.mark.parametrize("source", OBSERVERS)
def test_all_observers_name_the_same_meetings_outside_stages(source: str):
    seen = topology_of("unet leaves", source)
    expected = topology_of("unet leaves", "dataflow")
    assert [(edge.via, edge.through) for edge in seen.edges] == [(edge.via, edge.through) for edge in expected.edges]
    assert [join.target for join in seen.joins] == ["add", "cat"]


class Untidy(nn.Module):
    """Leaves traces in attributes, counts in a buffer, draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(()))
        self.last: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        self.last = x
        noise = torch.rand(4)
        return self.layer(x + noise)


@pytest.mark.parametrize("source", SOURCES)
def test_the_model_and_the_random_state_stay_as_they_were(source: str, capfd: pytest.CaptureFixture[str]):
    model, x = Untidy(), torch.randn(2, 4)
    trace = run_metadata_pass(model, (x,))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    ids = [id(value) for value in (*model.parameters(), *model.buffers())]
    state, attributes = torch.get_rng_state(), dict(vars(model))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        resolve_topology(trace, choose(trace, leaf_calls(trace)), Request(topology=source), model, (x,))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [id(value) for value in (*model.parameters(), *model.buffers())] == ids
    assert vars(model) == attributes
    assert torch.equal(torch.get_rng_state(), state)
    assert capfd.readouterr() == ("", "")
