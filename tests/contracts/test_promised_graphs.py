"""Whole behaviours that the documentation promises, each seen from outside through the public interface."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import neural_flow as nf


class SmallUNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()
        self.enc1, self.enc2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.mid, self.dec1 = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.act(self.enc1(x))
        second = self.enc2(F.max_pool2d(first, 2))
        middle = self.act(self.mid(second) + second)
        return self.dec1(torch.cat([F.interpolate(middle, scale_factor=2.0), first], 1))


def _edges(model: nn.Module, args: tuple[Any, ...], **options: Any) -> set[tuple[str, str, tuple[str, ...]]]:
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        topology = nf.trace(model, args, **options).record
    assert not any(edge.inferred for edge in topology.edges)
    names = [stage.name for stage in topology.stages]
    return {(names[edge.source], names[edge.target], tuple(edge.via)) for edge in topology.edges}


@pytest.mark.parametrize("source", ["dataflow", "fx", "export"])
def test_a_unet_has_the_same_edges_however_they_are_found(source: str) -> None:
    with torch.random.fork_rng():
        model = SmallUNet().eval()
    select = ("enc1", "enc2", "mid", "dec1", "act")
    assert _edges(model, (torch.ones(1, 1, 16, 16),), topology=source, select=select) == {
        ("x", "enc1", ()),
        ("enc1", "act", ()),
        ("act", "enc2", ()),
        ("act", "dec1", ("cat",)),
        ("enc2", "mid", ()),
        ("enc2", "act#1", ("add",)),
        ("mid", "act#1", ("add",)),
        ("act#1", "dec1", ("cat",)),
        ("dec1", "output", ()),
    }


class WritesIntoAView(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stage, self.next = nn.Linear(4, 4), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros(x.shape[0], 8)
        view = y[:, :4]
        view.add_(self.stage(x))
        return self.next(y)


@pytest.mark.parametrize("tracer", ["function", "dispatch"])
def test_what_is_written_through_a_view_flows_on(tracer: str) -> None:
    with torch.random.fork_rng():
        edges = _edges(WritesIntoAView(), (torch.ones(2, 4),), tracer=tracer)
    assert edges == {("x", "stage", ()), ("stage", "next", ()), ("next", "output", ())}


class Trained(nn.Module):
    def __init__(self, *, fails: bool) -> None:
        super().__init__()
        self.linear, self.norm, self.drop, self.fails = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), fails
        self.frozen = nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.drop(self.frozen(self.norm(self.linear(x))))
        _MASKS.append(y == 0)
        if self.fails:
            raise ValueError("late")
        return y


_MASKS: list[Tensor] = []


@pytest.mark.parametrize("fails", [False, True])
def test_a_training_model_drops_the_same_in_every_pass_and_is_left_as_it_was(fails: bool) -> None:
    with torch.random.fork_rng():
        model = Trained(fails=fails).train()
    model.frozen.eval()
    model.linear.weight.grad = torch.full((8, 8), 3.0)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    modes, random = [module.training for module in model.modules()], torch.get_rng_state()
    _MASKS.clear()
    if fails:
        with pytest.raises(nf.ForwardError) as raised:
            nf.render(model, (torch.arange(32.0).reshape(4, 8),), train=True)
        assert raised.value.drawing is not None
    else:
        nf.render(model, (torch.arange(32.0).reshape(4, 8),), train=True)
    assert len(_MASKS) >= 2
    assert _MASKS[0].any()
    assert all(torch.equal(_MASKS[0], mask) for mask in _MASKS)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(model.linear.weight.grad, torch.full((8, 8), 3.0))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert torch.backends.mha.get_fastpath_enabled()
    _MASKS.clear()


class Attends(nn.Module):
    def __init__(self, mask: Tensor | None) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        is_causal = self.mask is None
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask, is_causal=is_causal, enable_gqa=True)


@pytest.mark.parametrize("masked_row", [None, 2])
def test_attention_weights_are_those_that_made_the_output(masked_row: int | None) -> None:
    mask = None
    if masked_row is not None:
        mask = torch.ones(5, 7, dtype=torch.bool)
        mask[masked_row] = False
    random = torch.Generator().manual_seed(0)
    q, k, v = (torch.rand(1, heads, rows, 8, generator=random) for heads, rows in ((4, 5), (2, 7), (2, 7)))
    model = Attends(mask)
    with nf.AttentionTracer(model, keep="weights") as attention:
        output = model(q, k, v)
    (record,) = attention.records
    weights = record.weights
    sums = torch.ones(5)
    if masked_row is not None:
        sums[masked_row] = 0
    torch.testing.assert_close(weights.sum(-1), sums.expand(1, 4, 5))
    torch.testing.assert_close(weights @ v.repeat_interleave(2, 1), output)


class Up(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        return self.linear(torch.cat([x, skip], 1))


class Encoder(nn.Sequential):
    pass


class Joined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enc, self.up, self.head = Encoder(nn.Linear(4, 4), nn.Linear(4, 4)), Up(), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.up(self.enc(x), x))


def test_a_selected_module_that_holds_another_becomes_a_group() -> None:
    with torch.random.fork_rng():
        topology = nf.trace(Joined(), (torch.ones(2, 4),), select=("enc", "enc.1", "head")).record
    assert [stage.name for stage in topology.stages] == ["x", "enc.1", "head", "output"]
    assert [(group.module, group.stage_ids) for group in topology.groups] == [("enc", (1,))]


def test_what_joins_inside_a_stage_is_told_by_its_edges() -> None:
    with torch.random.fork_rng():
        edges = _edges(Joined(), (torch.ones(2, 4),), select=("enc", "up", "head"))
    assert {("x", "up", ("cat",)), ("enc", "up", ("cat",))} <= edges
