"""What a wrapper does when it is called."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neural_flow.hooks import HookReturnError, with_hooks


def nest(layer, depth):
    for _ in range(depth):
        layer, _hooks = with_hooks(layer)
    return layer


def test_native_hooks_run_outside_on_the_wrapper_and_inside_on_the_layer():
    layer = nn.Linear(2, 2)
    wrapper, hooks = with_hooks(layer)
    log = []
    wrapper.register_forward_pre_hook(lambda *args: log.append("wrapper pre"))
    wrapper.register_forward_hook(lambda *args: log.append("wrapper post"))
    wrapper.register_full_backward_hook(lambda *args: log.append("wrapper back"))
    layer.register_forward_pre_hook(lambda *args: log.append("layer pre"))
    layer.register_forward_hook(lambda *args: log.append("layer post"))
    layer.register_full_backward_hook(lambda *args: log.append("layer back"))
    hooks.add_forward_pre_hook(lambda x: log.append("pre") or x)
    hooks.add_forward_hook(lambda x, y: log.append("post") or y)
    hooks.add_backward_hook(lambda g: log.append("back") or g)
    wrapper(torch.ones(1, 2, requires_grad=True)).sum().backward()
    assert log == [
        "wrapper pre", "pre", "layer pre", "layer post", "post", "wrapper post", "back", "layer back", "wrapper back",
    ]  # fmt: skip


def test_native_always_call_hook_on_the_wrapper_runs_after_a_hook_raised():
    wrapper, hooks = with_hooks(nn.Linear(2, 2))
    outputs = []
    wrapper.register_forward_hook(lambda module, args, output: outputs.append(output), always_call=True)

    def fail(x):
        raise ValueError("stop")

    hooks.add_forward_pre_hook(fail)
    with pytest.raises(ValueError, match="stop"):
        wrapper(torch.ones(1, 2))
    assert outputs == [None]


def test_fast_path_of_the_transformer_layer_does_not_skip_a_wrapped_child():
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        expected = block(x)
        block.self_attn, hooks = with_hooks(block.self_attn)
        seen = []
        handle = hooks.add_forward_hook(lambda x, y: seen.append(y[0].shape) or y)
        assert torch.allclose(block(x), expected, atol=1e-6)
        assert seen == [(2, 5, 8)]
        handle.remove()
        block.linear1, hooks = with_hooks(block.linear1)
        hooks.add_forward_hook(lambda x, y: seen.append(y.shape) or y)
        block(x)
        assert seen == [(2, 5, 8), (2, 5, 16)]


def test_attention_keeps_its_other_arguments_and_keywords():
    attention = nn.MultiheadAttention(4, 2, batch_first=True).eval()
    wrapper, hooks = with_hooks(attention)
    seen = []
    hooks.add_forward_pre_hook(lambda x: seen.append(x.shape) or x)
    query, key = torch.randn(1, 2, 4), torch.randn(1, 3, 4)
    mask = torch.tensor([[False, True, False]])
    expected = attention(query, key, value=key, key_padding_mask=mask)
    found = wrapper(query, key, value=key, key_padding_mask=mask)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert seen == [(1, 2, 4)]


class Keywords(nn.Module):
    def forward(self, x=None, y=None, *rest, scale=None, **extra):
        return {"x": x, "y": y, "scale": scale, "rest": rest, **extra}


@pytest.mark.parametrize(
    ("args", "kwargs", "seen", "expected"),
    [
        ((1, 2), {}, 1, {"x": 11, "y": 2}),
        ((1,), {"scale": 3}, 1, {"x": 11, "scale": 3}),
        ((), {"x": 1}, 1, {"x": 11}),
        ((), {"scale": 3, "y": 2, "x": 1}, 1, {"scale": 3, "y": 2, "x": 11}),
        ((), {"scale": 3, "y": 2}, 2, {"scale": 3, "y": 12}),
        ((), {"odd": 5, "even": 6}, 5, {"odd": 15, "even": 6}),
    ],
)
def test_the_input_is_the_first_argument_or_the_first_keyword_of_the_signature(args, kwargs, seen, expected):
    wrapper, hooks = with_hooks(Keywords())
    log = []
    hooks.add_forward_pre_hook(lambda x: log.append(x) or x + 10)
    hooks.add_forward_hook(lambda x, y: log.append(x) or y)
    output = wrapper(*args, **kwargs)
    assert log == [seen, seen + 10]
    assert {name: value for name, value in output.items() if value not in (None, ())} == expected
    assert [*kwargs.values()] == [*dict(kwargs).values()]


def test_call_without_input_gives_none_and_takes_no_replacement():
    wrapper, hooks = with_hooks(Keywords())
    seen = []
    handle = hooks.add_forward_pre_hook(lambda x: seen.append(x))
    hooks.add_forward_hook(lambda x, y: seen.append(x) or y)
    assert wrapper()["x"] is None
    assert seen == [None, None]
    handle.remove()
    hooks.add_forward_pre_hook(lambda x: torch.ones(1))
    with pytest.raises(HookReturnError, match="without any input"):
        wrapper()


def test_without_hooks_the_very_object_of_the_layer_is_returned():
    class Fixed(nn.Module):
        output = object()

        def forward(self, x):
            return self.output

    wrapper = nest(Fixed(), 2)
    assert wrapper(1) is Fixed.output
    identity, hooks = with_hooks(nn.Identity())
    x = torch.ones(1, requires_grad=True)
    assert identity(x) is x
    hooks.add_forward_pre_hook(lambda x: x)
    hooks.add_forward_hook(lambda x, y: y)
    assert identity(x) is x
    hooks.add_backward_hook(lambda g: g).remove()
    assert identity(x) is x


def test_replaced_forward_of_the_wrapper_stays_on_the_wrapper():
    layer = nn.Linear(2, 2)
    wrapper, hooks = with_hooks(layer)
    ran = []
    hooks.add_forward_hook(lambda x, y: ran.append(1) or y)
    old = wrapper.forward
    wrapper.forward = lambda *args, **kwargs: old(*args, **kwargs) * 0
    assert wrapper(torch.ones(1, 2)).abs().sum() == 0
    assert ran == [1]
    assert "forward" not in vars(layer)
    del wrapper.forward
    assert torch.equal(wrapper(torch.ones(1, 2)), layer(torch.ones(1, 2)))
