"""Make the inputs of a model: from ``-i`` texts, a function, the model's file, or the model itself."""

from __future__ import annotations

import difflib
import inspect
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from neural_flow.errors import ModelLoadError, SampleInputError, UsageError
from neural_flow.models._base import describe_error, render_command, seeded, short_path
from neural_flow.models.input_text import parse_input
from neural_flow.models.inputs_sketch import Sketch, needs_function, sketch_inputs
from neural_flow.models.suggest import required_parameters, suggest_inputs, suggest_nearby
from neural_flow.models.target import LoadedModel, load_function
from neural_flow.models.trial import runs_with
from neural_flow.models.typed_inputs import SampleInputs, TypedInputs
from neural_flow.nested import map_tensors

CONVENTIONAL_NAMES = ("neural_flow_inputs", "sample_inputs", "example_inputs")
FUNCTION_NAMES = ("neural_flow_inputs", "make_inputs", "sample_inputs", "example_inputs")
MODULE_ATTRIBUTES = ("example_input_array", "dummy_inputs")
_MAX_SHOWN = 6
_NONE_GIVEN = "none were given"
INPUTS_FILE = "inputs.py"
OWN_FUNCTION = "make_inputs"
SHARED_ATTRIBUTE = "dummy_inputs"  # one for all models of a library, whatever their forward takes


def make_inputs(
    loaded: LoadedModel,
    texts: Sequence[str] = (),
    function: str | None = None,
    *,
    seed: int = 0,
    device: str | None = None,
    command: str = "",
) -> SampleInputs:
    """Return the inputs of ``loaded.model``, checked against the signature of its forward.

    The first of these that is there: ``texts``, ``function``, a conventional name in the model's file, the inputs of an
    exported archive, the module's ``example_input_array`` or ``dummy_inputs``.

    Args:
        loaded: the model.
        texts: ``-i`` options as typed.
        function: ``file.py[:name]`` of a function without arguments.
        seed: of all random generators; they are restored.
        device: where tensors go; None leaves them where they were made.
        command: what the user typed, for the command in an error; made from the target if empty.

    Raises:
        UsageError: a text is malformed.
        SampleInputError: no inputs, or they do not fit forward; the hint is a command that works.
        ModelLoadError: the file of ``function`` cannot be run.
    """
    if getattr(loaded.model.forward, "__func__", None) is nn.Module.forward:
        raise ModelLoadError(
            f"{type(loaded.model).__name__} cannot run\nit has no forward",
            hint="define forward, or name the module that calls this one",
        )
    if texts and function:
        raise UsageError("-i and --inputs exclude each other\nboth make the inputs", hint="leave one out")
    command = command or render_command(loaded.target)
    with seeded(seed):  # files are found before the scope is entered: the user's code may have changed the folder
        typed = TypedInputs(texts, seed) if texts else None
        found = load_function(function, loaded, FUNCTION_NAMES) if function else None
    with loaded.scope, seeded(seed):
        if typed is not None:
            inputs = typed.for_model(loaded.model)
            if device is None and (own := _device_of(loaded.model)):
                device = own
                inputs = replace(inputs, notes=(*inputs.notes, f"inputs: on {own}, where the model is"))
        elif found is not None:
            value, name, scope = found
            with scope:
                inputs = _from_user(value, name)
            inputs = replace(inputs, files=scope.files)
        else:
            inputs = _from_conventions(loaded)
        if inputs is None:
            raise _missing_inputs(loaded, _NONE_GIVEN, command)
        if problem := _misfit(loaded, inputs):
            raise _missing_inputs(loaded, problem, command)
    if device is not None:
        inputs = _moved(inputs, device)
    return inputs


def interpret(value: Any, name: str) -> SampleInputs:
    """Return what a function of inputs means: a tensor, a tuple of arguments, a dict of keywords, ``(args, kwargs)``.

    Raises:
        SampleInputError: it is something else, so that a guess would be needed.
    """
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], tuple) and isinstance(value[1], dict):
        return SampleInputs(args=value[0], kwargs=value[1])
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return SampleInputs(args=value)
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return SampleInputs(args=(), kwargs=dict(value))
    if isinstance(value, torch.Tensor):
        return SampleInputs(args=(value,))
    raise SampleInputError(
        f"cannot use what {name} returned\nfound {type(value).__name__}; "
        "expected a tensor, a tuple of arguments, a dict of keywords, or (args, kwargs)",
        hint="to hand it over as one argument, return ((value,), {})",
    )


def _from_conventions(loaded: LoadedModel) -> SampleInputs | None:
    for name in CONVENTIONAL_NAMES:
        if name in loaded.namespace:
            return _from_user(loaded.namespace[name], name)
    if loaded.example_inputs is not None:
        args, kwargs = loaded.example_inputs
        return SampleInputs(args=tuple(args), kwargs=dict(kwargs))
    for name in MODULE_ATTRIBUTES:
        try:
            value = getattr(loaded.model, name, None)
        except Exception:  # a property of the user's class may need what is not there; then it gives no inputs
            continue
        if value is not None:
            inputs = interpret(value, name)
            if name != SHARED_ATTRIBUTE or runs_with(loaded.model, inputs.args, inputs.kwargs):
                return replace(inputs, notes=(f"inputs: the model's {name}",))
    return None if _takes_inputs(loaded.model) else SampleInputs(args=())


def _takes_inputs(model: nn.Module) -> bool:
    try:
        return bool(inspect.signature(model.forward).parameters)
    except (TypeError, ValueError):  # a forward without a readable signature may take anything
        return True


def _from_user(value: Any, name: str) -> SampleInputs:
    if callable(value) and not isinstance(value, torch.Tensor):
        try:
            value = value()
        except (Exception, SystemExit) as error:
            raise SampleInputError(
                f"{name}() raised\n{describe_error(error)}",
                hint="it is called without arguments; --debug shows the traceback",
            ) from error
    return interpret(value, name)


def _misfit(loaded: LoadedModel, inputs: SampleInputs) -> str:
    """Return why forward cannot be called with these inputs; empty where its signature allows it."""
    try:
        signature = inspect.signature(loaded.model.forward)
    except (TypeError, ValueError):  # a forward without a readable signature: the call itself will tell
        return ""
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values())
    if not takes_any and (unknown := [name for name in inputs.kwargs if name not in signature.parameters]):
        return f"it has no parameter {unknown[0]!r}"
    try:
        signature.bind(*inputs.args, **inputs.kwargs)
    except TypeError as error:
        return str(error)
    return ""


def _missing_inputs(loaded: LoadedModel, problem: str, command: str) -> SampleInputError:
    parameters = [parameter.name for parameter in required_parameters(loaded.model)]
    cause = f"it takes {signature_text(loaded)}; {problem}"
    unknown = problem.partition("it has no parameter ")[2].strip("'")
    near = difflib.get_close_matches(unknown, parameters, n=1) if unknown else []
    near = near or (parameters if unknown and len(parameters) == 1 else [])
    options: list[str] = []
    if near:
        hint = f"did you mean -i {near[0]}=...?"
    elif callable(loaded.namespace.get(OWN_FUNCTION)) and loaded.file is not None:
        hint = f"for those that the file makes: {command} --inputs {short_path(loaded.file)}:{OWN_FUNCTION}"
    elif not needs_function(loaded.model) and (options := suggest_inputs(loaded.model)):
        hint = f"this works: {with_inputs(command, options)}"
    else:
        sketch = sketch_inputs(loaded.model)
        if sketch.error is not None and not isinstance(sketch.error, TypeError):
            cause += f"; with those below it raises {describe_error(sketch.error)}"
        hint = _function_hint(sketch, command)
    name = type(loaded.model).__name__
    what = f"{name} needs inputs" if problem == _NONE_GIVEN else f"the inputs do not fit {name}"
    return SampleInputError(f"{what}\n{cause}", hint=hint)


def _function_hint(sketch: Sketch, command: str) -> str:
    verb = "append to" if Path(INPUTS_FILE).exists() else "write"
    is_sure = sketch.error is None
    lines = f"{verb} {INPUTS_FILE}, with the lines below{'' if is_sure else ' and values that fit'}"
    works = "this works" if is_sure else "run"
    return f"{lines}; then {works}: {command} --inputs {INPUTS_FILE}:{OWN_FUNCTION}\n{sketch.code}"


def retry_command(loaded: LoadedModel, texts: Sequence[str], command: str) -> str:
    """Return a command that works where forward raised with ``texts``: other sizes, else other shapes; empty if none.

    Args:
        loaded: the model; run some times, left as it was.
        texts: the ``-i`` options that were given.
        command: what was typed, without them.
    """
    with loaded.scope:
        options = suggest_nearby(loaded.model, [parse_input(text) for text in texts])
    return with_inputs(command, options) if options and options != list(texts) else ""


def with_inputs(command: str, texts: Sequence[str]) -> str:
    """Return ``command`` with ``-i`` options, quoted as a shell needs it."""
    return " ".join([command, *(f"-i {shlex.quote(text)}" for text in texts)])


def signature_text(loaded: LoadedModel) -> str:
    """Return ``forward(x, mask=None)``, without annotations; of many parameters the first ones."""
    signature = inspect.signature(loaded.model.forward)
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    shown = signature.replace(parameters=plain[:_MAX_SHOWN], return_annotation=inspect.Signature.empty)
    return f"forward{shown}" if len(plain) <= _MAX_SHOWN else f"forward{str(shown)[:-1]}, …)"


def _device_of(model: nn.Module) -> str:
    """Return the device that all of the model is on, where that is not the CPU; empty where there is none."""
    devices = {str(tensor.device) for tensor in (*model.parameters(), *model.buffers())}
    return devices.pop() if len(devices) == 1 and devices != {"cpu"} else ""


def _moved(inputs: SampleInputs, device: str) -> SampleInputs:
    def move(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(device)

    try:
        args, kwargs = map_tensors((inputs.args, dict(inputs.kwargs)), move)
    except RuntimeError as error:
        raise SampleInputError(
            f"cannot move the inputs to {device}\n{describe_error(error)}", hint="for example --device cpu"
        ) from error
    return replace(inputs, args=args, kwargs=kwargs)
