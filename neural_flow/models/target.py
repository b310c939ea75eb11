"""From the text that names a model to the model: a file, a module, a sample, a library's name, an exported archive."""

from __future__ import annotations

import difflib
import importlib
import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from torch import nn

from neural_flow.errors import ModelLoadError, NeuralFlowError, UnknownNameError
from neural_flow.models._base import PACKAGE_FOLDER, describe_error, listed, render_command, seeded, short_path
from neural_flow.models.choose import build_model, choose_attribute
from neural_flow.models.exported import load_exported
from neural_flow.models.fake import build_fake
from neural_flow.models.import_scope import ImportScope, folders_for
from neural_flow.models.libraries import LIBRARIES, build_library_model
from neural_flow.models.stored import split_key
from neural_flow.models.weights import load_weights

SAMPLE_PREFIX = "sample"
_WEIGHT_SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors", ".bin")
_DISTRIBUTIONS = MappingProxyType(
    {
        "cv2": "opencv-python", "PIL": "pillow", "sklearn": "scikit-learn", "skimage": "scikit-image", "yaml": "pyyaml",
        "bs4": "beautifulsoup4", "pytorch_lightning": "pytorch-lightning", "Levenshtein": "python-Levenshtein",
        "torch_geometric": "torch-geometric", "segmentation_models_pytorch": "segmentation-models-pytorch",
    }
)  # fmt: skip
"""What to install for a module of another name."""
_WRAPPERS = {"OptimizedModule": "_orig_mod", "DataParallel": "module", "DistributedDataParallel": "module"}
"""Where a wrapper holds the model that it wraps."""
_FILE_TARGET = re.compile(r"(?P<file>.+?\.pyw?)(?:::?(?P<attribute>[^:\\/]+))?")
_MODULE_TARGET = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:::?(?P<attribute>[^:\\/]+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model, and what came with it.

    Attributes:
        model: the module, on its device, with its weights.
        name: what to call it: the class, or the library's name.
        target: the text that named it.
        namespace: the names of the user's module, for the conventional functions; empty for libraries.
        file: the file that the model came from, or None.
        example_inputs: ``(args, kwargs)`` stored in an exported archive, or None.
        notes: what was decided on the user's behalf, one sentence each.
        scope: the imports that the user's code needs; enter it around anything that runs this code.
    """

    model: nn.Module
    name: str
    target: str
    namespace: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    file: Path | None = None
    example_inputs: Any = None
    notes: tuple[str, ...] = ()
    scope: ImportScope


def load_target(
    target: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    weights: str | None = None,
    unsafe_load: bool = False,
    allow_download: bool = False,
    device: str | None = None,
    fake: bool = False,
) -> LoadedModel:
    """Return the model that ``target`` names.

    Args:
        target: ``file.py[:attr]``, ``package.module[:attr]``, ``sample:name``, ``torchvision:name``, ``timm:name``,
            ``hf:folder`` or ``file.pt2``.
        arguments: keyword arguments for the class or function that makes it.
        seed: of all random generators while the file runs and the model is built; they are restored.
        weights: ``FILE[:KEY]`` to load into it.
        unsafe_load: allow files that can run code when they are read.
        allow_download: let libraries fetch trained weights.
        device: where the model goes, such as ``cuda:0``; None leaves it where it was built.
        fake: build it without memory, where a class, a function or a library makes it; weights are not read.

    Raises:
        ModelLoadError: anything that keeps the model from being made.
        UsageError: arguments that do not belong to the target.
    """
    with seeded(seed):
        source = _Source(target, dict(arguments or {}), unsafe_load, allow_download, fake)
        loaded = _load(source)
    notes: tuple[str, ...] = ()
    if weights is not None and fake:
        notes = ("--fake has no values: --weights is not read",)
    elif weights is not None:
        file, key = split_key(weights)
        file = file.absolute()  # inside the scope the user's code may have changed the working folder
        with loaded.scope:
            notes = load_weights(loaded.model, file, key, unsafe_load=unsafe_load)
    if device is not None:
        _move(loaded.model, device)
    return replace(loaded, notes=loaded.notes + notes)


def sample_names() -> tuple[str, ...]:
    """Return the names that ``sample:`` knows, sorted."""
    folder = sample_folder()
    files = folder.glob("*.py") if folder else ()
    return tuple(sorted(file.stem for file in files if "def neural_flow_model(" in file.read_text(encoding="utf-8")))


def sample_folder() -> Path | None:
    """Return the folder of the sample models: inside an installed package, or beside it in a checkout."""
    for folder in (PACKAGE_FOLDER / "sample_models", PACKAGE_FOLDER.parent / "sample_models"):
        if (folder / "unet.py").is_file():
            return folder
    return None


def load_function(spec: str, loaded: LoadedModel | None, defaults: tuple[str, ...]) -> tuple[Any, str, ImportScope]:
    """Return the function that ``file.py[:name]`` names, its name, and the scope to call it in.

    Args:
        spec: as typed; the model's own file is not run again.
        loaded: the model at hand.
        defaults: names to look for where none is given.

    Raises:
        ModelLoadError: no such file or name, or the file raises.
    """
    matched = _FILE_TARGET.fullmatch(spec)
    if matched is None:
        raise ModelLoadError(
            f"cannot read {spec!r}\nit is not FILE.py:FUNCTION", hint="for example inputs.py:make_inputs"
        )
    file = Path(matched["file"])
    if loaded and loaded.file and file.exists() and file.resolve() == loaded.file.resolve():
        namespace, scope = loaded.namespace, loaded.scope
    else:
        module, scope = _run_file(file, spec)
        namespace = vars(module)
    names = (matched["attribute"],) if matched["attribute"] else defaults
    for name in names:
        if name in namespace:
            return namespace[name], name, scope
    near = difflib.get_close_matches(names[0], [name for name in namespace if not name.startswith("_")], n=1)
    raise ModelLoadError(
        f"{file} has no {listed(names)}\nthe file ran, and defines no such name",
        hint=f"did you mean {file}:{near[0]}?" if near else "name a function with FILE.py:FUNCTION",
    )


@dataclass(frozen=True, slots=True)
class _Source:
    """What is to be loaded, and how."""

    target: str
    arguments: dict[str, Any]
    is_trusted: bool
    allow_download: bool
    is_fake: bool

    def build(self, make: Callable[[], nn.Module]) -> tuple[nn.Module, tuple[str, ...]]:
        """Return the model and what was decided."""
        return build_fake(make) if self.is_fake else (make(), ())


def _load(source: _Source) -> LoadedModel:
    target = source.target
    prefix, colon, rest = target.partition(":")
    if colon and prefix == SAMPLE_PREFIX:
        return _load_sample(rest, source)
    if colon and prefix in LIBRARIES:
        model, notes = source.build(
            lambda: build_library_model(prefix, rest, source.arguments, allow_download=source.allow_download)
        )
        name = rest.rstrip("/").rpartition("/")[2]
        return LoadedModel(model=model, name=name, target=target, notes=notes, scope=ImportScope([], ""))
    if target.endswith(".pt2"):
        return _load_archive(target, is_trusted=source.is_trusted)
    if matched := _FILE_TARGET.fullmatch(target):
        return _load_file(Path(matched["file"]), matched["file"], matched["attribute"], source)
    is_weights = Path(target).suffix in _WEIGHT_SUFFIXES
    if (matched := _MODULE_TARGET.fullmatch(target)) and not is_weights and not Path(target).exists():
        return _load_module(matched["module"], matched["attribute"], source)
    raise _unreadable_target(target)


def _load_sample(name: str, source: _Source) -> LoadedModel:
    sample, _, attribute = name.partition(":")
    folder = sample_folder()
    if folder is None or sample not in sample_names():
        raise UnknownNameError("sample model", sample, sample_names())
    return _load_file(folder / f"{sample}.py", f"sample:{sample}", attribute or None, source)


def _load_archive(target: str, *, is_trusted: bool) -> LoadedModel:
    file = Path(target)
    if not file.is_file():
        raise _no_such_file(file)
    model, example_inputs = load_exported(file, is_trusted=is_trusted)
    return LoadedModel(
        model=model,
        name=file.stem,
        target=target,
        file=file,
        example_inputs=example_inputs,
        scope=ImportScope([], ""),
    )


def _load_file(file: Path, named: str, attribute: str | None, source: _Source) -> LoadedModel:
    module, scope = _run_file(file, named)
    return _loaded_from(module, scope, attribute, source, named, file)


def _load_module(name: str, attribute: str | None, source: _Source) -> LoadedModel:
    scope = ImportScope([Path.cwd()], name)
    with scope:
        try:
            module = importlib.import_module(name)
        except (Exception, SystemExit) as error:
            raise _import_failed(name, error, source.target) from error
    file = Path(module.__file__) if module.__file__ else None
    return _loaded_from(module, scope, attribute, source, name, file)


def _loaded_from(
    module: ModuleType, scope: ImportScope, attribute: str | None, source: _Source, named: str, file: Path | None
) -> LoadedModel:
    namespace = vars(module)
    with scope:
        chosen = attribute or choose_attribute(namespace, source.arguments, named)
        model, notes = source.build(lambda: build_model(namespace, chosen, source.arguments, named, file))
    return LoadedModel(
        model=model,
        name=_name_of(model),
        target=source.target,
        namespace=MappingProxyType(namespace),
        file=file,
        notes=notes,
        scope=scope,
    )


def _name_of(model: nn.Module) -> str:
    """Return the class that the user wrote, out of what compiles, scripts or copies it."""
    while isinstance(inner := getattr(model, _WRAPPERS.get(type(model).__name__, ""), None), nn.Module):
        model = inner
    return str(getattr(model, "original_name", type(model).__name__))


def _run_file(file: Path, named: str) -> tuple[ModuleType, ImportScope]:
    if not file.is_file():
        raise _no_such_file(file)
    scope = ImportScope(folders_for(file), str(file))
    with scope:
        try:
            return scope.run_file(file), scope
        except (Exception, SystemExit) as error:
            raise ModelLoadError(
                f"{named} raised while it ran\n{describe_error(error)}", hint=_import_hint(error)
            ) from error


def _import_failed(name: str, error: BaseException, target: str) -> NeuralFlowError:
    is_absent = isinstance(error, ModuleNotFoundError) and name.startswith(error.name or name)
    if is_absent and ":" not in target and "." not in target:
        return _unreadable_target(target)
    if is_absent:
        return ModelLoadError(
            f"cannot import {name}\n{describe_error(error)}",
            hint="run it from the folder that holds the package, or name the file: path/to/model.py:ATTR",
        )
    return ModelLoadError(f"{name} raised while it was imported\n{describe_error(error)}", hint=_import_hint(error))


def _import_hint(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        install = f"pip install {_DISTRIBUTIONS.get(package, package)}"
        return f"install it in this environment ({install}), or run from the folder that {package} lies in"
    if isinstance(error, SystemExit) and _reads_command_line(error):
        return "it reads a command line while it is loaded: give every argument a default, or parse under __main__"
    if isinstance(error, SystemExit):
        return "put what runs as a script under: if __name__ == '__main__'"
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"run from the folder where {error.filename} lies, or read it under: if __name__ == '__main__'"
    return "python must be able to run the file; --debug shows the traceback"


def _reads_command_line(error: SystemExit) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return any(Path(frame.filename).stem == "argparse" for frame in frames)


def _no_such_file(file: Path) -> ModelLoadError:
    if file.is_dir():
        return ModelLoadError(f"cannot load {file}\nit is a folder", hint=_folder_hint(file))
    folder = file.parent
    if not folder.is_dir():
        return ModelLoadError(f"no such file: {file}\nthere is no folder {folder}", hint="check the path")
    others = sorted(other.name for other in folder.glob(f"*{file.suffix}"))
    near = difflib.get_close_matches(file.name, others, n=1, cutoff=0.5)
    if near:
        hint = "did you mean " + render_command(short_path(folder / near[0])) + " ?"
    else:
        hint = f"{short_path(folder)} holds {listed(others)}" if others else "try neural-flow render sample:unet"
    return ModelLoadError(f"no such file: {file}\nthe folder {short_path(folder)} has no {file.name}", hint=hint)


def _folder_hint(folder: Path) -> str:
    """Return which file in ``folder`` to name: one that speaks of modules, if there is one."""
    if (folder / "config.json").is_file():
        return "for the configuration in it: " + render_command(f"hf:{folder}")
    files = sorted(folder.glob("*.py"))
    likely = [file for file in files if "nn.Module" in file.read_text(encoding="utf-8", errors="replace")] or files
    if not likely:
        inner = sorted({file.parent for file in folder.glob("*/*.py")})
        return f"no .py file lies in it; look in {listed([str(one) for one in inner])}" if inner else "name a .py file"
    return f"name a file in it: {listed([render_command(str(file)) for file in likely], 3)}"


def _unreadable_target(target: str) -> ModelLoadError:
    path = Path(target)
    if path.suffix in _WEIGHT_SUFFIXES:
        return ModelLoadError(
            f"{target} is no model\na {path.suffix} file holds weights, not the code that uses them",
            hint=render_command("model.py", "--weights", target),
        )
    if path.suffix == ".json" and path.is_file():
        return ModelLoadError(
            f"{target} is no model\na graph file holds stages and edges, not the operations behind them",
            hint="name the model; render and diff take a graph file too",
        )
    if path.is_dir():
        return _no_such_file(path)
    forms = (
        "path/to/model.py[:ATTR], package.module:ATTR, sample:unet, torchvision:NAME, timm:NAME, hf:FOLDER, file.pt2"
    )
    samples = difflib.get_close_matches(target, sample_names(), n=1)
    hint = f"did you mean sample:{samples[0]}?" if samples else f"a target is one of {forms}"
    found = "it is a file of an unknown kind" if path.is_file() else "no file or module has this name"
    return ModelLoadError(f"cannot load {target!r}\n{found}", hint=hint)


def _move(model: nn.Module, device: str) -> None:
    try:
        model.to(device)
    except Exception as error:
        raise ModelLoadError(
            f"cannot move the model to {device}\n{describe_error(error)}", hint="for example --device cpu"
        ) from error
