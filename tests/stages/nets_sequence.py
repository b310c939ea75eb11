"""Transformers and other sequence nets in small widths."""

import math

import torch
import torch.nn.functional as F
from torch import nn

VOCAB = 11


class SelfAttention(nn.Module):
    """Queries, keys and values by three projections; keys and values from memory where it is given."""

    def __init__(self, d, heads=2, causal=False):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.heads, self.causal = heads, causal

    def forward(self, x, memory=None, bias=None):
        memory = x if memory is None else memory

        def split(t):
            return t.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        q, k, v = split(self.q(x)), split(self.k(memory)), split(self.v(memory))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if bias is not None:
            scores = scores + bias
        if self.causal:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
            scores = scores.masked_fill(~mask, float("-inf"))
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, d, causal=False):
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = (
            nn.LayerNorm(d),
            SelfAttention(d, causal=causal),
            nn.LayerNorm(d),
            MLP(d),
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class ViT(nn.Module):
    def __init__(self, d=8, depth=6):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, d, 4, 4)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, d))
        self.pos_embed = nn.Parameter(torch.zeros(1, 17, d))
        self.blocks = nn.Sequential(*(Block(d) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, 5)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Rotary(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / 100 ** (torch.arange(0, d, 2) / d), persistent=False)

    def forward(self, position_ids):
        angles = position_ids[:, :, None].float() @ self.inv_freq[None, None, :]
        angles = torch.cat([angles, angles], -1)
        return angles.cos(), angles.sin()


class LlamaAttention(nn.Module):
    def __init__(self, d, heads=2):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.heads = heads

    def forward(self, x, rotary):
        cos, sin = (t[:, None] for t in rotary)
        q, k, v = (
            p(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)
        )

        def turn(t):
            a, b = t.chunk(2, -1)
            return t * cos + torch.cat([-b, a], -1) * sin

        return self.o_proj(
            F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True).transpose(1, 2).flatten(-2)
        )


class LlamaMLP(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(d, 2 * d, bias=False), nn.Linear(d, 2 * d, bias=False)
        self.down_proj = nn.Linear(2 * d, d, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.self_attn, self.mlp = LlamaAttention(d), LlamaMLP(d)
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(d), RMSNorm(d)

    def forward(self, x, rotary):
        x = x + self.self_attn(self.input_layernorm(x), rotary)
        return x + self.mlp(self.post_attention_layernorm(x))


class LlamaModel(nn.Module):
    def __init__(self, d=8, depth=6):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, d)
        self.layers = nn.ModuleList(LlamaLayer(d) for _ in range(depth))
        self.norm, self.rotary_emb = RMSNorm(d), Rotary(d // 2)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        rotary = self.rotary_emb(torch.arange(ids.shape[1])[None])
        for layer in self.layers:
            x = layer(x, rotary)
        return self.norm(x)


class Llama(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.model, self.lm_head = LlamaModel(d), nn.Linear(d, VOCAB, bias=False)

    def forward(self, ids):
        return self.lm_head(self.model(ids))


class GPT2(nn.Module):
    def __init__(self, d=8, depth=12):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, d), nn.Embedding(16, d)
        self.h = nn.ModuleList(Block(d, causal=True) for _ in range(depth))
        self.ln_f, self.lm_head = nn.LayerNorm(d), nn.Linear(d, VOCAB, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class BertEmbeddings(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.word_embeddings, self.position_embeddings = nn.Embedding(VOCAB, d), nn.Embedding(16, d)
        self.token_type_embeddings, self.LayerNorm = nn.Embedding(2, d), nn.LayerNorm(d)
        self.register_buffer("position_ids", torch.arange(16)[None])

    def forward(self, ids):
        x = self.word_embeddings(ids) + self.token_type_embeddings(torch.zeros_like(ids))
        return self.LayerNorm(x + self.position_embeddings(self.position_ids[:, : ids.shape[1]]))


class BertOutput(nn.Module):
    def __init__(self, cin, d):
        super().__init__()
        self.dense, self.LayerNorm, self.dropout = nn.Linear(cin, d), nn.LayerNorm(d), nn.Dropout(0.1)

    def forward(self, x, residual):
        return self.LayerNorm(self.dropout(self.dense(x)) + residual)


class BertAttention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.self, self.output = SelfAttention(d), BertOutput(d, d)

    def forward(self, x, mask):
        return self.output(self.self(x, bias=mask), x)


class BertIntermediate(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.dense, self.act = nn.Linear(d, 2 * d), nn.GELU()

    def forward(self, x):
        return self.act(self.dense(x))


class BertLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.attention, self.intermediate, self.output = BertAttention(d), BertIntermediate(d), BertOutput(2 * d, d)

    def forward(self, x, mask):
        x = self.attention(x, mask)
        return self.output(self.intermediate(x), x)


class BertEncoder(nn.Module):
    def __init__(self, d, depth):
        super().__init__()
        self.layer = nn.ModuleList(BertLayer(d) for _ in range(depth))

    def forward(self, x, mask):
        for layer in self.layer:
            x = layer(x, mask)
        return x


class BertPooler(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.dense, self.act = nn.Linear(d, d), nn.Tanh()

    def forward(self, x):
        return self.act(self.dense(x[:, 0]))


class BertModel(nn.Module):
    def __init__(self, d=8, depth=12):
        super().__init__()
        self.embeddings, self.encoder, self.pooler = BertEmbeddings(d), BertEncoder(d, depth), BertPooler(d)

    def forward(self, ids, mask):
        bias = (1 - mask[:, None, None, :].float()) * -1e4
        return self.pooler(self.encoder(self.embeddings(ids), bias))


class BertClassifier(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.bert, self.classifier = BertModel(d), nn.Linear(d, 3)

    def forward(self, input_ids, attention_mask):
        return self.classifier(self.bert(input_ids, attention_mask))


class SwinBlock(nn.Module):
    """Attention in windows of four tokens; every second block shifts them."""

    def __init__(self, d, shift):
        super().__init__()
        self.norm1, self.attn, self.norm2, self.mlp = nn.LayerNorm(d), SelfAttention(d), nn.LayerNorm(d), MLP(d)
        self.shift = shift

    def forward(self, x):
        h = self.norm1(x)
        h = h.roll(self.shift, 1) if self.shift else h
        h = self.attn(h.reshape(-1, 4, h.shape[-1])).reshape(h.shape)
        x = x + (h.roll(-self.shift, 1) if self.shift else h)
        return x + self.mlp(self.norm2(x))


class PatchMerging(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.reduction = nn.LayerNorm(4 * d), nn.Linear(4 * d, 2 * d, bias=False)

    def forward(self, x):
        return self.reduction(self.norm(x.unflatten(1, (-1, 4)).flatten(2)))


class SwinStage(nn.Module):
    def __init__(self, d, depth, merge):
        super().__init__()
        self.blocks = nn.ModuleList(SwinBlock(d, 2 * (k % 2)) for k in range(depth))
        self.downsample = PatchMerging(d) if merge else None

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x if self.downsample is None else self.downsample(x)


class Swin(nn.Module):
    def __init__(self, d=4):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, d, 4, 4)
        self.layers = nn.ModuleList(SwinStage(d * 2**k, depth, k < 2) for k, depth in enumerate((2, 2, 6)))
        self.norm, self.head = nn.LayerNorm(4 * d), nn.Linear(4 * d, 5)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))


class T5Attention(nn.Module):
    def __init__(self, d, has_bias):
        super().__init__()
        self.norm, self.attn = RMSNorm(d), SelfAttention(d)
        self.relative_attention_bias = nn.Embedding(8, 2) if has_bias else None

    def forward(self, x, bias, memory=None):
        if bias is None and self.relative_attention_bias is not None:
            steps = torch.arange(x.shape[1])
            distance = (steps[:, None] - steps[None]).abs().clamp(max=7)
            bias = self.relative_attention_bias(distance).permute(2, 0, 1)[None]
        return x + self.attn(self.norm(x), memory=memory, bias=bias), bias


class T5FF(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.wi, self.wo = RMSNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.wo(F.relu(self.wi(self.norm(x))))


class T5Block(nn.Module):
    def __init__(self, d, is_decoder, has_bias):
        super().__init__()
        layers = [T5Attention(d, has_bias)]
        if is_decoder:
            layers.append(T5Attention(d, False))
        self.layer = nn.ModuleList([*layers, T5FF(d)])

    def forward(self, x, bias, memory):
        x, bias = self.layer[0](x, bias)
        if len(self.layer) > 2:
            x, _ = self.layer[1](x, None, memory)
        return self.layer[-1](x), bias


class T5Stack(nn.Module):
    def __init__(self, embed, d, depth, is_decoder):
        super().__init__()
        self.embed_tokens = embed
        self.block = nn.ModuleList(T5Block(d, is_decoder, k == 0) for k in range(depth))
        self.final_layer_norm = RMSNorm(d)

    def forward(self, ids, memory=None):
        x, bias = self.embed_tokens(ids), None
        for block in self.block:
            x, bias = block(x, bias, memory)
        return self.final_layer_norm(x)


class T5(nn.Module):
    def __init__(self, d=8, depth=6):
        super().__init__()
        self.shared = nn.Embedding(VOCAB, d)
        self.encoder, self.decoder = T5Stack(self.shared, d, depth, False), T5Stack(self.shared, d, depth, True)
        self.lm_head = nn.Linear(d, VOCAB, bias=False)

    def forward(self, input_ids, decoder_input_ids):
        return self.lm_head(self.decoder(decoder_input_ids, self.encoder(input_ids)))


class BartEncoderLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.self_attn, self.self_attn_layer_norm = SelfAttention(d), nn.LayerNorm(d)
        self.fc1, self.fc2, self.final_layer_norm = nn.Linear(d, 2 * d), nn.Linear(2 * d, d), nn.LayerNorm(d)

    def forward(self, x):
        x = self.self_attn_layer_norm(x + self.self_attn(x))
        return self.final_layer_norm(x + self.fc2(F.gelu(self.fc1(x))))


class BartDecoderLayer(BartEncoderLayer):
    def __init__(self, d):
        super().__init__(d)
        self.encoder_attn, self.encoder_attn_layer_norm = SelfAttention(d), nn.LayerNorm(d)

    def forward(self, x, memory):
        x = self.self_attn_layer_norm(x + self.self_attn(x))
        x = self.encoder_attn_layer_norm(x + self.encoder_attn(x, memory))
        return self.final_layer_norm(x + self.fc2(F.gelu(self.fc1(x))))


class BartStack(nn.Module):
    def __init__(self, embed, d, layers):
        super().__init__()
        self.embed_tokens, self.embed_positions = embed, nn.Embedding(16, d)
        self.layernorm_embedding, self.layers = nn.LayerNorm(d), nn.ModuleList(layers)

    def forward(self, ids, *memory):
        x = self.layernorm_embedding(self.embed_tokens(ids) + self.embed_positions(torch.arange(ids.shape[1])))
        for layer in self.layers:
            x = layer(x, *memory)
        return x


class Bart(nn.Module):
    def __init__(self, d=8, depth=6):
        super().__init__()
        self.shared = nn.Embedding(VOCAB, d)
        self.encoder = BartStack(self.shared, d, [BartEncoderLayer(d) for _ in range(depth)])
        self.decoder = BartStack(self.shared, d, [BartDecoderLayer(d) for _ in range(depth)])
        self.lm_head = nn.Linear(d, VOCAB)

    def forward(self, input_ids, decoder_input_ids):
        return self.lm_head(self.decoder(decoder_input_ids, self.encoder(input_ids)))


class ClipLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.self_attn, self.layer_norm1 = SelfAttention(d), nn.LayerNorm(d)
        self.mlp, self.layer_norm2 = MLP(d), nn.LayerNorm(d)

    def forward(self, x):
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp(self.layer_norm2(x))


class ClipEncoder(nn.Module):
    def __init__(self, d, depth):
        super().__init__()
        self.layers = nn.ModuleList(ClipLayer(d) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class ClipTextEmbeddings(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.token_embedding, self.position_embedding = nn.Embedding(VOCAB, d), nn.Embedding(16, d)

    def forward(self, ids):
        return self.token_embedding(ids) + self.position_embedding(torch.arange(ids.shape[1])[None])


class ClipVisionEmbeddings(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.class_embedding = nn.Parameter(torch.zeros(d))
        self.patch_embedding, self.position_embedding = nn.Conv2d(3, d, 4, 4), nn.Embedding(17, d)

    def forward(self, x):
        x = self.patch_embedding(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_embedding.expand(x.shape[0], 1, -1), x], 1)
        return x + self.position_embedding(torch.arange(17)[None])


class ClipText(nn.Module):
    def __init__(self, d, depth):
        super().__init__()
        self.embeddings, self.encoder = ClipTextEmbeddings(d), ClipEncoder(d, depth)
        self.final_layer_norm = nn.LayerNorm(d)

    def forward(self, ids):
        return self.final_layer_norm(self.encoder(self.embeddings(ids)))[:, -1]


class ClipVision(nn.Module):
    def __init__(self, d, depth):
        super().__init__()
        self.embeddings, self.pre_layrnorm = ClipVisionEmbeddings(d), nn.LayerNorm(d)
        self.encoder, self.post_layernorm = ClipEncoder(d, depth), nn.LayerNorm(d)

    def forward(self, x):
        return self.post_layernorm(self.encoder(self.pre_layrnorm(self.embeddings(x)))[:, 0])


class Clip(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.text_model, self.vision_model = ClipText(d, 4), ClipVision(d, 5)
        self.text_projection = nn.Linear(d, 6, bias=False)
        self.visual_projection = nn.Linear(d, 6, bias=False)
        self.logit_scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, input_ids, pixel_values):
        image = F.normalize(self.visual_projection(self.vision_model(pixel_values)), dim=-1)
        text = F.normalize(self.text_projection(self.text_model(input_ids)), dim=-1)
        return self.logit_scale.exp() * image @ text.T


class Router(nn.Module):
    def __init__(self, d, experts):
        super().__init__()
        self.gate = nn.Linear(d, experts)

    def forward(self, x):
        return self.gate(x).softmax(-1)


class Mixture(nn.Module):
    def __init__(self, d, count=4):
        super().__init__()
        self.router = Router(d, count)
        self.experts = nn.ModuleList(MLP(d) for _ in range(count))

    def forward(self, x):
        weights = self.router(x)
        return sum(weights[..., k : k + 1] * expert(x) for k, expert in enumerate(self.experts))


class StackedExperts(nn.Module):
    def __init__(self, d, count):
        super().__init__()
        self.up = nn.Parameter(torch.randn(count, d, 2 * d))
        self.down = nn.Parameter(torch.randn(count, 2 * d, d))

    def forward(self, x):
        h = torch.einsum("btd,edh->beth", x, self.up)
        return torch.einsum("beth,ehd->betd", F.gelu(h), self.down)


class StackedMixture(nn.Module):
    def __init__(self, d, count=4):
        super().__init__()
        self.router, self.experts = Router(d, count), StackedExperts(d, count)

    def forward(self, x):
        weights = self.router(x).permute(0, 2, 1)[..., None]
        return (weights * self.experts(x)).sum(1)


class MixtureBlock(nn.Module):
    def __init__(self, d, mixture):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(d), SelfAttention(d, causal=True), nn.LayerNorm(d)
        self.moe = mixture(d)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.moe(self.ln_2(x))


class MixtureLM(nn.Module):
    def __init__(self, mixture, d=8, depth=6):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, d)
        self.layers = nn.ModuleList(MixtureBlock(d, mixture) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, VOCAB)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Mixer(nn.Module):
    """A selective scan written as a loop."""

    def __init__(self, d):
        super().__init__()
        self.in_proj, self.x_proj = nn.Linear(d, 2 * d), nn.Linear(d, 3)
        self.conv = nn.Conv1d(d, d, 3, padding=2, groups=d)
        self.out_proj = nn.Linear(d, d)

    def forward(self, x):
        h, gate = self.in_proj(x).chunk(2, -1)
        h = F.silu(self.conv(h.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        dt, b, c = self.x_proj(h).split(1, -1)
        state, out = torch.zeros_like(h[:, 0]), []
        for t in range(h.shape[1]):
            state = state * torch.exp(-F.softplus(dt[:, t])) + h[:, t] * b[:, t]
            out.append(state * c[:, t])
        return self.out_proj(torch.stack(out, 1) * F.silu(gate))


class MixerBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.mixer = RMSNorm(d), Mixer(d)

    def forward(self, x):
        return x + self.mixer(self.norm(x))


class StateSpaceLM(nn.Module):
    def __init__(self, d=8, depth=6):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, d)
        self.layers = nn.ModuleList(MixerBlock(d) for _ in range(depth))
        self.norm_f, self.lm_head = RMSNorm(d), nn.Linear(d, VOCAB)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm_f(x))


def ids(length=6):
    return torch.arange(length)[None] % VOCAB


def tokens(d=8, length=6):
    return torch.randn(1, length, d)


NETS = {
    "vit": lambda: (ViT(), (torch.randn(1, 3, 16, 16),)),
    "llama": lambda: (Llama(), (ids(),)),
    "gpt2": lambda: (GPT2(), (ids(),)),
    "bert": lambda: (BertClassifier(), (ids(), torch.ones(1, 6, dtype=torch.long))),
    "swin": lambda: (Swin(), (torch.randn(1, 3, 32, 32),)),
    "t5": lambda: (T5(), (ids(), ids(5))),
    "bart": lambda: (Bart(), (ids(), ids(5))),
    "nn_transformer": lambda: (nn.Transformer(8, 2, 6, 6, 16, batch_first=True), (tokens(), tokens(length=5))),
    "clip": lambda: (Clip(), (ids(), torch.randn(1, 3, 16, 16))),
    "mixture": lambda: (MixtureLM(Mixture), (ids(),)),
    "mixture_stacked": lambda: (MixtureLM(StackedMixture), (ids(),)),
    "state_space": lambda: (StateSpaceLM(), (ids(),)),
}
