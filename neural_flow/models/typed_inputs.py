"""The inputs that ``-i`` options ask for: drawn from a seed, or read from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from neural_flow.errors import SampleInputError, UsageError
from neural_flow.models._base import listed, short_path
from neural_flow.models.image_file import SUFFIXES as IMAGE_SUFFIXES
from neural_flow.models.image_file import read_image
from neural_flow.models.input_text import InputText, Normalisation, parse_input
from neural_flow.models.stored import pick_key, read_stored
from neural_flow.models.trial import embeddings_reached
from neural_flow.models.values import draw_values


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleInputs:
    """What forward is called with.

    Attributes:
        args: positional arguments.
        kwargs: keyword arguments.
        normalisations: by parameter name (or position, as text), what was done to an image and is undone in pictures.
        notes: what was decided on the user's behalf, one sentence each.
        files: what was read to make them.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    normalisations: Mapping[str, Normalisation] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()


class TypedInputs:
    """The values of ``-i`` options, in their order.

    Args:
        texts: as typed; files are read now, from the working folder of this moment.
        seed: of drawn values.

    Raises:
        UsageError: a text is malformed, or a name comes twice.
        SampleInputError: a file cannot be read, or gives no tensor.
    """

    def __init__(self, texts: Sequence[str], seed: int) -> None:
        self._specs = [parse_input(text) for text in texts]
        names = [spec.name for spec in self._specs if spec.name is not None]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"the input {twice[0]!r} is given twice\nby -i", hint="leave one out")
        self._files = tuple(Path(spec.file).absolute() for spec in self._specs if spec.file)
        self._random = torch.Generator().manual_seed(seed)
        self._values = [_make_value(spec, self._random) for spec in self._specs]

    def for_model(self, model: nn.Module) -> SampleInputs:
        """Return the inputs, token ids where an embedding of ``model`` reads what was given no kind."""
        notes = self._guess_ids(model)
        positions = iter(range(len(self._specs)))
        keys = [spec.name if spec.name is not None else str(next(positions)) for spec in self._specs]
        normalisations = {
            key: spec.normalisation for key, spec in zip(keys, self._specs, strict=True) if spec.normalisation
        }
        return SampleInputs(
            args=self._args(),
            kwargs=self._kwargs(),
            normalisations=normalisations,
            notes=tuple(notes),
            files=self._files,
        )

    def _args(self) -> tuple[Any, ...]:
        return tuple(value for spec, value in zip(self._specs, self._values, strict=True) if spec.name is None)

    def _kwargs(self) -> dict[str, Any]:
        pairs = zip(self._specs, self._values, strict=True)
        return {spec.name: value for spec, value in pairs if spec.name is not None}

    def _guess_ids(self, model: nn.Module) -> list[str]:
        """Make token ids of the inputs that an embedding reads, where nothing was said about their kind. Say so."""
        open_inputs = [index for index, spec in enumerate(self._specs) if _is_kind_open(spec)]
        if not any(isinstance(module, nn.Embedding | nn.EmbeddingBag) for module in model.modules()):
            return []
        notes: list[str] = []
        while open_inputs:  # a run ends at the first embedding that is given floats: one guess a run
            reached = embeddings_reached(model, self._args(), self._kwargs())
            fresh = [index for index in open_inputs if id(self._values[index]) in reached]
            if not fresh:
                break
            for index in fresh:
                notes.append(self._make_ids(index, reached[id(self._values[index])]))
                open_inputs.remove(index)
        return notes

    def _make_ids(self, index: int, num_ids: int) -> str:
        spec = self._specs[index]
        dtype = spec.dtype or torch.int64
        self._values[index] = draw_values(replace(spec, dtype=dtype), self._random, num_ids=num_ids)
        named = f"{spec.name}=" if spec.name else ""
        shape = ",".join(str(size) for size in spec.shape or ())
        kind = str(dtype).removeprefix("torch.")
        return f"inputs: an embedding reads it, so -i {spec.text} is {named}{shape}:{kind}[0,{num_ids})"


def _is_kind_open(spec: InputText) -> bool:
    is_said = spec.dtype is not None and (
        spec.dtype.is_floating_point or spec.dtype.is_complex or spec.dtype == torch.bool
    )
    return not spec.file and spec.value_range is None and not is_said


def _make_value(spec: InputText, random: torch.Generator) -> torch.Tensor:
    if not spec.file:
        return draw_values(spec, random)
    file = Path(spec.file)
    if file.suffix.lower() in IMAGE_SUFFIXES:
        return read_image(file, spec)
    if spec.normalisation or spec.value_range:
        raise UsageError(
            f"cannot read the input {spec.text!r}\n{short_path(file)} is no image; it holds the values themselves",
            hint="leave the range and ~ out",
        )
    value = _pick_tensor(read_stored(file, unsafe_load=False, error_class=SampleInputError), spec, file)
    if spec.shape is not None and tuple(value.shape) != spec.shape:
        try:
            value = value.reshape(spec.shape)
        except RuntimeError as error:
            raise SampleInputError(
                f"cannot reshape {short_path(file)} to {list(spec.shape)}\nit holds {list(value.shape)}",
                hint="leave the shape out, or write one with as many values",
            ) from error
    return value.to(spec.dtype) if spec.dtype is not None else value


def _pick_tensor(content: Any, spec: InputText, file: Path) -> torch.Tensor:
    if spec.key:
        content = pick_key(content, spec.key, file)
    elif isinstance(content, Mapping):
        if spec.name in content:
            content = content[spec.name]
        elif len(content) == 1:
            content = next(iter(content.values()))
        else:
            names = [str(name) for name in content]
            raise SampleInputError(
                f"{short_path(file)} holds several tensors\n{listed(names)}",
                hint=f"name one: -i {(spec.name + '=') if spec.name else ''}@{file}:{names[0] if names else 'KEY'}",
            )
    if not isinstance(content, torch.Tensor):
        raise SampleInputError(
            f"{short_path(file)} gives no tensor for {spec.text!r}\nfound {type(content).__name__}",
            hint="name an entry with @FILE:KEY, or make the inputs in a function: --inputs file.py:make_inputs",
        )
    return content
