"""Read tensors from files without running anything that a file says: safetensors, numpy, torch with weights only."""

from __future__ import annotations

import json
import re
import shlex
import tarfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from neural_flow.errors import ModelLoadError, NeuralFlowError, SampleInputError
from neural_flow.models._base import describe_error, short_path

TORCH_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".tar")
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_REFUSED_CLASS = re.compile(r"GLOBAL ([\w.]+)|(?:Unsupported class|unrecognized function) [`<]?([\w.]+)")


def split_key(text: str) -> tuple[Path, str]:
    """Return the file and the key in ``FILE[:KEY]``; a colon that belongs to an existing file's name stays with it."""
    file, colon, key = text.rpartition(":")
    if not colon or Path(text).exists() or "/" in key or "\\" in key:
        return Path(text), ""
    return Path(file), key


def read_stored(file: Path, *, unsafe_load: bool, error_class: type[NeuralFlowError] = ModelLoadError) -> Any:
    """Return what ``file`` holds: a tensor, an array, or a nest of them.

    Args:
        file: ``.safetensors``, its ``.index.json``, ``.npy``, ``.npz``, or a torch file.
        unsafe_load: allow a full pickle in a torch file.
        error_class: what to raise.

    Raises:
        NeuralFlowError: of ``error_class``: no such file, damaged, of an unknown kind, or a refused pickle.
    """
    if not file.is_file():
        found = "it is a folder" if file.is_dir() else f"the folder {short_path(file.parent)} does not hold it"
        raise error_class(f"no such file: {short_path(file)}\n{found}", hint="check the path")
    with file.open("rb") as opened:
        start = opened.read(len(_LFS_POINTER))
    if start == _LFS_POINTER:
        raise error_class(
            f"cannot read {short_path(file)}\nit is a Git LFS pointer: the name of the content, not the content",
            hint=f"fetch it with: git lfs pull --include {shlex.quote(file.name)}",
        )
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        if file.name.endswith(".index.json"):
            return _read_shards(file)
        if file.suffix in {".npy", ".npz"}:
            return _read_numpy(file)
    except NeuralFlowError:
        raise
    except Exception as error:
        raise error_class(
            f"cannot read {short_path(file)}\n{describe_error(error)}", hint="is the file whole?"
        ) from error
    if file.suffix in TORCH_SUFFIXES:
        return _read_torch(file, unsafe_load=unsafe_load, error_class=error_class)
    raise error_class(
        f"cannot read {short_path(file)}\nfiles ending in {file.suffix or 'nothing'} are of no known kind",
        hint=f"known: .safetensors .npy .npz {' '.join(TORCH_SUFFIXES)}",
    )


def _read_shards(index: Path) -> dict[str, torch.Tensor]:
    files = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    tensors: dict[str, torch.Tensor] = {}
    for name in files:
        tensors.update(load_file(index.parent / Path(name).name))
    return tensors


def _read_numpy(file: Path) -> Any:
    loaded = np.load(file, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return _as_tensor(loaded)
    with loaded:
        return {name: _as_tensor(loaded[name]) for name in loaded.files}


def _as_tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), copy=True))


def _read_torch(file: Path, *, unsafe_load: bool, error_class: type[NeuralFlowError]) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about formats that it goes on to read
            return torch.load(file, map_location="cpu", weights_only=not unsafe_load)
    except Exception as error:
        refused = "" if unsafe_load else _refused_class(file, error)
        if not refused:
            raise error_class(
                f"cannot read {short_path(file)}\n{describe_error(error)}",
                hint="is it whole, and written by torch.save?",
            ) from error
        raise error_class(
            f"refused to read {short_path(file)}\nit pickles {refused}, and unpickling can run code",
            hint="save only tensors there (torch.save(model.state_dict(), ...)), or add --unsafe-load if you trust it",
        ) from error


def _refused_class(file: Path, error: Exception) -> str:
    """Return the class that stopped a load of weights only; empty where something else did."""
    text = str(error)
    if "TorchScript" in text:
        return "a TorchScript program"
    if "eights only load failed" not in text and "weights_only" not in text:
        return ""
    if not _is_torch_file(file):
        return ""
    if matched := _REFUSED_CLASS.search(text):
        return "the class " + next(filter(None, matched.groups()))
    try:
        unsafe = sorted(torch.serialization.get_unsafe_globals_in_checkpoint(str(file)))
    except Exception:  # only zip archives can be listed
        unsafe = []
    return f"the class {unsafe[0]}" if unsafe else "something other than tensors"


def _is_torch_file(file: Path) -> bool:
    """Return whether a file begins as torch.save writes it: a zip archive, a pickle, or the old tar archive."""
    with file.open("rb") as opened:
        start = opened.read(2)
    return start == b"PK" or start[:1] == b"\x80" or tarfile.is_tarfile(file)


def pick_key(content: Any, key: str, file: Path, error_class: type[NeuralFlowError] = SampleInputError) -> Any:
    """Return the entry that the dotted ``key`` names in a nest of mappings; a key that holds dots itself comes first.

    Raises:
        NeuralFlowError: of ``error_class``: there is no such entry.
    """
    rest, value = key, content
    while rest:
        if isinstance(value, Mapping) and rest in value:
            return value[rest]
        first, _, after = rest.partition(".")
        if not isinstance(value, Mapping) or first not in value:
            known = ", ".join(str(name) for name in list(value)[:6]) if isinstance(value, Mapping) else "no names"
            raise error_class(
                f"{short_path(file)} has no entry {key!r}\nit holds {known}",
                hint=f"write {short_path(file)}:KEY with one",
            )
        rest, value = after, value[first]
    return value
