"""Find the model in a module's names, and build it."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from neural_flow.errors import ModelLoadError, UsageError
from neural_flow.models._base import describe_error, listed, render_command
from neural_flow.models.example_arguments import example_hint, missing_arguments, parameters_of

BUILDERS = ("neural_flow_model", "build_model", "get_model", "create_model", "build")


def choose_attribute(namespace: Mapping[str, Any], arguments: Mapping[str, Any], target: str) -> str:
    """Return the name of what makes the model, in the order: builders, an instance ``model``, the only fitting class.

    Args:
        namespace: the names of the user's module.
        arguments: constructor arguments; they decide whether a class or builder fits.
        target: how the user named the file, for the commands in messages.

    Raises:
        ModelLoadError: nothing fits, or several classes do.
    """
    builders = [name for name in BUILDERS if callable(namespace.get(name)) and not _is_class(namespace[name])]
    for name in builders:
        if not missing_arguments(namespace[name], arguments) and _takes(namespace[name], arguments):
            return name
    if isinstance(namespace.get("model"), nn.Module):
        return "model"
    classes = _own_classes(namespace)
    fitting = [name for name in classes if not missing_arguments(namespace[name], arguments)]
    fitting = [name for name in fitting if _takes(namespace[name], arguments)] or fitting
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ModelLoadError(
            f"cannot choose a model in {target}\nseveral classes fit: {listed(fitting)}",
            hint="name one: " + render_command(f"{target}:{fitting[-1]}"),
        )
    if builders or len(classes) == 1:
        return (builders or classes)[0]
    raise _nothing_to_build(namespace, classes, target)


def _nothing_to_build(namespace: Mapping[str, Any], classes: list[str], target: str) -> ModelLoadError:
    if classes:
        needs = [f"{name}({', '.join(missing_arguments(namespace[name], {}))})" for name in classes]
        return ModelLoadError(
            f"cannot choose a model in {target}\nevery class needs arguments: {listed(needs)}",
            hint=example_hint(namespace, classes[-1], namespace[classes[-1]], {}, target),
        )
    instances = [name for name, value in namespace.items() if isinstance(value, nn.Module) and not name.startswith("_")]
    if instances:
        hint = "name it: " + render_command(f"{target}:{instances[-1]}")
    else:
        hint = "define neural_flow_model() there, or name a class, function or instance: " + f"{target}:NAME"
    if instances:
        found = f"it holds {listed(instances)}, none called model"
    elif unable := _own_classes(namespace, can_run=False):
        found = f"none of its nn.Module classes can run, being abstract or without forward: {listed(unable)}"
    else:
        found = "it defines no nn.Module class"
    return ModelLoadError(f"found no model in {target}\n{found}", hint=hint)


def build_model(
    namespace: Mapping[str, Any], attribute: str, arguments: Mapping[str, Any], target: str, file: Path | None
) -> nn.Module:
    """Return the nn.Module that ``attribute`` (dotted) names, or builds from ``arguments``.

    Args:
        namespace: the names of the user's module.
        attribute: a dotted name of an nn.Module, a class, or a function that returns one.
        arguments: keyword arguments for the class or function.
        target: how the user named the file, without the attribute.
        file: the user's file, for messages.

    Raises:
        ModelLoadError: no such name, arguments missing, an error inside, or not an nn.Module.
        UsageError: arguments that the class does not know, or for a model already built.
    """
    value = _look_up(namespace, attribute, target)
    named = f"{target}:{attribute}"
    if isinstance(value, nn.Module):
        if arguments:
            raise UsageError(
                f"-a {' -a '.join(arguments)} cannot reach {named}\n"
                f"{attribute} is {_article(type(value).__name__)} already built",
                hint=f"name the class: {target}:{type(value).__name__}",
            )
        return value
    if not callable(value):
        raise ModelLoadError(
            f"{named} is no model\nfound {type(value).__name__}; expected an nn.Module, a class or a function",
            hint=_candidates_hint(namespace, target),
        )
    _refuse_method(namespace, attribute, value, target)
    _check_arguments(namespace, attribute, value, arguments, target)
    try:
        model: Any = value(**arguments)
    except (Exception, SystemExit) as error:
        where = f" in {file.name}" if file else ""
        raise ModelLoadError(
            f"{attribute}({_call_text(arguments)}) raised{where}\n{describe_error(error)}",
            hint="correct it there, or pass other values with -a name=value; --debug shows the traceback",
        ) from error
    if not isinstance(model, nn.Module):
        raise ModelLoadError(
            f"{named} built no model\nit returned {_article(type(model).__name__)}; expected an nn.Module",
            hint=_wrong_result_hint(model, target),
        )
    return model


def _check_arguments(
    namespace: Mapping[str, Any],
    attribute: str,
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    target: str,
) -> None:
    named = f"{target}:{attribute}"
    parameters = parameters_of(function)
    if parameters is None:
        return
    if missing := missing_arguments(function, arguments):
        raise ModelLoadError(
            f"{named} needs arguments\nmissing: {', '.join(missing)}",
            hint=example_hint(namespace, attribute, function, arguments, target),
        )
    if _takes(function, arguments):
        return
    unknown = next(name for name in arguments if name not in parameters)
    near = difflib.get_close_matches(unknown, parameters, n=1)
    known = f"it knows {listed(list(parameters))}" if parameters else "it takes none"
    raise UsageError(
        f"{named} has no argument {unknown!r}\n{known}",
        hint=f"did you mean -a {near[0]}={arguments[unknown]}?" if near else "leave it out",
    )


def _refuse_method(namespace: Mapping[str, Any], attribute: str, value: Any, target: str) -> None:
    """Raise where ``attribute`` names what a model does, not the model: ``Net.forward``, ``model.forward``."""
    owner_name, _, name = attribute.rpartition(".")
    owner = _look_up(namespace, owner_name, target) if owner_name else None
    is_of_class = (
        isinstance(owner, type)
        and issubclass(owner, nn.Module)
        and inspect.isfunction(inspect.getattr_static(owner, name, None))
    )
    is_of_model = isinstance(owner, nn.Module) and inspect.ismethod(value) and hasattr(nn.Module, name)
    if is_of_class or is_of_model:
        what = "class" if is_of_class else "model"
        raise ModelLoadError(
            f"{target}:{attribute} is no model\n{name} is a method, and runs when the model is drawn",
            hint=f"name the {what}: {target}:{owner_name}",
        )


def _takes(function: Callable[..., Any], arguments: Mapping[str, Any]) -> bool:
    parameters = parameters_of(function)
    if parameters is None or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return True
    return all(
        name in parameters and parameters[name].kind is not inspect.Parameter.POSITIONAL_ONLY for name in arguments
    )


def _look_up(namespace: Mapping[str, Any], attribute: str, target: str) -> Any:
    first, *rest = attribute.split(".")
    if first not in namespace:
        near = difflib.get_close_matches(first, [name for name in namespace if not name.startswith("__")], n=1)
        hint = f"did you mean {target}:{near[0]}?" if near else _candidates_hint(namespace, target)
        raise ModelLoadError(f"{target} has no {first!r}\nthe file ran, and defines no such name", hint=hint)
    value = namespace[first]
    for position, name in enumerate(rest, 1):
        if not hasattr(value, name):
            owner = ".".join([first, *rest[: position - 1]])
            known = [key for key in dir(value) if not key.startswith("_")]
            if isinstance(value, nn.Module):
                known = [key for key, _ in value.named_children()]
            near = difflib.get_close_matches(name, known, n=1)
            raise ModelLoadError(
                f"{target}:{owner} has no {name!r}\nit is a {type(value).__name__}",
                hint=f"did you mean {near[0]}?" if near else f"it has {listed(known)}",
            )
        value = getattr(value, name)
    return value


def _own_classes(namespace: Mapping[str, Any], *, can_run: bool = True) -> list[str]:
    """Return the model classes that the file itself defines and that can run, or those that cannot, in their order."""
    module_name = namespace.get("__name__")
    no_forward = nn.Module.forward
    return [
        name
        for name, value in namespace.items()
        if _is_class(value)
        and issubclass(value, nn.Module)
        and value.__module__ == module_name
        and value.__name__ == name
        and (value.forward is not no_forward and not inspect.isabstract(value)) is can_run
    ]


def _candidates_hint(namespace: Mapping[str, Any], target: str) -> str:
    names = _own_classes(namespace) + [name for name in BUILDERS if callable(namespace.get(name))]
    names += [name for name, value in namespace.items() if isinstance(value, nn.Module)]
    return f"name one of: {listed([f'{target}:{name}' for name in names])}" if names else f"{target} defines no model"


def _wrong_result_hint(model: Any, target: str) -> str:
    if isinstance(model, tuple | list) and any(isinstance(part, nn.Module) for part in model):
        return "write neural_flow_model() there that returns the nn.Module alone"
    if isinstance(model, torch.Tensor):
        return f"{target} names a function of tensors; name what makes the nn.Module"
    return "return the nn.Module from it"


def _is_class(value: Any) -> bool:
    return isinstance(value, type)


def _call_text(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


def _article(name: str) -> str:
    return f"an {name}" if name[:1].lower() in "aeiou" else f"a {name}"
