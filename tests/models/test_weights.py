from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from neural_flow.errors import ModelLoadError
from neural_flow.models.stored import split_key
from neural_flow.models.weights import load_weights


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(x))


def make_model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


@pytest.fixture(autouse=True)
def random_state_comes_back():
    with torch.random.fork_rng():
        yield


def is_equal(model: nn.Module, other: Mapping[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in model.state_dict().items())


def prefixed(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    return {prefix + name: value for name, value in state.items()}


TRAINED = make_model(1).state_dict()
SHAPES_OF_CHECKPOINTS: dict[str, tuple[Any, str]] = {
    "plain": (TRAINED, ""),
    "nested": ({"state_dict": TRAINED, "epoch": 3}, "took 'state_dict'"),
    "deep": ({"net": {"weights": {"model": TRAINED}}, "adam": {0: {"m": torch.ones(2)}}}, "'net.weights.model'"),
    "parallel": (prefixed("module.", TRAINED), "dropped the prefix 'module.'"),
    "compiled and parallel": (prefixed("_orig_mod.module.", TRAINED), "dropped the prefix '_orig_mod.module.'"),
    "lightning": ({"state_dict": prefixed("model.", TRAINED), "hparams": {"lr": 0.1}}, "dropped the prefix 'model.'"),
    "beside another net": ({"generator": TRAINED, "discriminator": nn.Linear(9, 9).state_dict()}, "took 'generator'"),
    "no counters": ({name: value for name, value in TRAINED.items() if "num_batches" not in name}, ""),
}  # fmt: skip


@pytest.mark.parametrize("kind", SHAPES_OF_CHECKPOINTS)
def test_weights_are_found_in_every_checkpoint(tmp_path: Path, kind: str) -> None:
    content, note = SHAPES_OF_CHECKPOINTS[kind]
    torch.save(content, tmp_path / "ckpt.pt")
    model = make_model()
    notes = load_weights(model, tmp_path / "ckpt.pt")
    assert is_equal(model, TRAINED)
    assert note in " ".join(notes)
    assert bool(notes) == bool(note)


def test_safetensors_halves_and_shards(tmp_path: Path) -> None:
    save_file({name: value.half() for name, value in TRAINED.items()}, tmp_path / "half.safetensors")
    model = make_model()
    load_weights(model, tmp_path / "half.safetensors")
    assert model[0].weight.dtype == torch.float32
    assert torch.allclose(model[0].weight, TRAINED["0.weight"], atol=1e-3)
    names = list(TRAINED)
    for part in (0, 1):
        save_file({name: TRAINED[name] for name in names[part::2]}, tmp_path / f"s{part}.safetensors")
    weight_map = {name: f"s{index % 2}.safetensors" for index, name in enumerate(names)}
    (tmp_path / "m.index.json").write_text(__import__("json").dumps({"weight_map": weight_map}))
    model = make_model()
    load_weights(model, tmp_path / "m.index.json")
    assert is_equal(model, TRAINED)


def test_a_key_names_one_of_several(tmp_path: Path) -> None:
    file = tmp_path / "ckpt.pt"
    torch.save({"model": TRAINED, "ema": {"shadow": make_model(2).state_dict()}}, file)
    with pytest.raises(ModelLoadError, match=r"several entries fit: model, ema\.shadow") as raised:
        load_weights(make_model(), file)
    assert f"--weights {file}:model" in raised.value.hint
    model = make_model()
    load_weights(model, file, "ema.shadow")
    assert is_equal(model, make_model(2).state_dict())
    with pytest.raises(ModelLoadError, match="no entry 'emma'"):
        load_weights(model, file, "emma")


def test_tied_and_wrapped_models(tmp_path: Path) -> None:
    other = Tied()
    save_file({"embed.weight": other.embed.weight.detach()}, tmp_path / "tied.safetensors")
    model = Tied()
    load_weights(model, tmp_path / "tied.safetensors")
    assert torch.equal(model.head.weight, other.embed.weight)
    torch.save(TRAINED, tmp_path / "plain.pt")
    wrapped = nn.ModuleDict({"module": make_model()})
    assert "added the prefix 'module.'" in load_weights(wrapped, tmp_path / "plain.pt")[0]
    assert is_equal(wrapped["module"], TRAINED)


def test_lazy_and_meta_models_take_weights(tmp_path: Path) -> None:
    torch.save(TRAINED, tmp_path / "w.pt")
    lazy = nn.Sequential(nn.LazyLinear(4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    load_weights(lazy, tmp_path / "w.pt")
    assert is_equal(lazy, TRAINED)
    with torch.device("meta"):
        meta = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    load_weights(meta, tmp_path / "w.pt")
    assert is_equal(meta, TRAINED)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({"0.weight": torch.ones(1)}, "missing 0.bias"),
        ({**TRAINED, "extra": torch.ones(1)}, "unexpected extra"),
        ({**TRAINED, "0.weight": torch.ones(4, 9)}, r"0.weight is \[4, 9\] in the file and \[4, 3\] in the model"),
        ({"epoch": 3}, "it holds the keys epoch"),
        ([1, 2], "it holds one list"),
        ({}, "it holds nothing"),
    ],
)
def test_weights_that_do_not_fit_leave_the_model_alone(tmp_path: Path, content: Any, found: str) -> None:
    torch.save(content, tmp_path / "w.pt")
    model = make_model()
    with pytest.raises(ModelLoadError, match=found) as raised:
        load_weights(model, tmp_path / "w.pt")
    assert raised.value.exit_code == 3
    assert is_equal(model, make_model().state_dict())


class Trap:
    """A pickle that writes a file when it is read."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.file),))


@pytest.mark.parametrize("kwargs", [{}, {"_use_new_zipfile_serialization": False}])
def test_a_trap_does_not_run_and_is_named(tmp_path: Path, kwargs: dict[str, bool]) -> None:
    trap = tmp_path / "sprung"
    torch.save({"state_dict": TRAINED, "note": Trap(trap)}, tmp_path / "evil.pt", **kwargs)
    with pytest.raises(ModelLoadError, match="refused to read") as raised:
        load_weights(make_model(), tmp_path / "evil.pt")
    assert not trap.exists()
    assert "mkdir" in str(raised.value)
    assert "--unsafe-load" in raised.value.hint


def test_a_whole_pickled_model_loads_only_when_trusted(tmp_path: Path) -> None:
    torch.save(make_model(1), tmp_path / "whole.pt")
    with pytest.raises(ModelLoadError, match="Sequential"):
        load_weights(make_model(), tmp_path / "whole.pt")
    model = make_model()
    load_weights(model, tmp_path / "whole.pt", unsafe_load=True)
    assert is_equal(model, TRAINED)


def test_damaged_and_absent_files(tmp_path: Path) -> None:
    (tmp_path / "bad.safetensors").write_bytes(b"nonsense")
    (tmp_path / "bad.pt").write_bytes(b"nonsense")
    (tmp_path / "odd.xyz").write_bytes(b"")
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 9\n"
    for name in ("lfs file.pt", "lfs.safetensors", "lfs.npz"):
        (tmp_path / name).write_bytes(pointer)
        with pytest.raises(ModelLoadError, match="it is a Git LFS pointer") as raised:
            load_weights(make_model(), tmp_path / name)
        assert f"--include {shlex.quote(name)}" in raised.value.hint
    (tmp_path / "page.pt").write_bytes(b"<!DOCTYPE html><html></html>")
    with pytest.raises(ModelLoadError, match="cannot read") as raised:
        load_weights(make_model(), tmp_path / "page.pt")
    assert "--unsafe-load" not in raised.value.hint
    for name, found in {
        "bad.safetensors": "cannot read",
        "bad.pt": "bad",
        "odd.xyz": "known kind",
        "none.pt": "no such",
    }.items():
        with pytest.raises(ModelLoadError, match=found):
            load_weights(make_model(), tmp_path / name)


def test_a_colon_in_a_file_name_is_no_key(tmp_path: Path) -> None:
    (tmp_path / "a:b").write_text("")
    assert split_key(str(tmp_path / "a:b")) == (tmp_path / "a:b", "")
    assert split_key("ckpt.pt:ema.model") == (Path("ckpt.pt"), "ema.model")
    assert split_key("a:b/ckpt.pt") == (Path("a:b/ckpt.pt"), "")
