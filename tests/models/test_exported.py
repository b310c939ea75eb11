from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from neural_flow.errors import ModelLoadError
from neural_flow.models.inputs import make_inputs
from neural_flow.models.target import load_target


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with torch.random.fork_rng():
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
        batch = torch.export.Dim("batch", min=1, max=9)
        program = torch.export.export(model, (torch.ones(2, 3, 8, 8),), dynamic_shapes=({0: batch},))
    file = tmp_path_factory.mktemp("pt2") / "net.pt2"
    torch.export.save(program, file)
    return file


def rewritten(archive: Path, folder: Path, change: Callable[[str, bytes], bytes], extra: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(folder / "net.pt2", "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
        for name, data in extra.items():
            new.writestr(name, data)
    return folder / "net.pt2"


def test_an_archive_brings_its_inputs(archive: Path) -> None:
    loaded = load_target(str(archive))
    inputs = make_inputs(loaded)
    assert loaded.name == "net"
    assert inputs.args[0].shape == (2, 3, 8, 8)
    assert loaded.model(*inputs.args).shape == (2, 4, 6, 6)


class Trap:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.folder),))


def test_a_pickle_in_an_archive_does_not_run(archive: Path, tmp_path: Path) -> None:
    torch.save(Trap(tmp_path / "sprung"), tmp_path / "trap.pt")
    trap = (tmp_path / "trap.pt").read_bytes()
    file = rewritten(archive, tmp_path, lambda name, data: trap if "sample_inputs" in name else data, {})
    with pytest.raises(ModelLoadError):
        load_target(str(file))
    assert not (tmp_path / "sprung").exists()
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


def test_an_expression_that_is_no_arithmetic_is_refused(archive: Path, tmp_path: Path) -> None:
    def change(name: str, data: bytes) -> bytes:
        text = data.decode() if name.endswith("model.json") else ""
        return json.dumps(_poison(json.loads(text))).encode() if text else data

    file = rewritten(archive, tmp_path, change, {})
    with pytest.raises(ModelLoadError, match="holds the expression") as raised:
        load_target(str(file))
    assert "--unsafe-load" in raised.value.hint
    assert raised.value.exit_code == 3


def _poison(content: Any) -> Any:
    if isinstance(content, dict):
        return {k: "__import__('os').mkdir('sprung')" if k == "expr_str" else _poison(v) for k, v in content.items()}
    return [_poison(value) for value in content] if isinstance(content, list) else content


@pytest.mark.parametrize("name", ["net/data/constants/custom_obj_0", "net/data/constants/opaque_obj_0"])
def test_objects_in_an_archive_are_refused(archive: Path, tmp_path: Path, name: str) -> None:
    file = rewritten(archive, tmp_path, lambda _name, data: data, {name: b"x"})
    with pytest.raises(ModelLoadError, match="it holds"):
        load_target(str(file))


def test_what_is_no_archive_says_so(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "a.pt2").write_bytes(b"nonsense")
    shutil.copy(archive, tmp_path / "b.pt2")
    with (tmp_path / "b.pt2").open("r+b") as stream:
        stream.truncate(400)
    with zipfile.ZipFile(tmp_path / "c.pt2", "w") as empty:
        empty.writestr("hello", b"")
    for name in "abc":
        with pytest.raises(ModelLoadError, match=r"torch\.export archive"):
            load_target(str(tmp_path / f"{name}.pt2"))
    with pytest.raises(ModelLoadError, match="no such file"):
        load_target(str(tmp_path / "d.pt2"))
