"""Whole networks, every module wrapped: outputs and gradients equal those of the bare network bit for bit."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neural_flow import nested
from neural_flow.hooks import hooks_of, with_hooks


class BasicBlock(nn.Module):
    """As in torchvision, in-place operations included."""

    def __init__(self, num_inputs: int, num_outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(num_inputs, num_outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(num_outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(num_outputs, num_outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(num_outputs)
        self.downsample = None
        if stride > 1:
            self.downsample = nn.Sequential(
                nn.Conv2d(num_inputs, num_outputs, 1, stride, bias=False), nn.BatchNorm2d(num_outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


def residual_network() -> nn.Module:
    blocks = [BasicBlock(8, 8, 1), BasicBlock(8, 16, 2), BasicBlock(16, 16, 1)]
    stem = [nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, nn.Sequential(*blocks), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)
    return nn.Sequential(nn.Embedding(20, 16), nn.TransformerEncoder(layer, 2), nn.Linear(16, 20))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 6, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        output, (hidden, _) = self.lstm(self.embed(tokens))
        return self.head(output).mean(1) + hidden.sum()


class LanguageModel(nn.Module):
    """A Hugging Face GPT-2, whose outputs are ModelOutput."""

    def __init__(self) -> None:
        super().__init__()
        import transformers

        self.model = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=20, n_positions=16)
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens, labels=tokens, use_cache=False).loss


IMAGES = (2, 3, 32, 32)
NETWORKS = {
    "residual network": (residual_network, lambda: torch.randn(IMAGES, requires_grad=True)),
    "transformer": (transformer, lambda: torch.randint(20, (2, 7))),
    "recurrent": (Recurrent, lambda: torch.randint(20, (2, 7))),
    "language model": (LanguageModel, lambda: torch.randint(20, (2, 7))),
}


def wrap_all(module: nn.Module, hook) -> int:
    """Put a wrapper with ``hook`` in the place of every module below ``module``."""
    num_wrapped = 0
    for name, child in list(module.named_children()):
        num_wrapped += wrap_all(child, hook) + 1
        wrapper, hooks = with_hooks(child)
        hooks.add_forward_pre_hook(lambda x: x)
        hooks.add_forward_hook(lambda x, y: y)
        hooks.add_backward_hook(hook)
        module._modules[name] = wrapper
    return num_wrapped


def run(network: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor | None]]:
    torch.manual_seed(1)
    network.zero_grad()
    x.grad = None
    output = network(x)
    F.mse_loss(output, torch.zeros_like(output)).backward()
    gradients = {name: parameter.grad for name, parameter in network.named_parameters()}
    return output.detach(), {**gradients, "input": x.grad}


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "language model")) for name in NETWORKS]
)
def test_gradients_through_wrappers_are_those_of_the_bare_network_bit_for_bit(name, is_training):
    make, make_input = NETWORKS[name]
    bare = make().train(is_training)
    wrapped = copy.deepcopy(bare)
    seen: list[int] = []
    num_wrapped = wrap_all(wrapped, lambda g: seen.append(len(nested.tensor_leaves(g))) or g)
    x = make_input()
    expected_output, expected = run(bare, x)
    output, found = run(wrapped, x)
    assert torch.equal(output, expected_output)
    assert found.keys() == expected.keys()
    for parameter, gradient in expected.items():
        assert (gradient is None) == (found[parameter] is None)
        assert gradient is None or torch.equal(found[parameter], gradient), parameter
    for buffer, value in bare.named_buffers():
        assert torch.equal(value, wrapped.get_buffer(buffer))
    assert len(seen) > num_wrapped / 2
    assert [*wrapped.state_dict()] == [*bare.state_dict()]


@pytest.mark.parametrize("name", ["residual network", "transformer"])
def test_training_with_wrappers_goes_the_way_of_the_bare_network(name):
    make, make_input = NETWORKS[name]
    bare = make()
    wrapped = copy.deepcopy(bare)
    wrap_all(wrapped, lambda g: g)
    x = make_input().detach()
    for network in (bare, wrapped):
        optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
        for _ in range(3):
            run(network, x)
            optimizer.step()
    for parameter, trained in zip(bare.parameters(), wrapped.parameters(), strict=True):
        assert torch.equal(parameter, trained)


def test_hooks_agree_with_the_hooks_of_torch_where_these_work():
    network = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    wrapped = copy.deepcopy(network)
    wrap_all(wrapped, lambda g: g * 3)
    ours: list[torch.Tensor] = []
    theirs: list[torch.Tensor] = []
    for layer in network:
        layer.register_full_backward_pre_hook(lambda module, gradients: (gradients[0] * 3,))
        layer.register_full_backward_pre_hook(lambda module, gradients: theirs.append(gradients[0]))
    for layer in wrapped:
        hooks_of(layer).add_backward_hook(lambda g: ours.append(g) or g)
    x = torch.randn(3, 4, requires_grad=True)
    (expected,) = torch.autograd.grad(network(x).sum(), x)
    (found,) = torch.autograd.grad(wrapped(x).sum(), x)
    assert torch.equal(found, expected)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert len(ours) == 3
