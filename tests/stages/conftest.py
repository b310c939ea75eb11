"""Nets, hand-built traces and outlines for the tests of stage selection."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from neural_flow.capture.metadata import run_metadata_pass

HERE = Path(__file__).parent
# the number of cards that the rule gives on these nets; a change is a change of every figure
CARDS = {
    "unet": 10, "unet_add": 10, "unet_classes": 10, "unet_recursive": 10, "unet_nested_skips": 9,
    "unet_attention": 18, "unet_plus_plus": 11, "diffusion_unet": 10,
    "resnet50": 14, "resnet152": 14, "feature_pyramid": 15, "inception": 9, "densenet_small": 8, "densenet121": 10,
    "efficientnet_small": 18, "efficientnet_b0": 10,
    "vit": 8, "llama": 7, "gpt2": 8, "bert": 9, "swin": 17, "t5": 10, "bart": 19, "nn_transformer": 14, "clip": 18,
    "mixture": 8, "mixture_stacked": 8, "state_space": 5,
    "multimodal": 14, "gan_pair": 13, "vae": 8, "siamese": 7, "graph_net": 4, "lstm_tagger": 3, "mlp": 3,
    "cell_loop": 3, "seq2seq": 6, "denoiser": 11,
    "flat_conv": 10, "flat_linear": 20, "functional": 5, "random_dag": 21,
}  # fmt: skip


def load(name: str) -> ModuleType:
    """Import a helper of this folder: tests are no package."""
    spec = importlib.util.spec_from_file_location(f"stages_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def all_nets():
    vision, sequence, other = load("nets_vision"), load("nets_sequence"), load("nets_other")
    denoiser = {
        "denoiser": lambda: (other.Denoiser(other.TinyDenoiser(vision.UNet(num_out=1))), (vision.image(32, 1),))
    }
    return {**vision.NETS, **sequence.NETS, **other.NETS, **denoiser}


NETS = all_nets()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "net_name" in metafunc.fixturenames:
        metafunc.parametrize("net_name", sorted(NETS))


@pytest.fixture(scope="session")
def trace_of():
    """Return the trace of a net by name, made once."""
    made = {}

    def get(name):
        if name not in made:
            torch.manual_seed(0)
            model, args = NETS[name]()
            made[name] = run_metadata_pass(model, args)
        return made[name]

    return get


@pytest.fixture(scope="session")
def card_counts():
    return CARDS


@pytest.fixture(scope="session")
def builder():
    """Return the class that builds traces by hand."""
    return load("trace_builder").TraceBuilder


@pytest.fixture(scope="session")
def without_dataflow(builder):
    """Return the function that takes ops and values out of a trace."""
    return sys.modules[builder.__module__].without_dataflow


@pytest.fixture(scope="session")
def outlines():
    """Return the helpers that turn a selection into text and count its cards."""
    return load("outline")
