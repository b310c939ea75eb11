"""Card counts on models of other libraries, from tiny configurations with random weights."""

from __future__ import annotations

import warnings

import pytest
import torch

from neural_flow.capture.metadata import run_metadata_pass
from neural_flow.records import Request
from neural_flow.stages.select import select_stages

pytestmark = pytest.mark.slow

IDS = torch.arange(8)[None]
SMALL = {"num_hidden_layers": 4, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
TEXT = {**SMALL, "vocab_size": 20}
IMAGE = {**SMALL, "image_size": 16, "patch_size": 4}
STACKS = {
    "encoder_layers": 4,
    "decoder_layers": 4,
    "d_model": 16,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "vocab_size": 20,
}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


def transformers_models():
    pair = {"input_ids": IDS, "decoder_input_ids": IDS}
    text = {"input_ids": IDS}
    masked = {**text, "attention_mask": torch.ones_like(IDS)}
    image = {"pixel_values": torch.randn(1, 3, 16, 16)}
    large = {"pixel_values": torch.randn(1, 3, 64, 64)}
    widths = {"hidden_sizes": [8, 16, 32, 64]}
    return {
        "GPT2LMHeadModel": (8, "GPT2Config", {"n_layer": 4, "n_embd": 16, "n_head": 2, "vocab_size": 20}, text),
        "LlamaForCausalLM": (7, "LlamaConfig", {**TEXT, "num_key_value_heads": 2}, text),
        "BertForSequenceClassification": (9, "BertConfig", TEXT, masked),
        "T5ForConditionalGeneration": (
            10,
            "T5Config",
            {"num_layers": 4, "d_model": 16, "d_ff": 32, "num_heads": 2, "d_kv": 8, "vocab_size": 20},
            pair,
        ),
        "BartForConditionalGeneration": (19, "BartConfig", {**STACKS, **TOKENS, "forced_eos_token_id": 2}, pair),
        "ViTForImageClassification": (8, "ViTConfig", IMAGE, image),
        "CLIPModel": (
            18,
            "CLIPConfig",
            {"text_config": {**TEXT, "eos_token_id": 7}, "vision_config": IMAGE, "projection_dim": 8},
            {**text, **image},
        ),
        "SwinForImageClassification": (
            17,
            "SwinConfig",
            {
                "embed_dim": 8,
                "depths": [2, 2, 6],
                "num_heads": [1, 2, 2],
                "image_size": 32,
                "patch_size": 2,
                "window_size": 4,
            },
            {"pixel_values": torch.randn(1, 3, 32, 32)},
        ),
        "MixtralForCausalLM": (8, "MixtralConfig", {**TEXT, "num_key_value_heads": 2, "num_local_experts": 4}, text),
        "MambaForCausalLM": (
            5,
            "MambaConfig",
            {"num_hidden_layers": 3, "hidden_size": 16, "vocab_size": 20, "state_size": 4},
            text,
        ),
        "ResNetForImageClassification": (
            14,
            "ResNetConfig",
            {**widths, "embedding_size": 4, "depths": [3, 4, 6, 3]},
            large,
        ),
        "ConvNextForImageClassification": (18, "ConvNextConfig", {**widths, "depths": [3, 3, 9, 3]}, large),
        "SegformerForSemanticSegmentation": (
            14,
            "SegformerConfig",
            {**widths, "num_attention_heads": [1, 2, 2, 4], "decoder_hidden_size": 16},
            large,
        ),
    }


@pytest.mark.parametrize("name", sorted(transformers_models()))
def test_transformers(name, outlines):
    library = pytest.importorskip("transformers")
    count, config, options, inputs = transformers_models()[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        model = getattr(library, name)(getattr(library, config)(**options))
        trace = run_metadata_pass(model, (), inputs)
    assert outlines.count_cards(select_stages(trace, Request())) == count


def monai_models():
    small = torch.randn(1, 1, 32, 32)
    return {
        "SwinUNETR": (
            16,
            {"in_channels": 1, "out_channels": 2, "feature_size": 12, "spatial_dims": 2},
            torch.randn(1, 1, 64, 64),
        ),
        "DynUNet": (
            10,
            {
                "spatial_dims": 2,
                "in_channels": 1,
                "out_channels": 2,
                "kernel_size": [3] * 5,
                "strides": [1, 2, 2, 2, 2],
                "upsample_kernel_size": [2] * 4,
                "filters": [4, 8, 16, 32, 64],
            },
            small,
        ),
        "UNETR": (
            14,
            {
                "in_channels": 1,
                "out_channels": 2,
                "img_size": (32, 32),
                "feature_size": 8,
                "hidden_size": 16,
                "mlp_dim": 32,
                "num_heads": 2,
                "spatial_dims": 2,
            },
            small,
        ),
        "DenseNet121": (10, {"spatial_dims": 2, "in_channels": 1, "out_channels": 2}, torch.randn(1, 1, 64, 64)),
    }


@pytest.mark.parametrize("name", sorted(monai_models()))
def test_monai(name, outlines):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = pytest.importorskip("monai.networks.nets")
        count, options, x = monai_models()[name]
        trace = run_metadata_pass(getattr(library, name)(**options), (x,))
    assert outlines.count_cards(select_stages(trace, Request())) == count


@pytest.mark.parametrize(("levels", "count"), [(3, 11), (4, 13)])
def test_diffusers(levels, count, outlines):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = pytest.importorskip("diffusers")
        model = library.UNet2DModel(
            sample_size=16,
            block_out_channels=(8, 16, 16, 16)[:levels],
            norm_num_groups=4,
            attention_head_dim=4,
            down_block_types=("DownBlock2D", *["AttnDownBlock2D"] * (levels - 1)),
            up_block_types=(*["AttnUpBlock2D"] * (levels - 1), "UpBlock2D"),
        )
        trace = run_metadata_pass(model, (torch.randn(1, 3, 16, 16), 3))
    assert outlines.count_cards(select_stages(trace, Request())) == count
