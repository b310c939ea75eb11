"""A model that emits to probes made in its file: each becomes a small card, hung on what its value came from."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import neural_flow as nf

SCORES = nf.Probe.make(name="scores")


class Attention(nn.Module):
    def __init__(self, collects):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.collects = collects

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(-1, -2) / 4

        def observed():
            SCORES.emit(scores)
            return scores.softmax(-1)

        weights = SCORES.collect(observed, eager=False)[0].unwrap() if self.collects else observed()
        return weights @ self.value(x)


class Net(nn.Module):
    def __init__(self, collects=False):
        super().__init__()
        self.embed, self.attend, self.head = nn.Linear(8, 16), Attention(collects), nn.Linear(16, 4)

    def forward(self, x):
        h = self.embed(x)
        return self.head(h + self.attend(h))


@pytest.mark.parametrize("collects", [False, True])
def test_an_emit_is_a_card_with_a_picture_and_an_edge(collects):
    drawing = nf.render(Net(collects), torch.randn(1, 10, 8), seed=0)
    data = drawing.topology.to_json()
    [node] = [node for node in data["nodes"] if node["kind"] == "probe"]
    assert (node["name"], node["module"], node["call"]) == ("scores", "attend", 0)
    assert node["inputs"] == [{"shape": [1, 10, 10], "dtype": "float32"}]
    names = {found["id"]: found["name"] for found in data["nodes"]}
    into = [(names[edge["source"]], edge["inferred"]) for edge in data["edges"] if edge["target"] == node["id"]]
    assert into == [("attend.query", False), ("attend.key", False)]
    stage_id = int(node["id"][1:])
    assert stage_id in drawing.picture.capture.summaries
    assert drawing.picture.capture.stats[stage_id].num_nan == 0
    assert any(item.text == "scores" for item in drawing.picture.scenes[0].marks if hasattr(item, "text"))


def test_the_other_edges_are_those_of_the_model_without_a_probe():
    class Plain(Attention):
        def forward(self, x):
            scores = self.query(x) @ self.key(x).transpose(-1, -2) / 4
            return scores.softmax(-1) @ self.value(x)

    plain = Net()
    plain.attend = Plain(False)

    def edges(model):
        topology = nf.trace(model, torch.randn(1, 10, 8))
        names = {stage.stage_id: (stage.kind, stage.name) for stage in topology.stages}
        return {
            (names[edge.source], names[edge.target], edge.kind)
            for edge in topology.edges
            if names[edge.target][0] != "probe"
        }

    assert edges(Net()) == edges(plain)


def test_a_probe_without_a_name_and_one_that_emits_in_a_loop():
    probe = nf.Probe.make()

    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x):
            for _ in range(2):
                x = torch.tanh(self.cell(x))
                probe.emit({"state": x})
            return self.head(x)

    topology = nf.trace(Loop(), torch.randn(3, 4))
    found = [stage.name for stage in topology.stages if stage.kind == "probe"]
    assert len(found) == 2
    assert all(name.startswith("probe.state") for name in found)
