"""Draw the gallery: well-known architectures, light and dark, with and without activations.

Run ``python docs/gallery.py`` to draw everything into ``docs/gallery``, or name what to draw:
``python docs/gallery.py gpt2 swin --looks light``. Architectures come from the sample models, from ``_nets.py`` beside
this file and from transformers, monai and diffusers, with random weights unless the sample is a trained one.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
SAMPLES = HERE.parent / "sample_models"
sys.path[:0] = [str(HERE.parent), str(HERE), str(SAMPLES)]
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import _nets as nets  # noqa: E402 - beside this file, which the line above makes importable
import torch  # noqa: E402
from _pictures import draw_cells, draw_landscape  # noqa: E402
from PIL import Image  # noqa: E402

import neural_flow as nf  # noqa: E402

Job = tuple[torch.nn.Module, Any, dict[str, Any], dict[str, Any]]
"""Model, positional arguments, keyword arguments, options."""

DPI = 130
SHARP = 0.12
"""Spread of random weights: heads of untrained models look at something, where the usual 0.02 lets them average."""
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "."]
SETTLED = {"flat", "attention_unet", "efficientnet", "densenet121"}
"""Deep untrained models whose maps would be flat without the help of ``settle``."""
LOOKS: dict[str, dict[str, Any]] = {
    "light": {},
    "dark": {"theme": "dark"},
    "structure": {"capture": False},
    "structure-dark": {"capture": False, "theme": "dark"},
}


def landscape(size: int = 224) -> torch.Tensor:
    return torch.stack([draw_landscape(seed=0, size=size)])


def cells(seed: int = 3, size: int = 128) -> torch.Tensor:
    return draw_cells(seed=seed, size=size)[0][None]


def ids(length: int = 10) -> torch.Tensor:
    """Return ids of the first words; equal words have equal ids."""
    words = [WORDS.index(word) for word in WORDS[:length]]
    return torch.tensor([[7 + 17 * place for place in words]])


def sample(name: str) -> Callable[[], Job]:
    def make() -> Job:
        module = load(name)
        found = module.neural_flow_inputs()
        args = found if isinstance(found, tuple) else () if isinstance(found, dict) else (found,)
        kwargs = found if isinstance(found, dict) else {}
        options: dict[str, Any] = {}
        for option, attribute in (("tokens", "neural_flow_tokens"), ("class_labels", "neural_flow_labels")):
            if hasattr(module, attribute):
                value = getattr(module, attribute)
                options[option] = value() if callable(value) else value
        return module.neural_flow_model(), args, kwargs, options

    return make


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def resnet152() -> Job:
    return load("resnet50").ResNet((3, 8, 36, 3)), (landscape(),), {}, {}


def densenet121() -> Job:
    from monai.networks.nets import DenseNet121

    return DenseNet121(spatial_dims=2, in_channels=3, out_channels=100), (landscape(),), {}, {}


def efficientnet() -> Job:
    from monai.networks.nets import EfficientNetBN

    model = EfficientNetBN("efficientnet-b0", pretrained=False, in_channels=3, num_classes=100)
    return model, (landscape(),), {}, {}


def attention_unet() -> Job:
    from monai.networks.nets import AttentionUnet

    model = AttentionUnet(2, 1, 2, channels=(8, 16, 32, 64), strides=(2, 2, 2))
    return model, (cells(),), {}, {}


def monai_unet() -> Job:
    from monai.networks.nets import UNet

    model = UNet(2, 1, 2, channels=(8, 16, 32, 64), strides=(2, 2, 2), num_res_units=2)
    return model, (cells(),), {}, {}


def swin_unetr() -> Job:
    from monai.networks.nets import SwinUNETR

    return SwinUNETR(in_channels=1, out_channels=2, feature_size=12, spatial_dims=2), (cells(),), {}, {}


def swin() -> Job:
    from transformers import SwinConfig, SwinModel

    config = SwinConfig(
        image_size=128, embed_dim=48, depths=[2, 2, 6, 2], num_heads=[3, 6, 12, 24], window_size=4,
        initializer_range=SHARP,
    )  # fmt: skip
    return SwinModel(config), (landscape(128),), {}, {}


def llama() -> Job:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        num_hidden_layers=16, hidden_size=96, intermediate_size=256, num_attention_heads=6, num_key_value_heads=2,
        vocab_size=200, initializer_range=SHARP,
    )  # fmt: skip
    return LlamaForCausalLM(config), (), {"input_ids": ids()}, {"tokens": WORDS}


def huggingface_gpt2() -> Job:
    from transformers import GPT2Config, GPT2Model

    return (
        GPT2Model(GPT2Config(n_layer=12, n_head=6, n_embd=96, vocab_size=200, initializer_range=SHARP)),
        (),
        {"input_ids": ids()},
        {},
    )


def t5() -> Job:
    from transformers import T5Config, T5ForConditionalGeneration

    model = T5ForConditionalGeneration(
        T5Config(num_layers=6, d_model=96, d_ff=256, num_heads=6, d_kv=16, vocab_size=200)
    )
    return model, (), {"input_ids": ids(), "decoder_input_ids": ids(7)}, {"tokens": WORDS}


def bert() -> Job:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        num_hidden_layers=12,
        hidden_size=128,
        num_attention_heads=8,
        intermediate_size=512,
        vocab_size=200,
        initializer_range=SHARP,
    )
    return BertModel(config), (), {"input_ids": ids()}, {"tokens": WORDS}


def clip() -> Job:
    from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig

    text = CLIPTextConfig(
        vocab_size=200, hidden_size=96, intermediate_size=256, num_hidden_layers=12, num_attention_heads=6,
        eos_token_id=199, bos_token_id=1, pad_token_id=0, initializer_factor=4.0,
    )  # fmt: skip
    vision = CLIPVisionConfig(
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=12,
        num_attention_heads=6,
        image_size=128,
        patch_size=16,
    )
    model = CLIPModel(CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=128))
    return model, (), {"input_ids": ids(), "pixel_values": landscape(128)}, {"tokens": WORDS}


def whisper() -> Job:
    from transformers import WhisperConfig, WhisperModel

    config = WhisperConfig(
        vocab_size=200, d_model=96, encoder_layers=6, decoder_layers=6, encoder_attention_heads=6,
        decoder_attention_heads=6, encoder_ffn_dim=256, decoder_ffn_dim=256, max_source_positions=100,
        num_mel_bins=80, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, init_std=SHARP,
    )  # fmt: skip
    time_axis = torch.linspace(0, 12, 200)
    bins = torch.arange(80)[:, None]
    tone = torch.exp(-((bins - 30 - 14 * torch.sin(time_axis)) / 4).square())
    hum = 0.6 * torch.exp(-((bins - 62 + 6 * torch.cos(2 * time_axis)) / 3).square())
    return WhisperModel(config), (), {"input_features": (tone + hum)[None], "decoder_input_ids": ids(7)}, {}


def mixtral() -> Job:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        num_hidden_layers=8, hidden_size=96, intermediate_size=192, num_attention_heads=6, num_key_value_heads=2,
        vocab_size=200, num_local_experts=8, initializer_range=SHARP,
    )  # fmt: skip
    return MixtralForCausalLM(config), (), {"input_ids": ids()}, {"tokens": WORDS}


def diffusion_unet() -> Job:
    from diffusers import UNet2DModel

    model = UNet2DModel(
        sample_size=32, in_channels=3, out_channels=3, block_out_channels=(32, 64, 64), layers_per_block=2,
        down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"), norm_num_groups=8,
    )  # fmt: skip
    noisy = landscape(64) * 0.7 + 0.3 * torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    return model, (noisy, torch.tensor([40])), {}, {}


def gan() -> Job:
    noise = torch.randn(1, 64, generator=torch.Generator().manual_seed(0))
    return nets.GanPair(), (noise, landscape(32)), {}, {}


def vae() -> Job:
    return nets.fitted_vae(landscape(64)), (landscape(64),), {}, {}


GALLERY: dict[str, tuple[str, Callable[[], Job]]] = {
    "unet": ("U-Net, trained on cells", sample("unet")),
    "digits": ("Digits classifier, trained", sample("digits")),
    "reverse": ("Reversing transformer, trained", sample("reverse")),
    "resnet50": ("ResNet-50", sample("resnet50")),
    "resnet152": ("ResNet-152", resnet152),
    "densenet121": ("DenseNet-121", densenet121),
    "inception": ("Inception (GoogLeNet)", lambda: (nets.GoogLeNet(), (landscape(),), {}, {})),
    "efficientnet": ("EfficientNet-B0", efficientnet),
    "attention_unet": ("Attention U-Net", attention_unet),
    "residual_unet": ("Residual U-Net, nested", monai_unet),
    "swin_unetr": ("SwinUNETR", swin_unetr),
    "volume_unet": ("U-Net over a volume", sample("volume_unet")),
    "vit": ("Vision Transformer", sample("vit")),
    "swin": ("Swin", swin),
    "gpt2": ("GPT-2", sample("gpt2")),
    "gpt2_library": ("GPT-2, as a library has it", huggingface_gpt2),
    "llama": ("Llama", llama),
    "t5": ("T5", t5),
    "bert": ("BERT", bert),
    "clip": ("CLIP", clip),
    "whisper": ("Whisper", whisper),
    "mixture": ("Mixture of experts", mixtral),
    "lstm_tagger": (
        "LSTM tagger",
        lambda: (
            nets.LstmTagger(),
            (ids(),),
            {},
            {"tokens": WORDS, "class_labels": ["DET", "ADJ", "NOUN", "VERB", "ADP", "."]},
        ),
    ),
    "graph_net": ("Graph network", lambda: (nets.GraphNet(), nets.ring_graph(), {}, {})),
    "diffusion_unet": ("Diffusion U-Net", diffusion_unet),
    "gan": ("GAN pair", gan),
    "vae": ("Variational autoencoder, trained on its picture", vae),
    "siamese": ("Siamese network", lambda: (nets.Siamese(), (cells(3, 64), cells(4, 64)), {}, {})),
    "flat": ("Flat list of 60 layers", lambda: (nets.flat_sequential(), (landscape(128),), {}, {})),
    "functional": ("All functional", lambda: (nets.Functional(), (landscape(64),), {}, {})),
    "multimodal": ("Image, table and text", sample("multimodal")),
    "mlp": ("Perceptron", sample("mlp")),
    "rnn": ("Recurrent network", sample("rnn")),
}


def draw(name: str, looks: list[str], folder: Path, suffixes: list[str]) -> None:
    """Draw one architecture in the given looks; the weights are the same on every run."""
    _, make = GALLERY[name]
    torch.manual_seed(0)
    model, args, kwargs, options = make()
    model.eval()
    if name in SETTLED:
        settle(model, args, kwargs)
    for look in looks:
        begin = time.perf_counter()
        drawing = nf.render(model, args, kwargs, seed=0, dpi=DPI, **options, **LOOKS[look])
        for suffix in suffixes:
            file = drawing.save(folder / f"{name}-{look}{suffix}")
            if suffix == ".png" and not LOOKS[look].get("capture", True):
                thin_out(file)
        scene = drawing.picture.scenes[0]
        cards = sum(group.group_id.startswith("stage-") for group in scene.groups)
        print(
            f"{name:16} {look:15} {scene.width:6.0f} x {scene.height:4.0f} pt  {cards:2} cards"
            f"  {time.perf_counter() - begin:5.1f} s",
            flush=True,
        )


@torch.no_grad()
def settle(model: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
    """Let batch normalisations of an untrained model see the input once: deep maps then neither vanish nor explode."""
    norms = [module for module in model.modules() if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)]
    if not norms or any(norm.num_batches_tracked for norm in norms):
        return
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
        if norm.running_mean is not None and norm.num_features:
            norm.register_forward_pre_hook(_no_single_values)
    torch.manual_seed(0)
    model(*args, **kwargs)
    for norm in norms:
        norm._forward_pre_hooks.clear()
        norm.eval()
        norm.momentum = 0.1


def _no_single_values(norm: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> None:
    # One value a channel has no spread: such a layer keeps the statistics that it was made with.
    if args[0].numel() == args[0].shape[1] * args[0].shape[0] and args[0].shape[0] == 1:
        norm.eval()


def thin_out(file: Path) -> None:
    """Store a picture with 256 colours, a third of its size: enough where no activation is drawn."""
    with Image.open(file) as picture:
        thin = picture.convert("RGB").quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    thin.save(file, optimize=True, dpi=(DPI, DPI))


def write_index(folder: Path) -> None:
    """Write the page that shows what is in ``folder``: dark pictures to readers of dark pages."""
    lines = [
        "# Gallery",
        "",
        "Well-known architectures as `neural-flow render` draws them without any option, with activations and as mere",
        "structure. `python docs/gallery.py` makes all of it. Weights are random where no name says trained.",
        "",
    ]
    for name, (title, _) in GALLERY.items():
        lines += [f"## {title}", "", *_shown(f"{name}-", title, "activations")]
        lines += [*_shown(f"{name}-structure", title, "structure"), ""]
    (folder.parent / "gallery.md").write_text("\n".join(lines), encoding="utf-8")


def _shown(stem: str, title: str, what: str) -> list[str]:
    light, dark = (f"{stem}light", f"{stem}dark") if stem.endswith("-") else (stem, f"{stem}-dark")
    return [
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="gallery/{dark}.png">'
        f'<img alt="{title}: {what}" src="gallery/{light}.png"></picture>',
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[], help="what to draw; all of it where nothing is named")
    parser.add_argument("--looks", nargs="+", choices=[*LOOKS], default=[*LOOKS])
    parser.add_argument("--suffixes", nargs="+", default=[".png"])
    parser.add_argument("--folder", type=Path, default=HERE / "gallery")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    asked.folder.mkdir(parents=True, exist_ok=True)
    for name in asked.names or GALLERY:
        draw(name, asked.looks, asked.folder, asked.suffixes)
    if asked.folder == HERE / "gallery" and not asked.names:
        write_index(asked.folder)


if __name__ == "__main__":
    main()
