"""Find inputs that a model takes, by reading its first layers and trying: the command in an error must work."""

from __future__ import annotations

import inspect
import itertools
import math
import re
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import fx, nn

from neural_flow.models.input_text import InputText, parse_input
from neural_flow.models.layer_shapes import configured_sizes, shapes_of
from neural_flow.models.trial import runs_with
from neural_flow.models.values import draw_values

_SECONDS = 20.0
_MAX_TRIALS = 120
_MAX_READERS = 10
_MAX_CHOICES = 8
_NAME_HINTS = (
    (re.compile(r"mask|pad", re.I), ("1,16:bool", "16,16:bool", "1,16")),
    (re.compile(r"len", re.I), ("1:int64[16,17)",)),
    (re.compile(r"time|step|^t$|sigma|noise", re.I), ("1:int64[0,1000)", "1", "1,1")),
    (re.compile(r"edge_index", re.I), ("2,32:int64[0,16)",)),
    (re.compile(r"adj", re.I), ("16,16", "1,16,16")),
    (re.compile(r"label|class|target", re.I), ("1:int64[0,10)",)),
)
_LAYER_HINTS: tuple[tuple[re.Pattern[str], tuple[type[nn.Module], ...]], ...] = (
    (re.compile(r"pixel|image|img|frame|photo", re.I), (nn.Conv2d, nn.Conv3d)),
    (re.compile(r"ids|token|word|text", re.I), (nn.Embedding,)),
    (re.compile(r"feature|audio|wave|mel", re.I), (nn.Conv1d,)),
)
_ANYTHING = (
    "1,3,224,224", "1,16", "1", "1,1,128,128", "1,3,32,32", "1,16,64", "1,1,28,28", "1,16:int64", "4,4", "1,3", "1,1",
    "1:int64",
)  # fmt: skip


def suggest_inputs(model: nn.Module) -> list[str]:
    """Return ``-i`` texts with which forward runs; empty where none was found in some seconds.

    Args:
        model: run some times, each in eval mode without gradients; left as it was.
    """
    deadline = time.monotonic() + _SECONDS
    for parameters in _parameter_sets(model):
        tries = _for_one(model, parameters[0]) if len(parameters) == 1 else _for_many(model, parameters)
        for texts in itertools.islice(tries, _MAX_TRIALS):
            if _works(model, texts):
                return texts
            if time.monotonic() > deadline:
                return []
        if len(parameters) == 1 and (text := _solve_size(model, parameters[0])):
            return [text]
    return []


def suggest_nearby(model: nn.Module, specs: Sequence[InputText]) -> list[str]:
    """Return ``specs`` as texts with their spatial sizes rounded up so that forward runs; else what runs at all.

    Args:
        model: run some times, each in eval mode without gradients; left as it was.
        specs: what was given and failed.
    """
    for multiple in (8, 16, 32, 64):
        texts = [_rounded(spec, multiple) for spec in specs]
        if texts != [spec.text for spec in specs] and _works(model, texts):
            return texts
    return suggest_inputs(model)


def _rounded(spec: InputText, multiple: int) -> str:
    if spec.shape is None or len(spec.shape) < 4 or spec.file:
        return spec.text
    sizes = [*spec.shape[:2], *(max(multiple, -(-size // multiple) * multiple) for size in spec.shape[2:])]
    name = f"{spec.name}=" if spec.name else ""
    head = spec.text.removeprefix(name)
    rest = head[re.match(r"[^:\[]*", head).end() :]  # pyright: ignore[reportOptionalMemberAccess] - it matches nothing too
    return f"{name}{','.join(str(size) for size in sizes)}{rest}"


def _parameter_sets(model: nn.Module) -> Iterator[list[inspect.Parameter]]:
    """Yield sets of parameters that may be enough: the required ones, then these and one of the optional ones."""
    required = required_parameters(model)
    yield required
    optional = [parameter for parameter in _parameters(model) if parameter.name not in {p.name for p in required}]
    for other in optional[:_MAX_CHOICES]:
        yield [*required, other]


def _parameters(model: nn.Module) -> list[inspect.Parameter]:
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    return [parameter for parameter in parameters if parameter.kind is not inspect.Parameter.VAR_KEYWORD]


def required_parameters(model: nn.Module) -> list[inspect.Parameter]:
    """Return what forward cannot do without; where all of it is optional, the one that the model calls its main one."""
    plain = _parameters(model)
    required = [
        p for p in plain if p.default is inspect.Parameter.empty and p.kind is not inspect.Parameter.VAR_POSITIONAL
    ]
    main = [p for p in plain if p.name == getattr(model, "main_input_name", None)]
    return required or main or plain[:1] or [inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY)]


def _works(model: nn.Module, texts: Iterable[str]) -> bool:
    random = torch.Generator().manual_seed(0)
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    specs = [parse_input(text) for text in texts]
    values = [draw_values(spec, random).to(device) for spec in specs]
    args = tuple(value for spec, value in zip(specs, values, strict=True) if spec.name is None)
    kwargs = {spec.name: value for spec, value in zip(specs, values, strict=True) if spec.name is not None}
    return runs_with(model, args, kwargs)


def _for_one(model: nn.Module, parameter: inspect.Parameter) -> Iterator[list[str]]:
    name = _prefix(parameter, is_alone=parameter.name in {"x", *(p.name for p in _parameters(model)[:1])})
    readers = _likely_first(_readers(model), parameter)
    texts = itertools.chain(*(_shapes_of(model, reader) for reader in readers), _hinted(parameter), _ANYTHING)
    yield from ([name + text] for text in dict.fromkeys(texts))


def _for_many(model: nn.Module, parameters: list[inspect.Parameter]) -> Iterator[list[str]]:
    """Yield one text for each parameter: what its own reader takes if that can be seen, else what any reader takes."""
    own = _traced_readers(model)
    readers = _readers(model)
    choices: list[list[str]] = []
    for parameter in parameters:
        name = _prefix(parameter, is_alone=False)
        if parameter.name in own:
            texts = _shapes_of(model, own[parameter.name])[:4]
        else:
            likely = _likely_first(readers, parameter)
            hinted = [reader for reader in likely if _is_hinted(reader, parameter)]
            texts = [text for reader in hinted[:1] for text in _shapes_of(model, reader)]
            texts += [
                *_hinted(parameter),
                *(text for reader in likely for text in _shapes_of(model, reader)[:2]),
                "1",
                "1,16",
            ]
            texts = texts[: max(_MAX_CHOICES, len(shapes_of(hinted[0])) if hinted else 0)]
        choices.append([name + text for text in dict.fromkeys(texts)])
    yield from (list(texts) for texts in itertools.product(*choices))


def _likely_first(readers: list[nn.Module], parameter: inspect.Parameter) -> list[nn.Module]:
    """Return ``readers`` with those first that the parameter's name speaks of."""
    return sorted(readers, key=lambda reader: not _is_hinted(reader, parameter))


def _is_hinted(reader: nn.Module, parameter: inspect.Parameter) -> bool:
    return any(pattern.search(parameter.name) and isinstance(reader, kinds) for pattern, kinds in _LAYER_HINTS)


def _prefix(parameter: inspect.Parameter, *, is_alone: bool) -> str:
    has_name = parameter.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    is_plain = is_alone and parameter.kind is not inspect.Parameter.KEYWORD_ONLY
    return f"{parameter.name}=" if has_name and not is_plain else ""


def likely_texts(model: nn.Module, parameter: inspect.Parameter) -> list[str]:
    """Return ``-i`` texts without a name that ``parameter`` might take, the likeliest first; nothing is run."""
    readers = _likely_first(_readers(model), parameter)
    texts = [*_hinted(parameter), *itertools.chain(*(_shapes_of(model, reader)[:3] for reader in readers)), *_ANYTHING]
    return list(dict.fromkeys(texts))


def _shapes_of(model: nn.Module, reader: nn.Module) -> list[str]:
    """Return what ``reader`` takes, the sizes first that the configuration of ``model`` names."""
    return shapes_of(reader, configured_sizes(model))


def _hinted(parameter: inspect.Parameter) -> tuple[str, ...]:
    return next((texts for pattern, texts in _NAME_HINTS if pattern.search(parameter.name)), ())


def _readers(model: nn.Module) -> list[nn.Module]:
    """Return the first layers that tell a shape, in the order in which they were defined, one of each shape."""
    found: dict[str, nn.Module] = {}
    for module in model.modules():
        if texts := shapes_of(module):
            found.setdefault(texts[0], module)
    first = list(found.values())
    pictures = [module for module in first[_MAX_READERS:] if isinstance(module, nn.Conv2d)]
    return first[:_MAX_READERS] + pictures[:1]  # a second tower may begin late


def _traced_readers(model: nn.Module) -> dict[str, nn.Module]:
    """Return, by parameter, the first layer that reads it; a trace that fails halfway tells of what came before."""
    tracer = fx.Tracer()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tracer.trace(model)
        except Exception:  # what symbols cannot do is no error here
            if not hasattr(tracer, "graph"):
                return {}
    modules = dict(model.named_modules())
    readers: dict[str, nn.Module] = {}
    for node in tracer.graph.nodes:
        if node.op == "placeholder" and (reader := _first_reader(node, modules)):
            readers[str(node.target)] = reader
    return readers


def _first_reader(start: fx.Node, modules: dict[str, nn.Module]) -> nn.Module | None:
    seen, queue = {start}, [start]
    while queue:
        for user in queue.pop(0).users:
            if user in seen:
                continue
            seen.add(user)
            module = modules.get(str(user.target)) if user.op == "call_module" else None
            if module is not None and shapes_of(module):
                return module
            if len(user.all_input_nodes) == 1:  # where it meets other values, a later reader tells nothing of its shape
                queue.append(user)
    return None


def _solve_size(model: nn.Module, parameter: inspect.Parameter) -> str:
    """Return a picture of the size that a flattening net wants, solved from how far its linear layer was off."""
    reader = next((found for found in _readers(model) if isinstance(found, nn.Conv2d)), None)
    if reader is None:
        return ""
    name, size = _prefix(parameter, is_alone=True), 224
    ratio = _width_ratio(model, f"{name}1,{reader.in_channels},{size},{size}")
    if ratio is None:
        return ""
    middle = max(1, round(size * math.sqrt(ratio)))
    near = sorted(range(max(1, middle - 24), middle + 25), key=lambda found: (found % 8 != 0, abs(found - middle)))
    for found in near:
        text = f"{name}1,{reader.in_channels},{found},{found}"
        if _works(model, [text]):
            return text
    return ""


def _width_ratio(model: nn.Module, text: str) -> float | None:
    """Return wanted over given features of the linear layer at which a run with ``text`` fails."""
    last: list[float] = []

    def look(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs and isinstance(inputs[0], torch.Tensor) and isinstance(module, nn.Linear) and inputs[0].shape[-1]:
            last[:] = [module.in_features / inputs[0].shape[-1]]

    handles = [module.register_forward_pre_hook(look) for module in model.modules() if isinstance(module, nn.Linear)]
    try:
        worked = _works(model, [text])
    finally:
        for handle in handles:
            handle.remove()
    return last[0] if last and not worked and last[0] != 1 else None
