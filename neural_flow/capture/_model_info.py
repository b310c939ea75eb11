"""The parameters and modules of a model, counted: each distinct parameter once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from neural_flow.capture._metas import dtype_name
from neural_flow.module_calls import has_parametrizations
from neural_flow.nested import tensor_leaves
from neural_flow.records import ModuleInfo, ParamInfo

_OWN_ATTRIBUTES = frozenset(vars(nn.Module()))
_ATOMS = frozenset({int, float, bool, str, bytes, type(None), torch.Size, torch.device, torch.dtype})


@dataclass(slots=True)
class ModelParts:
    """The distinct parameters of a model with all their names, and what else exists before it runs."""

    params: list[torch.Tensor]
    names: list[list[str]]
    own_param_ids: dict[nn.Module, list[int]]
    constants: list[torch.Tensor]
    packed: dict[int, tuple[int, ...]]
    """By identity of an object that holds packed weights (quantized modules), the ids of these weights."""


def model_parts(paths: dict[nn.Module, str]) -> ModelParts:
    """Return the parameters and constants of the modules in ``paths``.

    Args:
        paths: every module of the model with its path.
    """
    parts = ModelParts([], [], {}, [], {})
    ids: dict[int, int] = {}
    holders: dict[int, list[int]] = {}
    for module, path in paths.items():
        own = parts.own_param_ids[module] = []
        for name, param, holder in _own_params(module):
            param_id = ids.setdefault(id(param), len(parts.params))
            if param_id == len(parts.params):
                parts.params.append(param)
                parts.names.append([])
            parts.names[param_id].append(f"{path}.{name}" if path else name)
            if param_id not in own:
                own.append(param_id)
            if holder is not None:
                holders.setdefault(id(holder), []).append(param_id)
    parts.packed.update({identity: tuple(found) for identity, found in holders.items()})
    seen: set[int] = set()
    for module in paths:
        parts.constants += [tensor for tensor in _own_constants(module, seen) if id(tensor) not in ids]
    return parts


def _own_params(module: nn.Module) -> Iterator[tuple[str, torch.Tensor, object]]:
    """Yield (name, parameter, holder): those that parametrizations keep for the module and packed ones included.

    The holder is the object that packs a weight, None for plain parameters.
    """
    for name, param in module._parameters.items():
        if param is not None:
            yield name, param, None
    if has_parametrizations(module):
        parametrizations: Any = module.parametrizations
        for name, param in parametrizations.named_parameters():
            yield f"parametrizations.{name}", param, None
    for name, value in vars(module).items():
        if type(value) is torch.ScriptObject:  # its isinstance runs Python code, and this sees every attribute
            for index, tensor in enumerate(_packed_tensors(value)):
                yield f"{name}[{index}]", tensor, value


def _packed_tensors(value: Any) -> list[torch.Tensor]:
    """Return the weights in a packed object of a quantized module; other integers in it only say how to use them."""
    if isinstance(value, torch.Tensor):
        return [value] if value.is_quantized or value.is_floating_point() else []
    if isinstance(value, torch.ScriptObject):
        try:
            return _packed_tensors(value.__getstate__())
        except RuntimeError:  # a class of the user's without a state
            return []
    return [found for item in value for found in _packed_tensors(item)] if isinstance(value, list | tuple) else []


def _own_constants(module: nn.Module, seen: set[int]) -> Iterator[torch.Tensor]:
    """Yield buffers and the tensors in attributes of a module, but not in what was ``seen`` at others before."""
    yield from (buffer for buffer in module._buffers.values() if buffer is not None)
    for name, value in vars(module).items():
        if type(value) not in _ATOMS and name not in _OWN_ATTRIBUTES and id(value) not in seen:
            seen.add(id(value))
            if type(value) is tuple and _ATOMS.issuperset(map(type, value)):  # sizes and strides: by far the most
                continue
            yield from (tensor for _, tensor in tensor_leaves(value))
    for kind in type(module).__mro__[:-1]:
        if kind is nn.Module:
            break
        if id(kind) not in seen:
            seen.add(id(kind))
            yield from (value for value in vars(kind).values() if isinstance(value, torch.Tensor))


def own_tensors(module: nn.Module) -> list[torch.Tensor]:
    """Return the parameters and buffers of a module itself."""
    owned = (*module._parameters.values(), *module._buffers.values())
    return [tensor for tensor in owned if tensor is not None]


def param_infos(parts: ModelParts) -> tuple[ParamInfo, ...]:
    """Return the record of each distinct parameter."""
    infos: list[ParamInfo] = []
    for param_id, (param, names) in enumerate(zip(parts.params, parts.names, strict=True)):
        is_lazy = isinstance(param, nn.UninitializedParameter)
        shape = () if is_lazy else tuple(int(size) for size in param.shape)
        infos.append(
            ParamInfo(
                param_id=param_id,
                names=tuple(names),
                shape=shape,
                dtype=dtype_name(param.dtype),
                nbytes=0 if is_lazy else param.numel() * param.element_size(),
                requires_grad=param.requires_grad,
            )
        )
    return tuple(infos)


def module_infos(
    paths: dict[nn.Module, str],
    children: dict[nn.Module, list[nn.Module]],
    parts: ModelParts,
    params: tuple[ParamInfo, ...],
) -> tuple[ModuleInfo, ...]:
    """Return the record of each module; a module that stands under two paths is one record.

    Args:
        paths: every module of the model with its path.
        children: the children of each module that has any.
        parts: the model's parameters.
        params: their records.
    """
    child_paths = _children_by_path(paths)
    subtree: dict[nn.Module, dict[int, None]] = {}
    infos: list[ModuleInfo] = []
    for module, path in paths.items():
        name = qualified_name(module)
        ids = _subtree_ids(module, children, parts, subtree)
        # an uninitialized parameter has neither a shape nor bytes
        own = [info for param_id in ids if (info := params[param_id]).shape or info.nbytes]
        infos.append(
            ModuleInfo(
                path=path,
                class_name=name.rpartition(".")[2],
                qualified_name=name,
                child_paths=tuple(child_paths.get(path, ())),
                own_param_ids=tuple(parts.own_param_ids[module]),
                param_ids=tuple(ids),
                num_params=sum([info.numel for info in own]) if own else 0,
                num_trainable_params=sum([info.numel for info in own if info.requires_grad]) if own else 0,
                param_nbytes=sum([info.nbytes for info in own]) if own else 0,
                is_scripted=isinstance(module, torch.jit.ScriptModule),
            )
        )
    return tuple(infos)


def _children_by_path(paths: dict[nn.Module, str]) -> dict[str, list[str]]:
    known = set(paths.values())
    children: dict[str, list[str]] = {}
    for path in paths.values():
        if not path:
            continue
        parent = path.rpartition(".")[0]
        while parent and parent not in known:
            parent = parent.rpartition(".")[0]
        children.setdefault(parent, []).append(path)
    return children


def _subtree_ids(
    module: nn.Module,
    children: dict[nn.Module, list[nn.Module]],
    parts: ModelParts,
    memo: dict[nn.Module, dict[int, None]],
) -> dict[int, None]:
    if module in memo:
        return memo[module]
    ids = memo[module] = dict.fromkeys(parts.own_param_ids.get(module, ()))
    for child in children.get(module, ()):
        ids.update(_subtree_ids(child, children, parts, memo))
    return ids


def class_name(module: nn.Module) -> str:
    """Return the class that the user wrote: of a scripted module the original, of a parametrized one its base."""
    kind = type(module)
    if "parametrizations" not in module._modules and not issubclass(kind, torch.jit.ScriptModule):
        return kind.__name__
    return qualified_name(module).rpartition(".")[2]


def qualified_name(module: nn.Module) -> str:
    """Return module and name of the class that the user wrote."""
    if isinstance(module, torch.jit.ScriptModule):
        return str(getattr(module, "original_name", type(module).__name__))
    kind = type(module)
    if has_parametrizations(module) and len(kind.__mro__) > 1:
        kind = kind.__mro__[1]
    return f"{kind.__module__}.{kind.__qualname__}"
