"""Find inputs that a model takes, by reading its first layers and trying: the command in an error must work."""

from __future__ import annotations

import inspect
import itertools
import math
import re
import time
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import fx, nn

from neural_flow.models.input_text import parse_input
from neural_flow.models.trial import runs_with
from neural_flow.models.values import draw_values

_SECONDS = 20.0
_MAX_TRIALS = 120
_MAX_READERS = 6
_PICTURE_SIZES = (224, 64, 32, 28, 256, 128, 96, 299, 48, 16, 512, 384, 8, 4)
_GREY_SIZES = (128, 28, 32, 64, 224, 256, 96, 48, 16, 512, 8, 4)
_VOLUME_SIZES = (32, 64, 16, 96, 8, 4)
_SIGNAL_LENGTHS = (1024, 16000, 256, 128, 64, 32, 16, 8, 4)
_SEQUENCE_LENGTHS = (16, 8, 4, 32, 64, 128, 2, 1)
_NAME_HINTS = (
    (re.compile(r"mask|pad", re.I), ("1,16:bool", "16,16:bool", "1,16")),
    (re.compile(r"len", re.I), ("1:int64[16,17)",)),
    (re.compile(r"time|step|^t$|sigma|noise", re.I), ("1:int64[0,1000)", "1", "1,1")),
    (re.compile(r"edge_index", re.I), ("2,32:int64[0,16)",)),
    (re.compile(r"adj", re.I), ("16,16", "1,16,16")),
    (re.compile(r"label|class|target", re.I), ("1:int64[0,10)",)),
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
    parameters = required_parameters(model)
    deadline = time.monotonic() + _SECONDS
    tries = _for_one(model, parameters) if len(parameters) == 1 else _for_many(model, parameters)
    for texts in itertools.islice(tries, _MAX_TRIALS):
        if _works(model, texts):
            return texts
        if time.monotonic() > deadline:
            break
    if len(parameters) == 1 and (text := _solve_size(model, parameters[0])):
        return [text]
    return []


def required_parameters(model: nn.Module) -> list[inspect.Parameter]:
    """Return what forward cannot do without; where all of it is optional, its first parameter."""
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    plain = [p for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD]
    required = [
        p for p in plain if p.default is inspect.Parameter.empty and p.kind is not inspect.Parameter.VAR_POSITIONAL
    ]
    return required or plain[:1] or [inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY)]


def _works(model: nn.Module, texts: Iterable[str]) -> bool:
    random = torch.Generator().manual_seed(0)
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    specs = [parse_input(text) for text in texts]
    values = [draw_values(spec, random).to(device) for spec in specs]
    args = tuple(value for spec, value in zip(specs, values, strict=True) if spec.name is None)
    kwargs = {spec.name: value for spec, value in zip(specs, values, strict=True) if spec.name is not None}
    return runs_with(model, args, kwargs)


def _for_one(model: nn.Module, parameters: list[inspect.Parameter]) -> Iterator[list[str]]:
    name = _prefix(parameters[0], is_alone=True)
    seen: set[str] = set()
    for text in itertools.chain(*(shapes_of(reader) for reader in _readers(model)), _hinted(parameters[0]), _ANYTHING):
        if text not in seen:
            seen.add(text)
            yield [name + text]


def _for_many(model: nn.Module, parameters: list[inspect.Parameter]) -> Iterator[list[str]]:
    """Yield one text for each parameter: what its own reader takes if that can be seen, else what any reader takes."""
    own = _traced_readers(model)
    readers = _readers(model)
    choices: list[list[str]] = []
    for parameter in parameters:
        name = _prefix(parameter, is_alone=False)
        if parameter.name in own:
            texts = shapes_of(own[parameter.name])[:4]
        else:
            texts = [*_hinted(parameter), *(text for reader in readers for text in shapes_of(reader)[:2])]
            texts = [*texts, "1", "1,16"][:8]
        choices.append([name + text for text in dict.fromkeys(texts)])
    yield from (list(texts) for texts in itertools.product(*choices))


def _prefix(parameter: inspect.Parameter, *, is_alone: bool) -> str:
    has_name = parameter.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    is_plain = is_alone and parameter.kind is not inspect.Parameter.KEYWORD_ONLY
    return f"{parameter.name}=" if has_name and not is_plain else ""


def _hinted(parameter: inspect.Parameter) -> tuple[str, ...]:
    return next((texts for pattern, texts in _NAME_HINTS if pattern.search(parameter.name)), ())


def _readers(model: nn.Module) -> list[nn.Module]:
    """Return the first layers that tell a shape, in the order in which they were defined, one of each shape."""
    found: dict[str, nn.Module] = {}
    for module in model.modules():
        if texts := shapes_of(module):
            found.setdefault(texts[0], module)
        if len(found) == _MAX_READERS:
            break
    return list(found.values())


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


def shapes_of(module: nn.Module) -> list[str]:
    """Return ``-i`` texts that ``module`` would take as its input, the likeliest first; empty if it says nothing."""
    match module:
        case nn.Conv1d() | nn.ConvTranspose1d() | nn.BatchNorm1d():
            channels = module.num_features if isinstance(module, nn.BatchNorm1d) else module.in_channels
            flat = [f"1,{channels}"] if isinstance(module, nn.BatchNorm1d) else []
            return flat + [f"1,{channels},{length}" for length in _SIGNAL_LENGTHS]
        case nn.Conv2d() | nn.ConvTranspose2d():
            sizes = _GREY_SIZES if module.in_channels == 1 else _PICTURE_SIZES
            return [f"1,{module.in_channels},{size},{size}" for size in sizes]
        case nn.BatchNorm2d():
            return [f"1,{module.num_features},{size},{size}" for size in _PICTURE_SIZES]
        case nn.Conv3d() | nn.ConvTranspose3d():
            return [f"1,{module.in_channels},{size},{size},{size}" for size in _VOLUME_SIZES]
        case nn.Embedding() | nn.EmbeddingBag():
            kind = f":int64[0,{module.num_embeddings})"
            return [f"1,{length}{kind}" for length in _SEQUENCE_LENGTHS] + [f"16{kind}", f"1{kind}"]
        case nn.RNNBase():
            lengths = _SEQUENCE_LENGTHS[:3]
            return [
                f"1,{n},{module.input_size}" if module.batch_first else f"{n},1,{module.input_size}" for n in lengths
            ]
        case nn.RNNCellBase():
            return [f"1,{module.input_size}"]
        case nn.MultiheadAttention():
            shape = "1,16" if module.batch_first else "16,1"
            return [f"{shape},{module.embed_dim}"]
        case nn.LayerNorm() | nn.RMSNorm():
            shape = ",".join(str(size) for size in module.normalized_shape)
            return [f"1,16,{shape}", f"1,{shape}", *_patches(math.prod(module.normalized_shape))]
        case nn.Linear():
            wide = [f"1,16,{module.in_features}", f"16,{module.in_features}", f"1,4,{module.in_features}"]
            return [f"1,{module.in_features}", *wide, *_patches(module.in_features)]
        case nn.Bilinear():
            return [f"1,{module.in1_features}"]
        case _:
            return []


def _patches(num_features: int) -> list[str]:
    """Return pictures that cut into square patches of ``num_features`` values, or that flatten to as many."""
    texts: list[str] = []
    for channels in (3, 1):
        side = math.isqrt(num_features // channels)
        if num_features % channels == 0 and side * side * channels == num_features and side > 1:
            texts += [
                f"1,{channels},{size},{size}" for size in (224, 256, 32, 64, 28) if size % side == 0 and size > side
            ]
            texts += [f"1,{channels},{side},{side}"]
    return texts


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
