"""A session puts everything back, whatever the model does and however it ends."""

from __future__ import annotations

import gc
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from neural_flow.capture.session import Session

pytestmark = pytest.mark.usefixtures("nothing_left")


def state_of(model: nn.Module) -> dict[str, Any]:
    """Every bit of a model's state that a run could change, by identity, value, version and address."""
    state: dict[str, Any] = {}
    for path, module in model.named_modules():
        state[f"{path} class"] = type(module)
        for name, value in vars(module).items():
            state[f"{path}.{name}"] = id(value)
            if isinstance(value, dict | list | deque):
                items = value.items() if isinstance(value, dict) else enumerate(value)
                state[f"{path}.{name} content"] = [(key, id(item)) for key, item in items]
        for name, tensor in (*module._parameters.items(), *module._buffers.items(), *vars(module).items()):
            if isinstance(tensor, torch.Tensor) and not nn.parameter.is_lazy(tensor):
                state[f"{path}.{name} tensor"] = (
                    tensor.detach().clone().numpy().tobytes(),
                    tensor._version,
                    tensor.data_ptr(),
                    tensor.requires_grad,
                    id(tensor.grad),
                )
    return state


def process_state() -> tuple[object, ...]:
    return (
        torch.get_rng_state().numpy().tobytes(),
        random.getstate(),
        repr(np.random.get_state()),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.backends.mha.get_fastpath_enabled(),
        gc.get_freeze_count(),
        gc.get_threshold(),
        gc.isenabled(),
    )


class Restless(nn.Module):
    """Changes everything that it can reach."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.linear = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("cache", torch.zeros(3))
        self.register_buffer("cache_view", self.cache[:2])
        self.plain = torch.zeros(2)
        self.history = [torch.zeros(1)]
        self.table: dict[str, Any] = {"a": torch.zeros(1)}
        self.queue = deque([1])
        self.number = 0
        self.generator = torch.Generator().manual_seed(3)
        self.weight.grad = torch.full((4,), 7.0)

    def forward(self, x: torch.Tensor, items: list[Any], **more: Any) -> torch.Tensor:
        random.random()
        np.random.rand()
        torch.rand(1, generator=self.generator)
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.set_default_device("cpu")
        torch.set_grad_enabled(True)
        self.number += 1
        self.fresh = torch.ones(1)
        self.cache.add_(1)
        self.plain.add_(1)
        self.history[0].add_(1)
        self.history.append(x)
        self.table["b"] = x
        self.table["a"].add_(1)
        self.queue.append(2)
        self.register_buffer("late", torch.zeros(1))
        self.add_module("child", nn.Identity())
        self.register_forward_hook(lambda *_: None)
        self.norm.eval()
        self.linear.requires_grad_(False)
        x.add_(1)
        items.append(x)
        y = self.drop(self.norm(self.linear(x) * self.weight))
        loss = (y * self.weight).sum()
        if loss.requires_grad:
            loss.backward()
        return y


def num_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())


def end_well(model: nn.Module, session: Session) -> None:
    model(*session.args, **session.kwargs)


def raise_error(model: nn.Module, session: Session) -> None:
    model(*session.args, **session.kwargs)
    raise ValueError("stop")


def interrupt(model: nn.Module, session: Session) -> None:
    model(*session.args, **session.kwargs)
    raise KeyboardInterrupt


@pytest.mark.parametrize("end", [end_well, raise_error, interrupt])
@pytest.mark.parametrize("train", [True, False, None])
@pytest.mark.parametrize("grad", [True, False])
def test_everything_is_put_back(end: Callable[..., None], train: bool | None, grad: bool) -> None:
    model = Restless()
    model.norm.eval()
    x = torch.rand(3, 4)
    items = [x, torch.zeros(1)]
    before, process = state_of(model), process_state()
    inputs = (x.clone(), x._version, list(map(id, items)))
    try:
        with Session(model, (x, items), {"more": {"x": x}}, train=train, grad=grad) as session:
            end(model, session)
    except (ValueError, KeyboardInterrupt):
        pass
    assert process_state() == process
    assert state_of(model) == before
    assert torch.equal(x, inputs[0])
    assert (x._version, list(map(id, items))) == inputs[1:]


def test_a_pending_backward_of_the_user_still_works() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    x = torch.rand(3, 4)
    loss = model(x).sum()
    with Session(model, (x,), train=True) as session:
        for param in model.parameters():
            session.save_param(param)
            with torch.no_grad():
                param.add_(1)
        model(*session.args)
    loss.backward()
    assert all(param.grad is not None for param in model.parameters())


def test_a_parameter_is_put_back_in_its_own_storage() -> None:
    model = nn.Linear(2, 2)
    view = model.weight.detach()[0]
    kept = (view.clone(), model.weight.data_ptr(), model.weight._version)
    with Session(model) as session:
        session.save_param(model.weight)
        view.zero_()
        model.weight.data = torch.ones(2, 2)
    assert torch.equal(view, kept[0])
    assert (model.weight.data_ptr(), model.weight._version) == kept[1:]


def test_each_tensor_object_is_cloned_once() -> None:
    x = torch.rand(2)
    model = nn.Identity()
    model.same = x
    with Session(model, (x, [x, {"x": x}]), {"y": x}) as session:
        first, (second, third) = session.args
        assert first is second is third["x"] is session.kwargs["y"] is model.same
        assert first is not x
        assert torch.equal(first, x)
    assert model.same is x
    assert session.args == ()


def test_views_of_one_buffer_stay_views_of_one_buffer() -> None:
    model = nn.Module()
    model.register_buffer("whole", torch.zeros(4))
    model.register_buffer("part", model.whole[1:3])
    model.register_buffer("again", model.whole)
    with Session(model):
        model.part.add_(1)
        assert model.whole.tolist() == [0, 1, 1, 0]
        assert model.again is model.whole
    assert model.whole.tolist() == [0, 0, 0, 0]


def test_clones_keep_what_tensors_are() -> None:
    leaf = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
    leaf.note = "kept"
    inputs = (leaf, torch.eye(3).to_sparse(), torch.rand(2, dtype=torch.complex64).conj(), nn.Parameter(torch.ones(1)))
    with Session(nn.Identity(), inputs, grad=True) as session:
        copies = session.args
        assert copies[0].note == "kept"
        assert copies[0].stride() == leaf.stride()
        assert [copy.requires_grad for copy in copies] == [True, False, False, True]
        assert copies[1].is_sparse
        assert torch.equal(copies[2], inputs[2])
    with Session(nn.Identity(), inputs) as session:
        assert not any(copy.requires_grad for copy in session.args)


def test_containers_given_as_inputs_are_copied_and_others_handed_on() -> None:
    class Cache:
        def __init__(self) -> None:
            self.layers: list[torch.Tensor] = []

    cache, label, model = Cache(), object(), nn.Identity()
    with Session(model, (cache, label, model, len)) as session:
        session.args[0].layers.append(torch.ones(1))
        assert session.args[1:] == (label, model, len)
    assert cache.layers == []


def test_both_runs_start_from_the_same_state() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(4))
    x = torch.rand(8, 4)
    results: list[torch.Tensor] = []
    for _ in range(2):
        with Session(model, (x,), train=True) as session:
            results.append(model(*session.args))
            assert model[1].num_batches_tracked == 1
    assert torch.equal(*results)


def test_a_seed_makes_runs_equal_and_is_forgotten() -> None:
    results: list[tuple[Any, ...]] = []
    for _ in range(2):
        torch.rand(1)
        before = process_state()
        with Session(nn.Identity(), seed=5):
            results.append((torch.rand(1).item(), np.random.rand(), random.random()))
        assert process_state() == before
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("train", "is_training", "expected"),
    [
        (False, True, [False, False, False]),
        (True, True, [True, True, False]),
        (True, False, [True, True, True]),
        (None, True, [True, True, False]),
    ],
)
def test_training_flags(train: bool | None, is_training: bool, expected: list[bool]) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).train(is_training)
    model[1].eval()
    kept = [module.training for module in model.modules()]
    with Session(model, train=train):
        assert [module.training for module in model.modules()] == expected
    assert [module.training for module in model.modules()] == kept


def test_lazy_modules_are_lazy_again() -> None:
    model = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    before = state_of(model)
    for _ in range(2):
        with Session(model, (torch.rand(2, 5),)) as session:
            assert model(*session.args).shape == (2, 3)
            assert type(model[0]) is nn.Linear
    assert state_of(model) == before
    assert isinstance(model[0].weight, nn.UninitializedParameter)
    assert model(torch.rand(2, 7)).shape == (2, 3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_modules_get_their_buffers_and_flags_back() -> None:
    model = nn.Sequential(torch.jit.script(nn.BatchNorm1d(2)), nn.Identity())
    kept = model[0].running_mean.clone()
    with Session(model, (torch.rand(4, 2) + 5,), train=False) as session:
        assert not model[0].training
        model.train()
        model(*session.args)
        assert not torch.equal(model[0].running_mean, kept)
    assert torch.equal(model[0].running_mean, kept)
    assert model[0].training


def test_it_works_from_inference_mode() -> None:
    model = nn.BatchNorm1d(2)
    with torch.inference_mode():
        x = torch.rand(4, 2)
        with Session(model, (x,), train=True) as session:
            assert not session.args[0].is_inference()
            model(*session.args)
        assert torch.is_inference_mode_enabled()


def test_sessions_of_two_models_nest() -> None:
    outer, inner = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    x = torch.rand(4, 2)
    before = state_of(outer), state_of(inner), process_state()
    with Session(outer, (x,), train=True) as first, Session(inner, first.args, train=True) as second:
        outer(*first.args)
        inner(*second.args)
    assert (state_of(outer), state_of(inner), process_state()) == before


def test_an_error_while_entering_leaves_nothing() -> None:
    class Bad(nn.Module):
        def train(self, mode: bool = True) -> nn.Module:
            raise ValueError("no training")

    model, before = Bad(), process_state()
    with pytest.raises(ValueError, match="no training"), Session(model, seed=1):
        pass
    assert process_state() == before


def test_no_tensor_outlives_a_session() -> None:
    model = Restless()
    x = torch.rand(3, 4)
    before = num_tensors()
    with Session(model, (x, [x])) as session:
        model(*session.args)
    del session
    assert num_tensors() == before


@pytest.mark.parametrize("first", [0, 700, 50_000])
def test_the_collector_runs_seldom_meanwhile_unless_it_must_not_run_at_all(first: int) -> None:
    before = gc.get_threshold()
    gc.set_threshold(first, *before[1:])
    try:
        with Session(nn.Identity()):
            inside = gc.get_threshold()[0]
            with Session(nn.Identity()):
                assert gc.get_threshold()[0] == inside
        assert gc.get_threshold() == (first, *before[1:])
    finally:
        gc.set_threshold(*before)
    assert inside == (max(first, 10_000) if first else 0)
