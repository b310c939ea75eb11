from __future__ import annotations

import json
import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from neural_flow.errors import ModelLoadError, UsageError
from neural_flow.models.target import load_target


class Named(nn.Linear):
    def __init__(self, name: str, options: dict[str, Any]) -> None:
        super().__init__(2, 2)
        self.name, self.options = name, options


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins with the three functions of each library that are called."""

    def build_resnet(*, weights: Any = "TRAINED", weights_backbone: Any = "TRAINED", depth: int = 1) -> None: ...

    torchvision, models, timm = (
        types.ModuleType("torchvision"),
        types.ModuleType("torchvision.models"),
        types.ModuleType("timm"),
    )
    vars(models).update(
        list_models=lambda: ["resnet18", "fcn_resnet50"],
        get_model_builder=lambda name: build_resnet,
        get_model=lambda name, **options: Named(name, options),
    )
    vars(timm).update(list_models=lambda: ["vit_tiny"], create_model=lambda name, **options: Named(name, options))
    monkeypatch.setitem(sys.modules, "torchvision", torchvision)
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    monkeypatch.setitem(sys.modules, "timm", timm)


@pytest.mark.usefixtures("libraries")
def test_weights_are_random_and_nothing_is_fetched() -> None:
    loaded = load_target("torchvision:resnet18", {"depth": 3})
    assert vars(loaded.model)["options"] == {"depth": 3, "weights": None, "weights_backbone": None}
    assert loaded.name == "resnet18"
    assert vars(load_target("torchvision:segmentation.fcn_resnet50").model)["name"] == "fcn_resnet50"
    assert vars(load_target("timm:vit_tiny").model)["options"] == {"pretrained": False}
    assert "HF_HUB_OFFLINE" not in os.environ


@pytest.mark.usefixtures("libraries")
def test_downloads_are_asked_for() -> None:
    allowed = load_target("torchvision:resnet18", allow_download=True)
    assert vars(allowed.model)["options"]["weights"] == "DEFAULT"
    assert vars(load_target("timm:vit_tiny", allow_download=True).model)["options"] == {"pretrained": True}
    for target, arguments in (
        ("torchvision:resnet18", {"weights": "DEFAULT"}),
        ("timm:vit_tiny", {"pretrained": True}),
    ):
        with pytest.raises(UsageError, match="would download") as raised:
            load_target(target, arguments)
        assert "--allow-download" in raised.value.hint


@pytest.mark.usefixtures("libraries")
def test_an_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(ModelLoadError, match="no model 'resnet19'") as raised:
        load_target("torchvision:resnet19")
    assert "torchvision:resnet18" in raised.value.hint


@pytest.mark.parametrize("target", ["torchvision:resnet18", "timm:vit_tiny"])
def test_a_library_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    for name in ("torchvision", "torchvision.models", "timm"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModelLoadError, match="cannot be used") as raised:
        load_target(target)
    assert raised.value.hint == f"pip install {target.partition(':')[0]}"
    assert raised.value.exit_code == 3


def write_config(folder: Path, **content: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(content))
    return folder


def test_an_absent_folder_is_not_fetched() -> None:
    with pytest.raises(ModelLoadError, match="no such folder"):
        load_target("hf:some-owner/some-model")


def test_a_broken_configuration(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelLoadError, match="cannot read"):
        load_target(f"hf:{tmp_path}")


@pytest.mark.slow
def test_transformers_configurations_build_what_they_name(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    folder = write_config(tmp_path, model_type="bert", vocab_size=50, architectures=["BertForMaskedLM"], **small)
    loaded = load_target(f"hf:{folder}")
    assert type(loaded.model).__name__ == "BertForMaskedLM"
    again = load_target(f"hf:{folder}")
    assert all(torch.equal(a, b) for a, b in zip(loaded.model.parameters(), again.model.parameters(), strict=True))
    folder = write_config(tmp_path, model_type="bert", vocab_size=50, architectures=["NoSuchModel"], **small)
    with pytest.raises(ModelLoadError, match="NoSuchModel"):
        load_target(f"hf:{folder}")


@pytest.mark.slow
def test_diffusers_configurations_build_what_they_name(tmp_path: Path) -> None:
    pytest.importorskip("diffusers")
    folder = write_config(
        tmp_path, _class_name="UNet2DModel", sample_size=16, block_out_channels=[32, 32], layers_per_block=1,
        down_block_types=["DownBlock2D", "DownBlock2D"], up_block_types=["UpBlock2D", "UpBlock2D"],
    )  # fmt: skip
    assert type(load_target(f"hf:{folder}").model).__name__ == "UNet2DModel"


def test_a_library_that_was_built_for_another_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "timm"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(ModelLoadError, match="nms does not exist") as caught:
        load_target("timm:vit_tiny")
    assert caught.value.hint == f"install the release of timm that was built for torch {torch.__version__}"
