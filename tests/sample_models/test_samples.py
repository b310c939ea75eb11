from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import neural_flow
from neural_flow.models.conventions import class_names, token_words
from neural_flow.models.inputs import make_inputs
from neural_flow.models.target import load_target, sample_folder, sample_names
from neural_flow.nested import tensor_leaves

EXPECTED = {
    "unet", "resnet50", "vit", "gpt2", "multimodal", "shared_module", "dynamic_control_flow", "rnn", "mlp",
    "volume_unet", "digits", "reverse",
}  # fmt: skip
# Published sizes: torchvision's resnet50; the tiny vision transformer with 16×16 patches and 1000 classes.
NUM_PARAMETERS = {"resnet50": 25_557_032, "vit": 5_717_416}


def run_sample(name: str) -> list[tuple[str, torch.Tensor]]:
    loaded = load_target(f"sample:{name}")
    inputs = make_inputs(loaded)
    with loaded.scope, torch.no_grad():
        return tensor_leaves(loaded.model.eval()(*inputs.args, **inputs.kwargs))


def test_all_samples_are_there() -> None:
    assert set(sample_names()) == EXPECTED
    assert "train_unet" not in sample_names()


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_sample_runs_by_name_and_is_the_same_each_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("_pictures", name):  # other tests import samples as plain modules
        monkeypatch.delitem(sys.modules, module, raising=False)
    begin = time.process_time()
    first = run_sample(name)
    assert time.process_time() - begin < 5
    again = run_sample(name)
    assert [leaf for leaf, _ in first] == [leaf for leaf, _ in again]
    for (leaf, value), (_, other) in zip(first, again, strict=True):
        assert torch.equal(value, other), leaf
        assert value.isfinite().all()
    assert not {"_pictures", name} & set(sys.modules)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_words_and_classes_fit_the_values(name: str) -> None:
    loaded = load_target(f"sample:{name}")
    inputs = make_inputs(loaded)
    given = tensor_leaves((inputs.args, dict(inputs.kwargs)))
    returned = [value for _, value in run_sample(name)]
    if (words := token_words(loaded)) is not None:
        assert any(len(words) in value.shape for _, value in given if not value.is_floating_point())
    if (labels := class_names(loaded)) is not None:
        assert any(len(labels) in value.shape for value in returned)


@pytest.mark.parametrize("name", sorted(NUM_PARAMETERS))
def test_known_nets_have_their_published_size(name: str) -> None:
    model = load_target(f"sample:{name}").model
    assert sum(parameter.numel() for parameter in model.parameters()) == NUM_PARAMETERS[name]


def test_the_unet_finds_cells_that_it_never_saw() -> None:
    loaded = load_target("sample:unet")
    with loaded.scope, torch.no_grad():
        from _pictures import draw_cells  # pyright: ignore[reportMissingImports] - beside the sample, on its own path

        first = loaded.namespace["HELD_OUT_SEED"]
        pairs = [draw_cells(seed=first + 5000 + offset) for offset in range(8)]
        images, truth = torch.stack([image for image, _ in pairs]), torch.stack([mask for _, mask in pairs])
        found = loaded.model.eval()(images)[:, 1] > loaded.model(images)[:, 0]
    overlap = (found & (truth == 1)).sum().item()
    dice = 2 * overlap / (found.sum().item() + truth.sum().item())
    assert dice >= 0.95
    assert 0.2 < truth.float().mean() < 0.6


def test_the_stored_weights_are_small_and_scored() -> None:
    folder = sample_folder()
    assert isinstance(folder, Path)
    assert (folder / "unet.safetensors").stat().st_size < 2_000_000
    assert (folder / "unet.score.txt").read_text().startswith("Dice 0.9")


def test_samples_are_found_in_an_installed_package(tmp_path: Path) -> None:
    folder = sample_folder()
    assert folder is not None
    package = Path(neural_flow.__file__).parent
    installed = tmp_path / "site-packages" / "neural_flow"
    shutil.copytree(package, installed, ignore=shutil.ignore_patterns("__pycache__", "sample_models"))
    shutil.copytree(folder, installed / "sample_models", ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "import neural_flow, torch\nfrom neural_flow.models.target import load_target\n"
        "loaded = load_target('sample:unet')\nprint(neural_flow.__file__, loaded.file, sep='\\n')"
    )
    environment = {**os.environ, "PYTHONPATH": str(installed.parent), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
    )
    assert ran.stdout.split() == [str(installed / "__init__.py"), str(installed / "sample_models" / "unet.py")]


def test_the_path_of_the_dynamic_net_depends_on_its_input() -> None:
    loaded = load_target("sample:dynamic_control_flow")
    image = make_inputs(loaded).args[0]
    calls: list[str] = []
    handles = [
        module.register_forward_hook(lambda *_, name=name: calls.append(name))
        for name, module in loaded.model.named_children()
    ]
    with loaded.scope, torch.no_grad():
        loaded.model(image)
        busy = list(calls)
        calls.clear()
        loaded.model(image * 0.1)
    for handle in handles:
        handle.remove()
    assert "busy_head" in busy
    assert "quiet_head" in calls
    assert 1 < busy.count("refine") < 8
