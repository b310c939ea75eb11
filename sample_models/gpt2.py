"""GPT-2 (Radford et al., 2019) with its 12 blocks and 12 heads, narrowed to width 192."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WORDS = ["The", " quick", " brown", " fox", " jumps", " over", " the", " lazy", " dog", "."]
WORD_IDS = [464, 2068, 7586, 21831, 18045, 625, 262, 16931, 3290, 13]  # of the published vocabulary


class CausalSelfAttention(nn.Module):
    """Each token gathers from itself and from those before it, in several heads."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        B, L, D = x.shape
        q, k, v = self.c_attn(x).view(B, L, 3, self.num_heads, D // self.num_heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # [B, heads, L, D/heads]
        return self.c_proj(y.transpose(1, 2).reshape(B, L, D))


class Mlp(nn.Module):
    """Widen four times, bend, narrow again."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.act = nn.GELU(approximate="tanh")
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(self.act(self.c_fc(x)))


class Block(nn.Module):
    """Attention, then an MLP; each reads a normalised copy of the stream and adds to the stream itself."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = CausalSelfAttention(width, num_heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """Token ids in, a score for every possible next token out; the head shares the weights of the embedding."""

    def __init__(
        self, vocab_size: int = 50257, context: int = 1024, width: int = 192, depth: int = 12, num_heads: int = 12
    ) -> None:
        super().__init__()
        self.wte = nn.Embedding(vocab_size, width)
        self.wpe = nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, num_heads) for _ in range(depth))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight
        with torch.no_grad():
            self.wte.weight.mul_(0.02)
            self.wpe.weight.mul_(0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        position = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.wte(tokens) + self.wpe(position)  # [B, L, width]
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))  # [B, L, vocab_size]


def neural_flow_model() -> GPT2:
    model = GPT2()
    for module in model.modules():
        if isinstance(module, CausalSelfAttention):
            nn.init.normal_(module.c_attn.weight, std=0.1)  # untrained heads of the usual 0.02 all look alike
    return model


def neural_flow_inputs() -> Tensor:
    return torch.tensor([WORD_IDS])


def neural_flow_tokens() -> list[str]:
    return WORDS
