"""Load trained weights into a model: find them in the file, match their names, and say what was decided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from neural_flow.errors import ModelLoadError
from neural_flow.models._base import describe_error, listed, short_path
from neural_flow.models.stored import pick_key, read_stored

State = dict[str, torch.Tensor]
_MAX_DEPTH = 4


def load_weights(model: nn.Module, file: Path, key: str = "", *, unsafe_load: bool = False) -> tuple[str, ...]:
    """Copy the weights in ``file`` into ``model``, in place, and return what was decided, one sentence each.

    Without a key the one mapping of tensors that fits is taken. A prefix that all names share is dropped (or, for a
    wrapped model, added) if then every name fits.

    Args:
        model: changed in place; untouched where the weights do not fit.
        file: safetensors, or a torch file.
        key: the dotted key of the mapping in it; empty to look for the one that fits.
        unsafe_load: allow a full pickle.

    Raises:
        ModelLoadError: the file cannot be read, or its weights do not fit.
    """
    content = read_stored(file, unsafe_load=unsafe_load)
    if isinstance(content, nn.Module):
        content = content.state_dict()
    notes: list[str] = []
    if key:
        content = pick_key(content, key, file, ModelLoadError)
    key, state = _choose_mapping(model, content, key, file)
    if key:
        notes.append(f"weights: took {key!r} of {file.name}")
    state, renamed = _rename(model, state)
    if renamed:
        notes.append(f"weights: {renamed}")
    if problems := _misfits(model, state):
        raise ModelLoadError(
            f"the weights in {short_path(file)} do not fit {type(model).__name__}\n{problems[0]}",
            hint=_misfit_hint(problems),
        )
    _copy(model, state, file)
    return tuple(notes)


def _choose_mapping(model: nn.Module, content: Any, key: str, file: Path) -> tuple[str, State]:
    found = list(_mappings(content, key, 0))
    if not found:
        raise ModelLoadError(
            f"found no weights in {short_path(file)}\nit holds {_outline(content)}",
            hint="expected a mapping from names to tensors, as torch.save(model.state_dict(), ...) writes",
        )
    fitting = [(name, state) for name, state in found if not _misfits(model, _rename(model, state)[0])]
    if len(fitting) > 1:
        names = [name or "(top)" for name, _ in fitting]
        raise ModelLoadError(
            f"cannot choose the weights in {short_path(file)}\nseveral entries fit: {listed(names)}",
            hint=f"name one: --weights {short_path(file)}:{names[0]}",
        )
    if fitting:
        return fitting[0]
    return min(found, key=lambda pair: len(set(_rename(model, pair[1])[0]) ^ set(model.state_dict())))


def _mappings(content: Any, path: str, depth: int) -> Iterator[tuple[str, State]]:
    """Yield (dotted key, tensors) of every mapping from texts to tensors; other entries beside them are dropped."""
    if not isinstance(content, Mapping) or depth > _MAX_DEPTH:
        return
    tensors = {
        name: value for name, value in content.items() if isinstance(name, str) and isinstance(value, torch.Tensor)
    }
    if tensors and len(tensors) * 2 > len(content):
        yield path, tensors
    for name, value in content.items():
        if isinstance(value, nn.Module):
            value = value.state_dict()
        if isinstance(name, str):
            yield from _mappings(value, f"{path}.{name}" if path else name, depth + 1)


def _rename(model: nn.Module, state: State) -> tuple[State, str]:
    """Return ``state`` with a prefix dropped or added where that makes its names those of the model."""
    wanted = set(model.state_dict())
    if set(state) == wanted or not wanted:
        return state, ""
    dropped, renamed = "", state
    for _ in range(_MAX_DEPTH):
        prefix = _common_prefix(renamed)
        if not prefix:
            break
        dropped += prefix
        renamed = {name.removeprefix(prefix): value for name, value in renamed.items()}
        if set(renamed) <= wanted:
            return renamed, f"dropped the prefix {dropped!r}"
    added = _common_prefix(dict.fromkeys(wanted))
    renamed = {added + name: value for name, value in state.items()}
    if added and set(renamed) <= wanted:
        return renamed, f"added the prefix {added!r}"
    return state, ""


def _common_prefix(names: Mapping[str, Any]) -> str:
    firsts = {name.partition(".")[0] for name in names if "." in name}
    return f"{firsts.pop()}." if len(firsts) == 1 and all("." in name for name in names) else ""


def _misfits(model: nn.Module, state: State) -> list[str]:
    """Return why ``state`` does not fit, the most telling reason first; empty where it does."""
    own = {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    lazy = [name for name, value in own.items() if isinstance(value, UninitializedParameter | UninitializedBuffer)]
    shapes = [
        f"{name} is {list(state[name].shape)} in the file and {list(own[name].shape)} in the model"
        for name in own
        if name in state and name not in lazy and state[name].shape != own[name].shape
    ]
    present = {own[name].data_ptr() for name in own if name in state and name not in lazy and own[name].numel()}
    missing = [
        name
        for name, value in own.items()
        if name not in state
        and not name.endswith("num_batches_tracked")  # files older than torch 0.4.1 have none, and it never matters
        and (name in lazy or value.data_ptr() not in present)  # tied to one that the file has
    ]
    unexpected = [name for name in state if name not in own]
    problems: list[str] = []
    if missing or unexpected:
        parts = [f"missing {listed(missing, 3)}"] if missing else []
        parts += [f"unexpected {listed(unexpected, 3)}"] if unexpected else []
        problems.append("; ".join(parts))
    if shapes:
        problems.append(f"{len(shapes)} shapes differ: {shapes[0]}" if len(shapes) > 1 else shapes[0])
    return problems


def _misfit_hint(problems: list[str]) -> str:
    if len(problems) > 1:
        return f"also {problems[1]}; build the model as it was trained, with -a name=value"
    return "build the model as it was trained, with -a name=value, or name another entry with --weights FILE:KEY"


def _copy(model: nn.Module, state: State, file: Path) -> None:
    is_meta = any(parameter.is_meta for parameter in model.parameters())
    try:
        model.load_state_dict(state, strict=False, assign=is_meta)
    except Exception as error:
        raise ModelLoadError(
            f"the weights in {short_path(file)} do not fit {type(model).__name__}\n{describe_error(error)}",
            hint="build the model as it was trained, with -a name=value",
        ) from error


def _outline(content: Any) -> str:
    if isinstance(content, Mapping):
        return f"the keys {listed([str(name) for name in content])}" if content else "nothing"
    return f"one {type(content).__name__}"
