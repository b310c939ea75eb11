from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.modules import module as module_globals

from neural_flow.capture._attention_weights import (
    Scores,
    pooled_weights,
    sdpa_scores,
    weight_chunks,
    whole_weights,
)
from neural_flow.capture.attention import AttentionTracer, returned_weights


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    yield
    assert torch._C._len_torch_function_stack() == 0
    assert not module_globals._global_forward_hooks
    assert not module_globals._global_forward_pre_hooks
    assert not module_globals._global_forward_hooks_always_called


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def attend(weights: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    group = weights.shape[1] // value.shape[1]
    return weights @ value.float().repeat_interleave(group, dim=1)


@settings(deadline=None, max_examples=60)
@given(
    batch=st.integers(1, 3),
    heads=st.integers(1, 4),
    group=st.integers(1, 2),
    length=st.integers(1, 9),
    num_keys=st.integers(1, 9),
    mask=st.sampled_from(["none", "bool", "float", "bool_2d", "bool_heads"]),
    is_causal=st.booleans(),
    scale=st.sampled_from([None, 0.3, 1.7]),
    max_nbytes=st.sampled_from([64, 1000, 1 << 20]),
)
def test_weights_times_values_are_the_output(
    batch: int,
    heads: int,
    group: int,
    length: int,
    num_keys: int,
    mask: str,
    is_causal: bool,
    scale: float | None,
    max_nbytes: int,
) -> None:
    query = random(batch, heads * group, length, 8, seed=1)
    key, value = random(batch, heads, num_keys, 8, seed=2), random(batch, heads, num_keys, 8, seed=3)
    shapes = {
        "bool": (batch, 1, length, num_keys),
        "float": (batch, 1, length, num_keys),
        "bool_2d": (length, num_keys),
        "bool_heads": (batch, heads * group, length, num_keys),
    }
    attn_mask = None
    if mask != "none":
        is_causal = False
        attn_mask = random(*shapes[mask], seed=4)
        attn_mask = attn_mask if mask == "float" else attn_mask > 0  # now and then a row is shut out entirely
    kwargs: dict[str, Any] = {"attn_mask": attn_mask, "is_causal": is_causal, "scale": scale, "enable_gqa": group > 1}
    weights = whole_weights(sdpa_scores(query, key, value, **kwargs), max_nbytes)
    output = F.scaled_dot_product_attention(query, key, value, **kwargs)
    torch.testing.assert_close(attend(weights, value), output, atol=1e-5, rtol=1e-4)
    total = weights.sum(dim=-1)
    assert bool(((total - 1).abs() < 1e-5).logical_or(total == 0).all())


def test_causal_mask_is_top_left_and_fully_masked_rows_are_zero() -> None:
    query, key, value = random(1, 4, 5, 8), random(1, 2, 7, 8, seed=1), random(1, 2, 7, 8, seed=2)
    with AttentionTracer(keep="weights") as tracer:
        F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        shut = torch.ones(5, 7, dtype=torch.bool)
        shut[2] = False
        F.scaled_dot_product_attention(query, key, value, attn_mask=shut, enable_gqa=True)
    causal, masked = (record.weights for record in tracer.records)
    assert causal is not None
    assert masked is not None
    assert causal.shape == (1, 4, 5, 7)
    assert bool((causal[0, :, torch.ones(5, 7).triu(1).bool()] == 0).all())
    assert masked[0, :, 2].abs().sum() == 0
    torch.testing.assert_close(masked.sum(-1)[:, :, [0, 1, 3, 4]], torch.ones(1, 4, 4))


@pytest.mark.parametrize("dims", [(5, 8), (3, 5, 8), (2, 3, 4, 5, 8)])
def test_any_number_of_leading_dimensions(dims: tuple[int, ...]) -> None:
    query, key, value = random(*dims), random(*dims, seed=1), random(*dims, seed=2)
    with AttentionTracer(keep="weights") as tracer:
        output = F.scaled_dot_product_attention(query, key, value)
    weights = tracer.records[0].weights
    assert weights is not None
    values = value.reshape(weights.shape[0], weights.shape[1], *dims[-2:])
    torch.testing.assert_close((weights @ values).reshape(output.shape), output, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    query = random(1, 2, 6, 16, dtype=dtype)
    with AttentionTracer(keep="weights") as tracer:
        F.scaled_dot_product_attention(query, query, query)
    weights = tracer.records[0].weights
    assert weights is not None
    assert weights.dtype == torch.float32
    exact = torch.softmax(query.double() @ query.double().transpose(-1, -2) / 4, dim=-1)
    torch.testing.assert_close(weights.double(), exact, atol=1e-6, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:Support for mismatched")
@settings(deadline=None, max_examples=40)
@given(
    batch_first=st.booleans(),
    has_batch=st.booleans(),
    bias_kv=st.booleans(),
    zero_attn=st.booleans(),
    kdim=st.sampled_from([None, 6]),
    padding=st.sampled_from([None, "bool", "float"]),
    mask=st.sampled_from([None, "bool", "float", "heads"]),
)
def test_multi_head_attention_matches_its_own_weights(
    batch_first: bool,
    has_batch: bool,
    bias_kv: bool,
    zero_attn: bool,
    kdim: int | None,
    padding: str | None,
    mask: str | None,
) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(
        8, 2, batch_first=batch_first, add_bias_kv=bias_kv, add_zero_attn=zero_attn, kdim=kdim, vdim=kdim
    ).eval()
    size, length, num_keys = 3, 4, 5
    query, key = random(size, length, 8), random(size, num_keys, kdim or 8, seed=1)
    key_padding = None
    if padding:
        key_padding = torch.zeros(size, num_keys, dtype=torch.bool)
        key_padding[:, -1] = True
        key_padding = key_padding if padding == "bool" else key_padding.float() * -3.0
    attn_mask = None
    if mask:
        attn_mask = random(size * 2, length, num_keys, seed=2) if mask == "heads" else random(length, num_keys, seed=2)
        attn_mask = attn_mask > 1 if mask == "bool" else attn_mask
    if not has_batch:
        query, key = query[0], key[0]
        key_padding = None if key_padding is None else key_padding[0]
        attn_mask = attn_mask[:2] if attn_mask is not None and attn_mask.dim() == 3 else attn_mask
    elif not batch_first:
        query, key = query.transpose(0, 1), key.transpose(0, 1)
    kwargs: dict[str, Any] = {"key_padding_mask": key_padding, "attn_mask": attn_mask}
    with torch.no_grad(), AttentionTracer(keep="weights") as tracer:
        module(query, key, key, need_weights=False, **kwargs)
    expected = module(query, key, key, need_weights=True, average_attn_weights=False, **kwargs)[1]
    weights = tracer.records[0].weights
    assert weights is not None
    torch.testing.assert_close(weights, expected if has_batch else expected[None], atol=1e-5, rtol=1e-4)


def test_one_element_equals_that_element_of_all() -> None:
    module = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = random(3, 6, 8)
    with torch.no_grad(), AttentionTracer(module, keep="weights") as whole:
        module(x, x, x)
    with torch.no_grad(), AttentionTracer(module, sample=2, batch_size=3) as one:
        module(x, x, x)
    weights, maps = whole.records[0].weights, one.records[0].maps
    assert weights is not None
    assert maps is not None
    torch.testing.assert_close(maps, weights[2])
    assert one.records[0].shape == (3, 2, 6, 6)
    assert one.records[0].weights is None


def test_outputs_gradients_and_random_numbers_stay_as_they_are() -> None:
    torch.manual_seed(0)
    module = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True).train()
    x = random(2, 5, 8).requires_grad_()

    def run() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        torch.manual_seed(3)
        output = module(x)
        (gradient,) = torch.autograd.grad(output.square().sum(), x)
        return output, gradient, torch.get_rng_state()

    plain = run()
    with AttentionTracer(module) as tracer:
        traced = run()
    assert all(torch.equal(one, other) for one, other in zip(plain, traced, strict=True))
    record = tracer.records[0]
    assert (record.path, record.call_index, record.index) == ("self_attn", 0, 0)
    assert record.maps is not None
    assert not record.maps.requires_grad
    torch.testing.assert_close(record.maps.sum(-1), torch.ones(2, 5))  # before dropout


def test_calls_are_numbered_and_named_by_path() -> None:
    class Two(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = F.scaled_dot_product_attention(x, x, x)
            return F.scaled_dot_product_attention(x, x, x, is_causal=True)

    block = Two()
    model = nn.Sequential(block, block)
    with AttentionTracer(model) as tracer:
        model(random(1, 2, 4, 8))
    assert [(record.path, record.call_index, record.index) for record in tracer.records] == [
        ("0", 0, 0),
        ("0", 0, 1),
        ("0", 1, 0),
        ("0", 1, 1),
    ]


def test_a_module_that_returns_its_weights_is_recognised() -> None:
    class EagerAttention(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            heads = x.unflatten(-1, (2, -1)).transpose(1, 2)
            weights = torch.softmax(heads @ heads.transpose(-1, -2), dim=-1)
            return (weights @ heads).transpose(1, 2).flatten(2), weights

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = EagerAttention()
            self.outer_attention = nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.attention(x)[0] + x

    model = Block()
    x = random(2, 5, 8)
    with AttentionTracer(model, keep="weights") as tracer:
        model(x)
    (record,) = tracer.records
    assert (record.path, record.target) == ("attention", "output")
    torch.testing.assert_close(record.weights, model.attention(x)[1])


def test_what_only_looks_like_weights_is_left_out() -> None:
    output = random(2, 5, 8)
    assert returned_weights([output, random(2, 3, 5, 5)]) is None
    assert returned_weights([output, torch.softmax(random(2, 3, 4, 4), -1)]) is None
    assert returned_weights([output]) is None
    assert returned_weights([output, torch.softmax(random(2, 3, 5, 5), -1)]) is not None


def test_long_sequences_stay_within_the_bound_and_rows_still_sum_to_one() -> None:
    length, num_keys, heads = 70, 90, 3
    query, key = random(1, heads, length, 4), random(1, heads, num_keys, 4, seed=1)
    scores, bound = Scores(query, key, 0.5, is_causal=True), 1 << 14
    sizes = [weights.numel() * 4 for _, _, _, weights in weight_chunks(scores, bound)]
    assert max(sizes) <= bound // 4
    assert sum(sizes) == heads * length * num_keys * 4
    pooled = pooled_weights(scores, 16, bound)
    assert pooled.shape == (heads, 16, 16)
    torch.testing.assert_close(pooled.sum(-1), torch.ones(heads, 16), atol=1e-4, rtol=1e-4)
    # every place cut into 8, so that 16 bins meet whole pieces of 70 and 90 places
    fine = whole_weights(scores)[0].double().repeat_interleave(8, 1).repeat_interleave(8, 2) / 8
    exact = fine.unflatten(1, (16, 35)).unflatten(3, (16, 45)).mean(2).sum(3)
    torch.testing.assert_close(pooled.double(), exact, atol=1e-5, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_is_one_call_with_its_score_and_mask() -> None:
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    query, key, value = random(1, 2, 128, 8), random(1, 2, 128, 8, seed=1), random(1, 2, 128, 8, seed=2)

    def relative(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        return score + 0.1 * (q - k) * (h + 1)

    mask = flex.create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 128, 128, device="cpu")
    scores = (query @ key.transpose(-1, -2)) / 8**0.5
    places = torch.arange(128)
    scores = scores + 0.1 * (places[:, None] - places) * torch.tensor([1.0, 2.0])[:, None, None]
    expected = scores.masked_fill(places > places[:, None], -torch.inf).softmax(-1)
    with torch.compiler.set_stance("force_eager"), AttentionTracer(keep="weights") as tracer:
        output = flex.flex_attention(query, key, value, score_mod=relative, block_mask=mask)
    (record,) = tracer.records
    assert record.target == "flex_attention"
    torch.testing.assert_close(record.weights, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(expected @ value, output, atol=1e-4, rtol=1e-3)


def test_a_mask_beside_is_causal_is_combined_and_noted() -> None:
    query = random(1, 1, 4, 4)
    scores = sdpa_scores(query, query, query, torch.zeros(4, 4), is_causal=True)
    assert scores.note
    assert bool((whole_weights(scores)[0, 0].triu(1) == 0).all())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_failure_inside_the_tracer_never_reaches_the_model() -> None:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            nested = torch.nested.nested_tensor(
                [x[0, :, :2].transpose(0, 1), x[0].transpose(0, 1)], layout=torch.jagged
            )
            return F.scaled_dot_product_attention(*[nested.transpose(1, 2)] * 3).values()

    model = Odd()
    x = random(1, 2, 4, 8)
    with AttentionTracer(model, keep="weights") as tracer:
        output = model(x)
    assert torch.isfinite(output).all()
    assert len(tracer.skipped) == 1
    with AttentionTracer(model, sample=1, batch_size=2) as tracer:
        model(x)
    assert tracer.records[0].maps is not None
    assert tracer.records[0].maps.shape == (2, 4, 4)


def test_errors_of_the_model_pass_and_leave_nothing() -> None:
    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            F.scaled_dot_product_attention(x, x, x)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), AttentionTracer(Broken()) as tracer:
        Broken()(random(1, 1, 2, 2))
    model = Broken()
    tracer = AttentionTracer(model)
    with pytest.raises(KeyError), tracer:
        model(random(1, 1, 2, 2))
    assert len(tracer.records) == 1
    with pytest.raises(ValueError, match="keep"):
        AttentionTracer(keep="everything")  # type: ignore[arg-type]


def test_rows_that_the_model_makes_nan_are_nan() -> None:
    module = nn.MultiheadAttention(4, 1, batch_first=True).eval()
    x, shut = random(1, 3, 4), torch.ones(1, 3, dtype=torch.bool)
    with torch.no_grad(), AttentionTracer(keep="weights") as tracer:
        module(x, x, x, key_padding_mask=shut, need_weights=True)
        module(x, x, x, key_padding_mask=shut, need_weights=False)
    asked, fused = (record.weights for record in tracer.records)
    assert asked is not None
    assert fused is not None
    assert bool(asked.isnan().all())
    assert bool((fused == 0).all())


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_a_language_model_of_a_library(implementation: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=50, n_positions=32)
    config._attn_implementation = implementation
    torch.manual_seed(0)
    model = transformers.GPT2Model(config).eval()
    with torch.no_grad(), AttentionTracer(model, keep="weights") as tracer:
        model(torch.arange(7)[None])
    assert [record.path for record in tracer.records] == ["h.0.attn", "h.1.attn"]
    for record in tracer.records:
        assert record.weights is not None
        torch.testing.assert_close(record.weights.sum(-1), torch.ones(1, 2, 7))
        assert bool((record.weights.triu(1) == 0).all())
