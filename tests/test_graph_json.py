"""Graphs to JSON and back, on the graph of a real model."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from torch import nn

import neural_flow as nf
from neural_flow import graph_json
from neural_flow.errors import ModelLoadError


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 8)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)) for _ in range(4))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return {"logits": self.head(x), "hidden": x}


@pytest.fixture(scope="module")
def drawing():
    return nf.render(Net(), torch.randn(3, 4), seed=0)


def stable(topology):
    """What survives a round trip: ids of calls and ops are of one run only."""
    metas = lambda found: tuple((meta.shape, meta.dtype) for meta in found)  # noqa: E731
    return (
        [
            (
                dataclasses.replace(stage, call_id=None, op_id=None, joined=(), inputs=(), outputs=()),
                metas(stage.outputs),
            )
            for stage in topology.stages
        ],
        [(edge.source, edge.target, edge.kind, edge.via, edge.through, metas(edge.tensors)) for edge in topology.edges],
        [(flow.source, flow.target, flow.kind, flow.through, metas(flow.arrived)) for flow in topology.flows],
        topology.folds,
        topology.groups,
        topology.joins,
        topology.residual_stage_ids,
        topology.model,
        topology.request,
    )


def test_a_graph_survives_the_round_trip(drawing):
    record = drawing.topology.record
    text = graph_json.dump_graph(graph_json.topology_to_json(record, drawing.picture.capture))
    back = graph_json.topology_from_json(json.loads(text))
    assert stable(back) == stable(record)
    again = graph_json.topology_to_json(back)
    assert again["fingerprint"] == json.loads(text)["fingerprint"]


def test_the_text_is_strict_json_with_a_line_for_each_node(drawing):
    data = graph_json.topology_to_json(drawing.topology.record, drawing.picture.capture)
    text = graph_json.dump_graph(data)
    assert json.loads(text, parse_constant=lambda name: pytest.fail(name)) == json.loads(json.dumps(data))
    assert all(sum(f'"id": "{node["id"]}"' in line for line in text.splitlines()) == 1 for node in data["nodes"])


def test_parameters_add_up_to_the_model(drawing):
    data = drawing.topology.to_json()
    own = sum(node["num_params"] - node["num_shared_params"] for node in data["nodes"])
    assert own + data["model"]["num_loose_params"] == data["model"]["num_params"]


def test_the_fingerprint_sees_the_architecture_and_nothing_else():
    x = torch.randn(3, 4)
    torch.manual_seed(0)
    first = nf.trace(Net(), x).to_json()["fingerprint"]
    torch.manual_seed(1)
    assert nf.trace(Net(), x + 1).to_json()["fingerprint"] == first, "weights and values do not count"
    wider = Net()
    wider.head = nn.Linear(8, 3)
    assert nf.trace(wider, x).to_json()["fingerprint"] != first


def test_networkx_carries_the_same_fields(drawing):
    graph = drawing.topology.to_networkx()
    data = drawing.topology.to_json()
    assert list(graph) == [node["id"] for node in data["nodes"]]
    assert all(graph.nodes[node["id"]]["name"] == node["name"] for node in data["nodes"])
    assert {(edge["source"], edge["target"]) for edge in data["edges"]} == set(graph.edges)


@pytest.mark.parametrize("data", [{}, {"schema": "neural-flow.graph/2"}, {"schema": graph_json.SCHEMA}, []])
def test_other_data_is_refused_with_a_hint(data):
    with pytest.raises(ModelLoadError) as caught:
        nf.Topology.from_json(data)
    assert "neural-flow render" in caught.value.hint


def test_counts_are_whole_and_exact():
    drawing = nf.render(Net(), torch.randn(3001, 4), color_by="flops", saved=True, gradients=True)
    (stem,) = (node for node in json.loads(drawing.to_bytes(".json"))["nodes"] if node.get("module") == "stem")
    assert stem["flops"] == 2 * 3001 * 4 * 8
    assert {key: type(stem[key]) for key in ("flops", "saved_nbytes", "gradient_norm")} == {
        "flops": int,
        "saved_nbytes": int,
        "gradient_norm": float,
    }
