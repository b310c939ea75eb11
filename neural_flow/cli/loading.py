"""What every command that runs a model does first: load it, make its inputs, read the options of the pipeline."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from neural_flow.capture._names import input_leaves
from neural_flow.cli.console import say
from neural_flow.errors import ForwardError, UsageError
from neural_flow.models.arguments import parse_arguments
from neural_flow.models.conventions import class_names, loss_function, token_words
from neural_flow.models.inputs import make_inputs, retry_command
from neural_flow.models.target import LoadedModel, load_target
from neural_flow.models.typed_inputs import SampleInputs
from neural_flow.options import ImageNorm

_SAME_NAMES = (
    "detail", "depth", "max_stages", "fold", "topology", "tracer", "fake", "capture", "capture_device", "attention",
    "heads", "gradients", "saved", "color_by", "sample", "train", "seed", "autocast", "strict", "layout", "direction",
    "width", "theme", "transparent", "cmap", "norm", "dpi", "title", "legend", "shapes", "font", "text_as_paths",
)  # fmt: skip
_REPEATED = ("select", "exclude", "types", "expand", "collapse", "highlight")
_ABSOLUTE_FILE = re.compile(r"@(?:[A-Za-z]:)?[\\/][^:\[~]*")
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A model with its inputs, ready to run; enter ``loaded.scope`` around whatever runs it."""

    loaded: LoadedModel
    inputs: SampleInputs
    command: str
    texts: tuple[str, ...]


def load_job(params: Mapping[str, Any], tell: Tell, *, command: str = "render") -> Job:
    """Load the model that the parameters of a command name, and make its inputs.

    Args:
        params: the command's parameters, named as in ``options``.
        tell: is told each phase.
        command: the command's name, for hints that can be pasted.

    Raises:
        NeuralFlowError: the model or its inputs cannot be made.
    """
    tell("loading the model")
    loaded = load_target(
        params["target"],
        parse_arguments(params["arguments"] or ()),
        seed=params["seed"],
        weights=params["weights"],
        unsafe_load=params["unsafe_load"],
        allow_download=params["allow_download"],
        device=params["device"],
        fake=params.get("fake", False),
    )
    tell("making the inputs")
    texts = tuple(params["inputs"] or ())
    typed = command_of(params, command)
    inputs = make_inputs(
        loaded, texts, params["inputs_function"], seed=params["seed"], device=params["device"], command=typed
    )
    if not params["quiet"]:
        for note in (*loaded.notes, *inputs.notes):
            say("note", note)
    return Job(loaded=loaded, inputs=inputs, command=typed, texts=texts)


def command_of(params: Mapping[str, Any], command: str) -> str:
    """Return the command as typed, as far as it decides how the model is made."""
    words = ["neural-flow", command, params["target"]]
    for argument in params["arguments"] or ():
        words += ["-a", argument]
    if params["weights"] is not None:
        words += ["--weights", params["weights"]]
    if params.get("fake"):
        words.append("--fake")
    return shlex.join(words)


def improve_hint(error: ForwardError, job: Job) -> None:
    """Tell in the hint of ``error`` which inputs work, where the user gave the ones that did not, and which options."""
    found = f"inputs were {', '.join(error.input_shapes) or 'none'}"
    if job.texts and (command := retry_command(job.loaded, job.texts, job.command)):
        error.hint = f"{found}; this works: {command}"
    else:
        way = "-i" if job.texts else "-i or --inputs"
        error.hint = f"{found}; try other inputs with {way}; --debug shows the traceback"


def pipeline_options(params: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Return the options of ``pipeline`` that do not depend on the model. A command without an option leaves it out."""
    options: dict[str, Any] = {name: params[name] for name in _SAME_NAMES if name in params}
    options |= {name: tuple(params[name] or ()) for name in _REPEATED if name in params}
    if "batch_dim" in params:
        batch_dim = params["batch_dim"]
        options["batch_dim"] = int(batch_dim) if batch_dim.lstrip("-").isdigit() else batch_dim
    if "stats" in params:
        options["stats"] = params["stats"] is not False
        options["show_stats"] = params["stats"] is True
    if "labels" in params:
        options["labels"] = _read_labels(params["labels"] or ())
    log = partial(say, "note") if params.get("verbose") else None
    return {**options, "progress": tell, "log": log}


def model_options(params: Mapping[str, Any], job: Job) -> dict[str, Any]:
    """Return the options of ``pipeline`` that come with the model. No folder of this machine is in them."""
    return {
        "model_name": job.loaded.name,
        "target": _named(job.loaded.target),
        "arguments": tuple(params["arguments"] or ()),
        "inputs": tuple(_ABSOLUTE_FILE.sub(_file_name, text) for text in job.texts),
        "inputs_function": _named(params["inputs_function"]),
        "weights": _named(params["weights"]),
        "image_norm": _image_norm(job),
        "tokens": token_words(job.loaded, params.get("tokens")),
        "class_labels": class_names(job.loaded, params.get("class_labels")),
        "loss": loss_function(job.loaded),
    }


def _named(file: Any) -> Any:
    """Return a file as typed, or its name alone where the text holds a folder of this machine."""
    return Path(file).name if file is not None and Path(file).is_absolute() else file


def _image_norm(job: Job) -> ImageNorm | dict[str, ImageNorm] | None:
    """Return mean and std by channel of the normalised images, by input name where not all images were made alike."""
    inputs = job.inputs
    names = {id(value): name for name, value in input_leaves(job.loaded.model, inputs.args, inputs.kwargs)}
    found: dict[str, ImageNorm] = {}
    shapes: set[tuple[int, ...]] = set()
    for key, done in inputs.normalisations.items():
        value = inputs.args[int(key)] if key.isdigit() else inputs.kwargs[key]
        num_channels = value.shape[-3] if value.ndim >= 3 else 1
        mean, std = (part * num_channels if len(part) == 1 else part for part in (done.mean, done.std))
        found[names.get(id(value), key)] = mean, std
        shapes.add(tuple(value.shape))
    others = (*inputs.args, *inputs.kwargs.values())
    num_alike = sum(any(_is_image_like(other, shape) for shape in shapes) for other in others)
    is_for_all = len(set(found.values())) == 1 and num_alike == len(found)
    return next(iter(found.values())) if is_for_all else found or None


def _is_image_like(value: Any, shape: Sequence[int]) -> bool:
    other = tuple[int, ...](getattr(value, "shape", ()))
    return len(other) == len(shape) >= 3 and other[-3] == shape[-3]


def _file_name(matched: re.Match[str]) -> str:
    return "@" + re.split(r"[\\/]", matched[0])[-1]


def _read_labels(texts: Sequence[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in texts:
        path, equals, label = text.partition("=")
        if not equals or not path:
            raise UsageError(
                f"cannot read --label {text!r}\nit is not PATH=TEXT", hint="for example --label enc.0=Stem"
            )
        labels[path] = label
    return labels
