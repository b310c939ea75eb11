"""Models of other libraries, with random weights: ``torchvision:resnet18``, ``timm:vit_tiny``, ``hf:config-folder``.

Nothing is downloaded unless the user allows it.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import json
import os
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from neural_flow.errors import ModelLoadError, UsageError
from neural_flow.models._base import describe_error, listed

_PRETRAINED = ("weights", "weights_backbone", "pretrained", "pretrained_cfg")
Builder = Callable[[str, dict[str, Any], bool], nn.Module]


def build_library_model(prefix: str, name: str, arguments: Mapping[str, Any], *, allow_download: bool) -> nn.Module:
    """Return the model that a library calls ``name``.

    Args:
        prefix: a key of ``LIBRARIES``.
        name: the library's own name for it, or a folder with its configuration.
        arguments: keyword arguments for the library's builder.
        allow_download: fetch trained weights and configurations.

    Raises:
        ModelLoadError: the library is not installed, knows no such model, or cannot build it.
        UsageError: an argument asks for trained weights and downloads are not allowed.
    """
    asked = [key for key in _PRETRAINED if arguments.get(key) not in (None, False)]
    if asked and not allow_download:
        raise UsageError(
            f"-a {asked[0]}={arguments[asked[0]]} would download trained weights\n"
            "neural-flow stays offline unless told",
            hint="add --allow-download, or load a file with --weights FILE",
        )
    try:
        with _offline() if not allow_download else contextlib.nullcontext():
            return LIBRARIES[prefix](name, dict(arguments), allow_download)
    except (ModelLoadError, UsageError):
        raise
    except Exception as error:
        raise ModelLoadError(
            f"{prefix} could not build {name!r}\n{describe_error(error)}",
            hint="check the name and the -a arguments"
            + ("" if allow_download else "; --allow-download lets it fetch files"),
        ) from error


def _torchvision(name: str, arguments: dict[str, Any], allow_download: bool) -> nn.Module:
    models = _library("torchvision", "torchvision.models")
    name = name.rpartition(".")[2]  # segmentation.fcn_resnet50 is registered by its last part
    _known_or_raise("torchvision", name, list(models.list_models()))
    parameters = inspect.signature(models.get_model_builder(name)).parameters
    for key in ("weights", "weights_backbone"):
        if key in parameters:  # the backbone of detectors defaults to trained weights
            arguments.setdefault(key, "DEFAULT" if allow_download and key == "weights" else None)
    return models.get_model(name, **arguments)


def _timm(name: str, arguments: dict[str, Any], allow_download: bool) -> nn.Module:
    timm = _library("timm", "timm")
    _known_or_raise("timm", name.partition(".")[0], list(timm.list_models()))
    arguments.setdefault("pretrained", allow_download)
    return timm.create_model(name, **arguments)


def _hugging_face(name: str, arguments: dict[str, Any], allow_download: bool) -> nn.Module:
    if class_name := _diffusers_class(name):
        kind = _class_of("diffusers", class_name)
        return kind.from_config(kind.load_config(name), **arguments)
    if not allow_download and not Path(name).exists():
        raise ModelLoadError(
            f"hf:{name} is not here\nno such folder: {name}",
            hint="give a folder with config.json, or add --allow-download to fetch it by that name",
        )
    transformers = _library("transformers", "transformers")
    config = transformers.AutoConfig.from_pretrained(name, local_files_only=not allow_download, **arguments)
    architectures = getattr(config, "architectures", None) or []
    if architectures:
        kind = _class_of("transformers", architectures[0])
        is_remote = allow_download and not Path(name).exists()
        return kind.from_pretrained(name, config=config) if is_remote else kind(config)
    return transformers.AutoModel.from_config(config)


LIBRARIES: dict[str, Builder] = {"torchvision": _torchvision, "timm": _timm, "hf": _hugging_face}


def _diffusers_class(name: str) -> str:
    file = Path(name) / "config.json"
    if not file.is_file():
        return ""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelLoadError(
            f"cannot read {file}\n{describe_error(error)}", hint="a model configuration is a JSON file"
        ) from error
    return str(content.get("_class_name", ""))


def _class_of(library: str, class_name: str) -> Any:
    module = _library(library, library)
    if not hasattr(module, class_name):
        raise ModelLoadError(
            f"the configuration names the class {class_name}\nthe installed {library} has none of that name",
            hint=f"upgrade {library}, or render the .py file that defines it",
        )
    return getattr(module, class_name)


def _library(distribution: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except Exception as error:  # binaries that were built for another torch raise anything
        is_missing = isinstance(error, ModuleNotFoundError)
        fitting = f"the release of {distribution} that was built for torch {torch.__version__}"
        raise ModelLoadError(
            f"{distribution} cannot be used\n{describe_error(error)}",
            hint=f"pip install {distribution}" if is_missing else f"install {fitting}",
        ) from error


def _known_or_raise(library: str, name: str, known: list[str]) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3)
        raise ModelLoadError(
            f"{library} has no model {name!r}\nit knows {len(known)} others",
            hint=f"did you mean {listed([f'{library}:{other}' for other in near])}?"
            if near
            else "check its model list",
        )


@contextlib.contextmanager
def _offline() -> Generator[None]:
    """Tell the model hubs' clients to stay offline, as far as they read it late enough."""
    keys = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    before = {key: os.environ.get(key) for key in keys}
    os.environ.update(dict.fromkeys(keys, "1"))
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
