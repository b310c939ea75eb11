"""Inputs as people give them: containers, keywords, values that are no tensors, any dtype."""

from __future__ import annotations

import pytest
import torch
from asked import edges_of, stage, topology_of
from torch import nn

import neural_flow as nf
from neural_flow.errors import NeuralFlowError


class TwoStems(nn.Module):
    """Sends each item of a list of dicts through the stem that its key names."""

    def __init__(self):
        super().__init__()
        self.stems = nn.ModuleDict({"image": nn.Linear(4, 6), "sound": nn.Linear(3, 6)})
        self.body = nn.Linear(6, 2)

    def forward(self, items):
        parts = [self.stems[key](value) for item in items for key, value in item.items()]
        return self.body(sum(parts))


def test_a_list_of_dicts_is_one_argument():
    items = [{"image": torch.rand(1, 4)}, {"sound": torch.rand(1, 3)}]
    expected = {
        ("items[0].image", "stems.image"),
        ("items[1].sound", "stems.sound"),
        ("stems.image", "body"),
        ("stems.sound", "body"),
        ("body", "output"),
    }
    assert edges_of(TwoStems(), items) == expected
    assert edges_of(TwoStems(), (items,)) == expected


class Batch(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, batch):
        return {"y": self.layer(batch["x"]), "nothing": None, "count": batch["count"]}


def test_values_that_are_no_tensors_are_carried_untouched():
    batch = {"x": torch.rand(2, 4), "id": "a7", "count": 3, "path": ["one", "two"]}
    topology = topology_of(Batch(), (batch,))
    assert [one.name for one in topology.stages if one.kind == "input"] == ["batch.x"]
    assert edges_of(Batch(), (batch,)) == {("batch.x", "layer"), ("layer", "y")}
    assert batch["path"] == ["one", "two"]
    assert nf.render(Batch(), (batch,)).to_bytes(".svg")


class Keywords(nn.Module):
    def __init__(self):
        super().__init__()
        self.child = nn.Linear(4, 4)
        self.inner = Inner()

    def forward(self, *, x, mask=None):
        y = self.inner(value=self.child(x))
        return y if mask is None else y * mask


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, *, value, scale=None):
        return self.layer(value) if scale is None else self.layer(value) * scale


def test_keyword_only_arguments_are_named_inputs():
    x, mask = torch.rand(2, 4), torch.ones(2, 4)
    expected = {("x", "child"), ("child", "inner"), ("inner", "output")}
    assert edges_of(Keywords(), (), {"x": x}) == expected
    assert edges_of(Keywords(), (), {"x": x, "mask": None}) == expected
    assert edges_of(Keywords(), (), {"mask": mask, "x": x}) == {*expected, ("mask", "output")}


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.time, self.extra, self.last = (
            nn.Linear(4, 4),
            nn.Linear(1, 4),
            nn.Linear(3, 4),
            nn.Linear(4, 4),
        )

    def forward(self, x, t, ctx=None, *, extra=None, return_dict=True):
        y = self.first(x) + self.time(t.float().reshape(1, 1))
        if extra is not None:
            y = y + self.extra(extra["emb"])
        y = self.last(y if ctx is None else y + ctx)
        return {"sample": y} if return_dict else (y,)


@pytest.mark.parametrize(("return_dict", "output"), [(False, "output[0]"), (True, "sample")])
def test_positions_of_none_scalars_and_nested_keywords(return_dict, output):
    args = (torch.rand(1, 4), torch.tensor(7), None)
    kwargs = {"extra": {"emb": torch.rand(1, 3)}, "return_dict": return_dict}
    assert edges_of(Denoiser(), args, kwargs) == {
        ("x", "first"), ("t", "time"), ("extra.emb", "extra"), ("first", "last"), ("time", "last"), ("extra", "last"),
        ("last", output),
    }  # fmt: skip


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(10, 4), nn.Linear(4, 2)

    def forward(self, tokens, mask):
        y = self.embed(tokens) * mask[..., None]
        return self.head(y.sum(1) / mask.sum(1, keepdim=True))


def test_ids_and_boolean_masks_keep_their_kinds():
    topology = topology_of(Tokens(), (torch.randint(10, (2, 5)), torch.ones(2, 5, dtype=torch.bool)))
    assert stage(topology, "tokens").outputs[0].dtype == "int64"
    assert stage(topology, "mask").outputs[0].dtype == "bool"


def test_a_wrong_kind_of_input_is_one_short_error():
    with pytest.raises(NeuralFlowError) as caught:
        nf.trace(nn.Linear(4, 2), ([3, 4],))
    assert "Linear" in str(caught.value) or "linear" in str(caught.value)
