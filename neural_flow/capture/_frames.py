"""The line of the user's code that is running: the first frame that is neither torch's nor ours."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType, FunctionType
from typing import TypeVar

import torch

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_SAMPLES = os.path.join(_PACKAGE, "sample_models") + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep

_IS_LIBRARY: dict[str, bool] = {}
_STARTS: set[CodeType] = set()
_START_FILES: set[str] = set()

_Function = TypeVar("_Function", bound=FunctionType)


def is_library_file(filename: str) -> bool:
    """Return whether a source file belongs to torch, to this package or to no file at all (``<frozen …>``)."""
    known = _IS_LIBRARY.get(filename)
    if known is None:
        path = os.path.abspath(filename)
        ours = path.startswith(_PACKAGE) and not path.startswith(_SAMPLES)
        known = ours or path.startswith(_TORCH) or (filename.startswith("<frozen") and filename.endswith(">"))
        _IS_LIBRARY[filename] = known
    return known


def starts_a_run(function: _Function) -> _Function:
    """Mark the function of ours that calls the user's model: code further out is not the model's."""
    _STARTS.add(function.__code__)
    _START_FILES.add(function.__code__.co_filename)
    return function


def user_frame() -> FrameType | None:
    """Return the innermost running frame of the user's code, or None where only torch's own modules run."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not (_IS_LIBRARY[name] if name in _IS_LIBRARY else is_library_file(name)):
            return frame
        if name in _START_FILES and frame.f_code in _STARTS:  # hashing code takes long
            return None
        frame = frame.f_back
    return None


def location_text(place: tuple[CodeType, int] | None) -> str | None:
    """Return ``file:line`` of a place."""
    return None if place is None else f"{place[0].co_filename}:{place[1]}"


def user_place() -> tuple[CodeType, int] | None:
    """Return code and line of the innermost running frame of the user's code."""
    frame = user_frame()
    return None if frame is None else (frame.f_code, frame.f_lineno)


def is_reached_by_name(value: object) -> bool:
    """Return whether the running function reaches ``value`` by its globals, its closure or the class of its object."""
    frame = user_frame()
    if frame is None:
        return False
    names = frame.f_locals
    spaces = [frame.f_globals, {name: names[name] for name in frame.f_code.co_freevars if name in names}]
    spaces += [vars(kind) for kind in type(names.get("self")).__mro__]
    return any(found is value for space in spaces for found in tuple(space.values()))
