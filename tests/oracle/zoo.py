"""Small networks with random weights, built from the configurations of model libraries; nothing is fetched."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Case = tuple[nn.Module, dict[str, Any]]

SMALL: dict[str, Any] = {
    "hidden_size": 16, "d_model": 16, "num_hidden_layers": 2, "num_layers": 2, "encoder_layers": 2,
    "decoder_layers": 2, "num_decoder_layers": 2, "num_attention_heads": 2, "num_heads": 2, "num_key_value_heads": 1,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "head_dim": 8, "d_kv": 8, "intermediate_size": 24,
    "d_ff": 24, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "ffn_dim": 24, "vocab_size": 40,
    "max_position_embeddings": 64, "image_size": 32, "patch_size": 8, "embedding_size": 16, "word_embed_proj_dim": 16,
    "num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8, "rotary_dim": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1, "is_encoder_decoder": None, "use_cache": False, "num_encoder_layers": 2,
    "state_size": 4,    "num_channels": 3, "max_source_positions": 32, "max_target_positions": 32, "num_mel_bins": 8,
}  # fmt: skip


def from_config(kind: str, name: str = "AutoModel", **changes: Any) -> nn.Module:
    """Return a small model of a kind that the library knows, in evaluation mode."""
    transformers = importlib.import_module("transformers")
    default = transformers.AutoConfig.for_model(kind)
    small = {key: value for key, value in SMALL.items() if value is not None and hasattr(default, key)}
    config = transformers.AutoConfig.for_model(kind, **{**small, **changes})
    torch.manual_seed(0)
    return getattr(transformers, name).from_config(config).eval()


def ids(length: int = 6) -> torch.Tensor:
    return torch.arange(3, 3 + 2 * length).reshape(2, length) % 40


def picture(size: int = 32, channels: int = 3, dims: int = 2) -> torch.Tensor:
    torch.manual_seed(2)
    return torch.rand(1, channels, *[size] * dims)


def text(kind: str, length: int = 6, **changes: Any) -> Callable[[], Case]:
    return lambda: (from_config(kind, **changes), {"input_ids": ids(length)})


def pair(kind: str, **changes: Any) -> Callable[[], Case]:
    return lambda: (from_config(kind, **changes), {"input_ids": ids(), "decoder_input_ids": ids(4)})


def vision(kind: str, **changes: Any) -> Callable[[], Case]:
    return lambda: (from_config(kind, **changes), {"pixel_values": picture()})


def sound(kind: str, **changes: Any) -> Callable[[], Case]:
    return lambda: (from_config(kind, **changes), {"input_values": picture(400, 1, 1)[0]})


def monai(name: str, size: int = 32, **options: Any) -> Callable[[], Case]:
    def make() -> Case:
        library = importlib.import_module("monai.networks.nets")
        torch.manual_seed(0)
        model = getattr(library, name)(**options).eval()
        return model, {next(iter(inspect.signature(model.forward).parameters)): picture(size, 1)}

    return make


def diffuser(name: str, inputs: Callable[[], dict[str, Any]], **options: Any) -> Callable[[], Case]:
    def make() -> Case:
        library = importlib.import_module("diffusers")
        torch.manual_seed(0)
        return getattr(library, name)(**options).eval(), inputs()

    return make


def noise(channels: int = 3, size: int = 16, **more: torch.Tensor) -> Callable[[], dict[str, Any]]:
    return lambda: {"sample": picture(size, channels), "timestep": torch.tensor([7]), **more}


def rows(length: int = 5, width: int = 16) -> torch.Tensor:
    torch.manual_seed(4)
    return torch.rand(1, length, width)


TEXT = (
    "bert", "roberta", "distilbert", "albert", "electra", "deberta", "deberta-v2", "mobilebert", "squeezebert",
    "big_bird", "nystromformer", "fnet", "convbert", "mpnet", "xlm", "rembert", "roformer", "megatron-bert",
    "layoutlm", "splinter", "yoso", "canine", "ibert", "esm", "modernbert", "longformer", "gpt2", "gpt_neox",
    "gptj", "opt", "llama", "mixtral", "qwen2_moe", "qwen3", "gemma2", "gemma3_text", "phi", "phi3", "bloom",
    "codegen", "stablelm", "olmo2", "cohere", "starcoder2", "mamba", "falcon_mamba", "rwkv", "mpt", "persimmon",
    "granite", "glm", "nemotron", "biogpt", "xglm", "ctrl", "openai-gpt", "gpt_bigcode", "olmoe",
)  # fmt: skip
PAIRS = (
    "t5", "bart", "pegasus", "marian", "blenderbot", "led", "m2m_100", "switch_transformers", "longt5", "umt5",
    "bigbird_pegasus",
)  # fmt: skip
VISION = (
    "vit", "deit", "beit", "dpt", "dinov2", "vit_mae", "vit_msn", "data2vec-vision", "ijepa",
)  # fmt: skip
SOUND = (
    "wav2vec2", "unispeech", "wavlm", "data2vec-audio",
)  # fmt: skip
STEPS = {"depths": [1, 1], "hidden_sizes": [8, 16]}
FRONT = {"conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2}

ARCHITECTURES: dict[str, Callable[[], Case]] = {
    **{f"transformers {kind}": text(kind, 16 if kind == "canine" else 6) for kind in TEXT},
    **{f"transformers {kind}": pair(kind) for kind in PAIRS},
    **{f"transformers {kind}": vision(kind) for kind in VISION},
    **{f"transformers {kind}": sound(kind, **FRONT) for kind in SOUND},
    "transformers resnet": vision("resnet", embedding_size=8, **STEPS),
    "transformers regnet": vision("regnet", embedding_size=8, groups_width=8, **STEPS),
    "transformers convnext": vision("convnext", num_stages=2, patch_size=4, **STEPS),
    "transformers convnextv2": vision("convnextv2", num_stages=2, patch_size=4, **STEPS),
    "transformers bit": vision("bit", embedding_size=8, num_groups=4, **STEPS),
    "transformers poolformer": vision(
        "poolformer", num_encoder_blocks=2, patch_sizes=[7, 3], strides=[4, 2], padding=[2, 1], **STEPS
    ),
    "transformers swin": vision(
        "swin", embed_dim=8, depths=[2, 2], num_attention_heads=[2, 2], num_heads=[2, 2], window_size=2, patch_size=4,
        num_layers=2,
    ),
    "transformers swinv2": vision(
        "swinv2", embed_dim=8, depths=[2, 2], num_attention_heads=[2, 2], num_heads=[2, 2], window_size=2, patch_size=4,
        num_layers=2,
    ),
    "transformers focalnet": vision("focalnet", embed_dim=8, depths=[1, 1], focal_levels=[2, 2], focal_windows=[3, 3]),
    "transformers segformer": vision(
        "segformer", num_encoder_blocks=2, sr_ratios=[2, 1], patch_sizes=[7, 3], strides=[4, 2],
        num_attention_heads=[1, 2], mlp_ratios=[2, 2], **STEPS
    ),
    "transformers mobilenet_v1": vision("mobilenet_v1", depth_multiplier=0.25),
    "monai UNet": monai("UNet", spatial_dims=2, in_channels=1, out_channels=2, channels=(4, 8, 16), strides=(2, 2),
                        num_res_units=2),
    "monai AttentionUnet": monai("AttentionUnet", spatial_dims=2, in_channels=1, out_channels=2, channels=(4, 8, 16),
                                 strides=(2, 2)),
    "monai SegResNet": monai("SegResNet", spatial_dims=2, init_filters=8, blocks_down=(1, 1, 1), blocks_up=(1, 1)),
    "monai DynUNet": monai("DynUNet", spatial_dims=2, in_channels=1, out_channels=2, kernel_size=(3, 3, 3),
                           strides=(1, 2, 2), upsample_kernel_size=(2, 2), filters=(4, 8, 16)),
    "monai UNETR": monai("UNETR", spatial_dims=2, in_channels=1, out_channels=2, img_size=32, feature_size=4,
                         hidden_size=16, mlp_dim=16, num_heads=2),
    "monai SwinUNETR": monai("SwinUNETR", 64, spatial_dims=2, in_channels=1, out_channels=2, feature_size=12,
                             depths=(1, 1, 1, 1), num_heads=(2, 2, 2, 2)),
    "monai BasicUNet": monai("BasicUNet", spatial_dims=2, features=(4, 4, 8, 8, 16, 4)),
    "monai BasicUNetPlusPlus": monai("BasicUNetPlusPlus", spatial_dims=2, features=(4, 4, 8, 8, 16, 4)),
    "monai DenseNet": monai("DenseNet", spatial_dims=2, in_channels=1, out_channels=2, init_features=4, growth_rate=2,
                            block_config=(2, 2), bn_size=2),
    "diffusers UNet2DModel": diffuser(
        "UNet2DModel", noise(), sample_size=16, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=4),
    "diffusers UNet2DConditionModel": diffuser(
        "UNet2DConditionModel", noise(4, encoder_hidden_states=rows()), sample_size=16, block_out_channels=(8, 16),
        layers_per_block=1, norm_num_groups=4, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=16, attention_head_dim=4),
    "diffusers AutoencoderKL": diffuser(
        "AutoencoderKL", lambda: {"sample": picture(16)}, block_out_channels=(8, 16), norm_num_groups=4,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2),
    "diffusers VQModel": diffuser(
        "VQModel", lambda: {"sample": picture(16)}, block_out_channels=(8, 16), norm_num_groups=4,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, num_vq_embeddings=8),
    "diffusers AutoencoderTiny": diffuser(
        "AutoencoderTiny", lambda: {"sample": picture(16)}, encoder_block_out_channels=(8, 8),
        decoder_block_out_channels=(8, 8), num_encoder_blocks=(1, 1), num_decoder_blocks=(1, 1)),
    "diffusers DiTTransformer2DModel": diffuser(
        "DiTTransformer2DModel",
        lambda: {"hidden_states": picture(8, 4), "timestep": torch.tensor([7]), "class_labels": torch.tensor([3])},
        num_attention_heads=2, attention_head_dim=8, in_channels=4, num_layers=2, sample_size=8, patch_size=2,
        num_embeds_ada_norm=10),
    "diffusers SD3Transformer2DModel": diffuser(
        "SD3Transformer2DModel",
        lambda: {"hidden_states": picture(8, 4), "timestep": torch.tensor([7]), "encoder_hidden_states": rows(),
                 "pooled_projections": rows()[:, 0]},
        sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2,
        joint_attention_dim=16, caption_projection_dim=16, pooled_projection_dim=16, out_channels=4,
        pos_embed_max_size=8),
    "diffusers PriorTransformer": diffuser(
        "PriorTransformer",
        lambda: {"hidden_states": rows()[:, 0], "timestep": torch.tensor([7]), "proj_embedding": rows()[:, 1],
                 "encoder_hidden_states": rows()},
        num_attention_heads=2, attention_head_dim=8, num_layers=1, embedding_dim=16, num_embeddings=5),
}  # fmt: skip
