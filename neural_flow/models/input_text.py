"""Read the text of one ``-i`` option: ``name=1,3,224,224:float32[0,1]`` or ``name=@file:...``."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

import torch

from neural_flow.errors import UsageError

_NAMED = re.compile(r"(?P<name>[A-Za-z_][\w.]*)\s*=(?P<rest>.*)", re.DOTALL)
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?inf"
_RANGE = re.compile(rf"\[\s*(?P<low>{_NUMBER})\s*,\s*(?P<high>{_NUMBER})\s*(?P<end>[)\]])")
_NORMALISATION = re.compile(r"~(?P<text>imagenet|[-+\d.eE,\s]+)")
_SHAPE = re.compile(r"\d+(?:\s*[,x×]\s*\d+)*")
_ALIASES = {
    "float": "float32", "double": "float64", "half": "float16", "bf16": "bfloat16", "f16": "float16", "fp16": "float16",
    "f32": "float32", "fp32": "float32", "f64": "float64", "int": "int64", "long": "int64", "i64": "int64",
    "i32": "int32", "short": "int16", "byte": "uint8", "u8": "uint8", "boolean": "bool", "complex": "complex64",
    "cfloat": "complex64", "cdouble": "complex128",
}  # fmt: skip
_DTYPES = (
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128", "bool",
    "uint8", "int8", "int16", "int32", "int64",
)  # fmt: skip
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_EXAMPLES = "for example -i 1,3,224,224  -i tokens=2,16:int64[0,1000)  -i image=@cells.png:1,1,256,256[0,1]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The values to draw or to map to; ``is_open`` leaves out ``high``."""

    low: float
    high: float
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalisation:
    """Subtract ``mean`` and divide by ``std``, one number a channel or one for all."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputText:
    """One ``-i`` option, read.

    Attributes:
        text: as typed.
        name: the parameter of forward; None for a positional one.
        shape: sizes; empty for a scalar, None where none was given (files only).
        dtype: None where none was given.
        value_range: the range of the values, or None.
        file: what follows ``@``, with the key or shape still in it; empty for drawn values.
        key: the part after the file's last colon that is no shape and no dtype.
        normalisation: of an image, or None.
    """

    text: str
    name: str | None = None
    shape: tuple[int, ...] | None = None
    dtype: torch.dtype | None = None
    value_range: Range | None = None
    file: str = ""
    key: str = ""
    normalisation: Normalisation | None = None


def parse_input(text: str) -> InputText:
    """Read one ``-i`` text.

    Raises:
        UsageError: the text is malformed; the message says which part.
    """
    matched = _NAMED.fullmatch(text.strip())
    name = matched["name"] if matched else None
    rest = (matched["rest"] if matched else text).strip()
    rest, normalisation = _split_normalisation(rest, text)
    rest, value_range = _split_range(rest, text)
    if rest.startswith("@"):
        return _parse_file(text, name, rest[1:], value_range, normalisation)
    shape_text, colon, dtype_text = rest.partition(":")
    shape = _parse_shape(shape_text, text, is_scalar=bool(colon))
    dtype = parse_dtype(dtype_text, text) if colon else None
    return InputText(text=text, name=name, shape=shape, dtype=dtype, value_range=value_range)


def parse_dtype(name: str, text: str) -> torch.dtype:
    """Return the dtype called ``name``, or by a short name such as ``bf16``.

    Raises:
        UsageError: there is no such dtype.
    """
    plain = name.strip().removeprefix("torch.")
    plain = _ALIASES.get(plain, plain)
    if plain not in _DTYPES:
        near = difflib.get_close_matches(plain, [*_DTYPES, *_ALIASES], n=1)
        hint = f"did you mean :{near[0]}?" if near else f"known: {', '.join(_DTYPES)}"
        raise _malformed(text, f"{name!r} is no dtype", hint)
    return getattr(torch, plain)


def _parse_file(
    text: str, name: str | None, rest: str, value_range: Range | None, normalisation: Normalisation | None
) -> InputText:
    file, *parts = _split_colons(rest)
    if not file:
        raise _malformed(text, "no file follows @", _EXAMPLES)
    shape: tuple[int, ...] | None = None
    dtype: torch.dtype | None = None
    key = ""
    for part in parts:
        if _SHAPE.fullmatch(part.strip()):
            shape = _parse_shape(part, text, is_scalar=False)
        elif _is_dtype(part):
            dtype = parse_dtype(part, text)
        elif part:
            key = part.strip()
    return InputText(
        text=text, name=name, shape=shape, dtype=dtype, value_range=value_range, file=file, key=key,
        normalisation=normalisation,
    )  # fmt: skip


def _split_colons(text: str) -> list[str]:
    """Split at colons, but not at the one of a drive letter."""
    drive = re.match(r"[A-Za-z]:[\\/]", text)
    offset = 2 if drive else 0
    first, *others = text[offset:].split(":")
    return [text[:offset] + first, *others]


def _is_dtype(text: str) -> bool:
    plain = text.strip().removeprefix("torch.")
    return plain in _DTYPES or plain in _ALIASES


def _parse_shape(shape_text: str, text: str, *, is_scalar: bool) -> tuple[int, ...]:
    plain = shape_text.strip().strip("()[]")
    if not plain:
        if is_scalar:
            return ()
        raise _malformed(text, "it is empty", _EXAMPLES)
    if not _SHAPE.fullmatch(plain):
        odd = next((part for part in re.split(r"[,x×]", plain) if not part.strip().isdigit()), plain)
        found = f"{odd.strip()!r} is no size" if odd.strip() else "a size is missing"
        if any(character in plain for character in "/\\") or re.search(r"\.\w+$", plain):
            raise _malformed(text, f"{plain!r} is no shape", f"a file is written -i @{plain}")
        raise _malformed(text, found, _EXAMPLES)
    return tuple(int(size) for size in re.split(r"\s*[,x×]\s*", plain))


def _split_range(rest: str, text: str) -> tuple[str, Range | None]:
    """Cut the first ``[low,high)`` or ``[low,high]`` out; nothing may follow but a dtype or a shape."""
    matched = _RANGE.search(rest)
    if matched is None or not rest[: matched.start()].strip():
        if rest.endswith((")", "]")) and "[" in rest[1:]:
            raise _malformed(
                text, f"{rest[rest.index('[', 1) :]!r} is no range", "a range is [0,1] or, without its end, [0,10)"
            )
        return rest, None
    low, high, is_open = float(matched["low"]), float(matched["high"]), matched["end"] == ")"
    if not low <= high or (is_open and low == high):
        raise _malformed(
            text, f"the range {matched[0]} is empty", f"write [{matched['high']},{matched['low']}{matched['end']}"
        )
    before, after = rest[: matched.start()], rest[matched.end() :]
    if after and not after.startswith(":"):
        raise _malformed(text, f"{after!r} follows the range", "the range comes last: SHAPE:DTYPE[LOW,HIGH)")
    return before + after, Range(low=low, high=high, is_open=is_open)


def _split_normalisation(rest: str, text: str) -> tuple[str, Normalisation | None]:
    before, tilde, _ = rest.rpartition("~")
    if not tilde:
        return rest, None
    if not rest.startswith("@"):
        raise _malformed(text, "~ normalises an image, and this is none", "write it after @FILE")
    matched = _NORMALISATION.fullmatch(rest[len(before) :].strip())
    if matched is None:
        if "/" in rest[len(before) :] or "." in rest[len(before) :]:
            return rest, None  # a file name with a tilde in it
        raise _malformed(text, f"{rest[len(before) :]!r} is no normalisation", "write ~imagenet or ~MEAN,STD")
    if matched["text"] == "imagenet":
        return before, Normalisation(mean=_IMAGENET[0], std=_IMAGENET[1])
    try:
        numbers = tuple(float(number) for number in matched["text"].split(","))
    except ValueError:
        numbers = ()
    half = len(numbers) // 2
    if not numbers or len(numbers) % 2 or any(number <= 0 for number in numbers[half:]):
        raise _malformed(
            text, f"{matched['text']!r} is no mean and standard deviation", "write ~MEAN,STD or ~R,G,B,R,G,B"
        )
    return before, Normalisation(mean=numbers[:half], std=numbers[half:])


def _malformed(text: str, found: str, hint: str) -> UsageError:
    return UsageError(f"cannot read the input {text!r}\n{found}", hint=hint)
