"""Vision transformer (Dosovitskiy et al., 2021) of the tiny size: 12 blocks, 3 heads, width 192."""

from __future__ import annotations

import torch
from _pictures import draw_landscape
from torch import Tensor, nn


class PatchEmbedding(nn.Module):
    """Cut the picture into patches, project each to a token, put a class token before them, and add positions."""

    def __init__(self, image_size: int, patch_size: int, width: int) -> None:
        super().__init__()
        num_patches = (image_size // patch_size) ** 2
        self.proj = nn.Conv2d(3, width, kernel_size=patch_size, stride=patch_size)
        self.class_token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.position = nn.Parameter(torch.randn(1, 1 + num_patches, width) * 0.02)

    def forward(self, image: Tensor) -> Tensor:
        patches = self.proj(2 * image - 1).flatten(2).transpose(1, 2)  # [N, num_patches, width]
        tokens = torch.cat([self.class_token.expand(len(image), -1, -1), patches], dim=1)
        return tokens + self.position


class Mlp(nn.Sequential):
    """Widen four times, bend, narrow again."""

    def __init__(self, width: int) -> None:
        super().__init__(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class Block(nn.Module):
    """Attention between tokens, then an MLP in each token, both added to the stream that runs through."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, num_heads, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm1(x)
        x = x + self.attn(normed, normed, normed, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """Patches in, class scores out, read from the class token."""

    def __init__(
        self,
        image_size: int = 224,
        patch_size: int = 16,
        width: int = 192,
        depth: int = 12,
        num_heads: int = 3,
        num_classes: int = 1000,
    ) -> None:
        super().__init__()
        self.embed = PatchEmbedding(image_size, patch_size, width)
        self.blocks = nn.ModuleList(Block(width, num_heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.embed(image)  # [N, 1 + num_patches, width]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])  # [N, num_classes]


def neural_flow_model() -> VisionTransformer:
    model = VisionTransformer()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.MultiheadAttention):
                queries_and_keys = module.in_proj_weight[: 2 * module.embed_dim]
                queries_and_keys.mul_(1.6)  # untrained heads look everywhere alike; sharper ones look at their like
    return model


def neural_flow_inputs() -> Tensor:
    return torch.stack([draw_landscape(seed=0)])
