"""Parameters that come in as data: class tokens, queries, constant inputs, tables read by ids."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from neural_flow import pipeline
from neural_flow.records import Request
from neural_flow.stages.select import select_stages


def learned(b, name, *parents, shape=(1, 1, 8)):
    """Take a parameter of the running module as data."""
    return b._op("torch.Tensor.expand", parents, (b._param(name, shape),), shape)


def test_a_class_token_beside_the_signal_is_a_stage_and_a_position_that_is_added_is_not(builder):
    b = builder()
    with b.call("", "Net") as out:
        x = b.leaf("patch", "Linear", b.input("x", (1, 4, 8)))
        x = b.op("torch.cat", learned(b, "cls_token"), x, shape=(1, 5, 8))
        x = b.op("torch.add", x, learned(b, "pos_embed", shape=(1, 5, 8)), shape=(1, 5, 8))
        out.append(b.leaf("head", "Linear", x))
    selection = select_stages(b.finish(out[0]), Request())
    cards = [stage for stage in selection.stages if stage.kind in ("module", "op")]
    assert [card.label for card in cards] == ["patch", "cls_token", "head"]
    assert (cards[1].class_name, cards[1].num_params) == ("learned", 8)


def test_queries_and_a_constant_input_are_stages_and_weights_are_not(builder):
    b = builder()
    with b.call("", "Net") as out:
        memory = b.leaf("encode", "Linear", b.input("x", (1, 4, 8)))
        query = b.op("torch.Tensor.repeat", learned(b, "query"), shape=(1, 1, 8))
        with b.call("attend", "Attention", query, memory) as made:
            made.append(b.op("torch.nn.functional.multi_head_attention_forward", query, memory))
            b._ops[-1] = replace(b._ops[-1], params=(b._param("in_proj", (24, 8)),))
        with b.call("deform", "Modulated", made[0]) as bent:
            weight = b.op("torch.mul", learned(b, "weight", shape=(8, 8)), b.linear(made[0], 8, "style"))
            bent.append(b.op("torch.nn.functional.conv2d", learned(b, "const", shape=(1, 8, 4, 4)), weight))
        weight = b.op("torch.Tensor.t", learned(b, "tied", shape=(8, 8)))
        out.append(b.op("torch.nn.functional.linear", bent[0], weight))
    selection = select_stages(b.finish(out[0]), Request(detail="layer"))
    found = {stage.label for stage in selection.stages if stage.class_name == "learned"}
    assert found == {"query", "const"}


def test_rows_of_a_parameter_read_by_ids_are_an_embedding(builder):
    b = builder()
    with b.call("", "Net") as out:
        ids = b.input("ids", (1, 4), dtype="int64")
        table = (b._param("table", (40, 8)),)
        words = b._op("torch.Tensor.__getitem__", (ids,), table, (1, 4, 8))
        places = b._op("torch.Tensor.__getitem__", (b.op("torch.arange", dtype="int64"),), table, (1, 4, 8))
        out.append(b.leaf("head", "Linear", b.op("torch.add", words, places, shape=(1, 4, 8))))
    selection = select_stages(b.finish(out[0]), Request())
    assert [stage.class_name for stage in selection.stages if stage.kind == "op"] == ["lookup"]
    assert selection.plumbing_inputs == ()


class Decoder(nn.Module):
    """Queries look at each other, then at what was encoded; the sum of both is handed on."""

    def __init__(self):
        super().__init__()
        self.encode, self.head = nn.Linear(8, 8), nn.Linear(8, 2)
        self.query = nn.Parameter(torch.randn(3, 8))
        self.among = nn.MultiheadAttention(8, 2, batch_first=True)
        self.across = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        memory = self.encode(x)
        query = self.query[None].expand(x.shape[0], -1, -1)
        query = query + self.among(query, query, query)[0]
        return self.head(query + self.across(query, memory, memory)[0])


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Parameter(torch.randn(20, 8)), nn.Linear(8, 2)

    def forward(self, ids):
        return self.head(self.table[ids])


def edges_of(model, *args):
    topology = pipeline.trace(model, args).record
    labels = {stage.stage_id: stage.label for stage in topology.stages}
    return {(labels[edge.source], labels[edge.target]) for edge in topology.edges if not edge.plumbing}


def test_queries_feed_what_reads_them_and_the_sum_behind_it():
    assert edges_of(Decoder(), torch.randn(2, 5, 8)) == {
        ("x", "encode"), ("query", "among"), ("query", "across"), ("among", "across"), ("encode", "across"),
        ("query", "head"), ("among", "head"), ("across", "head"), ("head", "output"),
    }  # fmt: skip


def test_ids_feed_the_table_that_they_are_looked_up_in():
    assert edges_of(Table(), torch.tensor([[1, 2, 3]])) == {("ids", "lookup"), ("lookup", "head"), ("head", "output")}


def test_one_vector_becomes_a_token_where_it_stands_in_a_row(builder):
    b = builder()
    with b.call("", "Net") as out:
        x = b.leaf("patch", "Linear", b.input("x", (1, 4, 8)))
        token = b._op("torch.Tensor.expand", (), (b._param("class_embedding", (8,)),), (1, 1, 8))
        bias = b._op("torch.Tensor.view", (), (b._param("bias", (8,)),), (1, 1, 8))
        x = b.op("torch.add", b.op("torch.cat", token, x, shape=(1, 5, 8)), bias, shape=(1, 5, 8))
        out.append(b.leaf("head", "Linear", x))
    selection = select_stages(b.finish(out[0]), Request())
    assert [stage.label for stage in selection.stages if stage.kind == "op"] == ["class_embedding"]
