"""The parameters and modules of a model, counted: each distinct parameter once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from neural_flow.capture._metas import dtype_name
from neural_flow.module_calls import ModuleTree, has_parametrizations
from neural_flow.nested import tensor_leaves
from neural_flow.records import ModuleInfo, ParamInfo


@dataclass(slots=True)
class ModelParts:
    """The distinct parameters of a model with all their names, and what else exists before it runs."""

    params: list[torch.Tensor]
    names: list[list[str]]
    own_param_ids: dict[nn.Module, list[int]]
    constants: list[torch.Tensor]
    packed: dict[int, tuple[int, ...]]
    """By identity of an object that holds packed weights (quantized modules), the ids of these weights."""


def model_parts(tree: ModuleTree) -> ModelParts:
    """Return the parameters and constants of the modules of a model that have a path."""
    parts = ModelParts([], [], {}, [], {})
    ids: dict[int, int] = {}
    holders: dict[int, list[int]] = {}
    for module, path in tree.paths.items():
        own: dict[int, None] = {}
        for name, param, holder in _own_params(module, tree.held[module]):
            param_id = ids.setdefault(id(param), len(parts.params))
            if param_id == len(parts.params):
                parts.params.append(param)
                parts.names.append([])
            parts.names[param_id].append(f"{path}.{name}" if path else name)
            own[param_id] = None
            if holder is not None:
                holders.setdefault(id(holder), []).append(param_id)
        parts.own_param_ids[module] = list(own)
    parts.packed.update({identity: tuple(found) for identity, found in holders.items()})
    seen: set[int] = set()
    for module in tree.paths:
        for tensor in _own_constants(module, tree.held[module], seen):
            if id(tensor) not in ids:
                parts.constants.append(tensor)
    return parts


def _own_params(module: nn.Module, held: Iterable[str]) -> list[tuple[str, torch.Tensor, object]]:
    """Return (name, parameter, holder): those that parametrizations keep for the module and packed ones included.

    The holder is the object that packs a weight, None for plain parameters.
    """
    found: list[tuple[str, torch.Tensor, object]] = [
        (name, param, None) for name, param in module._parameters.items() if param is not None
    ]
    if has_parametrizations(module):
        parametrizations: Any = module.parametrizations
        found += [(f"parametrizations.{name}", param, None) for name, param in parametrizations.named_parameters()]
    for name in held:
        value = vars(module).get(name)
        if type(value) is torch.ScriptObject:  # its isinstance runs Python code, and this sees every attribute
            found += [(f"{name}[{index}]", tensor, value) for index, tensor in enumerate(_packed_tensors(value))]
    return found


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


def _own_constants(module: nn.Module, held: Iterable[str], seen: set[int]) -> list[torch.Tensor]:
    """Return buffers and the tensors in attributes of a module, but not in what was ``seen`` at others before."""
    found = [buffer for buffer in module._buffers.values() if buffer is not None]
    for name in held:
        value = vars(module).get(name)
        if id(value) not in seen:
            seen.add(id(value))
            found += [tensor for _, tensor in tensor_leaves(value)]
    if id(type(module)) not in seen:
        for kind in type(module).__mro__[:-1]:
            if kind is nn.Module:
                break
            if id(kind) not in seen:
                seen.add(id(kind))
                found += [value for value in vars(kind).values() if isinstance(value, torch.Tensor)]
    return found


def own_tensors(module: nn.Module) -> list[torch.Tensor]:
    """Return the parameters and buffers of a module itself."""
    owned = (*module._parameters.values(), *module._buffers.values())
    return [tensor for tensor in owned if tensor is not None]


def param_infos(parts: ModelParts) -> tuple[ParamInfo, ...]:
    """Return the record of each distinct parameter."""
    infos: list[ParamInfo] = []
    for param_id, (param, names) in enumerate(zip(parts.params, parts.names, strict=True)):
        # an isinstance with a class of parameters runs Python code
        is_lazy = type(param) is not nn.Parameter and isinstance(param, nn.UninitializedParameter)
        shape = () if is_lazy else tuple(map(int, param.shape))
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


def module_infos(tree: ModuleTree, parts: ModelParts, params: tuple[ParamInfo, ...]) -> tuple[ModuleInfo, ...]:
    """Return the record of each module that has a path; a module that stands under two is one record.

    Args:
        tree: the modules of the model.
        parts: its parameters.
        params: their records.
    """
    child_paths = _children_by_path(tree.paths)
    numels = [info.numel if info.shape or info.nbytes else 0 for info in params]  # 0 where not initialized yet
    trainable = [numel if info.requires_grad else 0 for numel, info in zip(numels, params, strict=True)]
    nbytes = [info.nbytes for info in params]
    subtree: dict[nn.Module, dict[int, None]] = {}
    infos: list[ModuleInfo] = []
    for module, path in tree.paths.items():
        name = qualified_name(module)
        ids = _subtree_ids(module, tree.children, parts, subtree)
        infos.append(
            ModuleInfo(
                path=path,
                class_name=name.rpartition(".")[2],
                qualified_name=name,
                child_paths=tuple(child_paths.get(path, ())),
                own_param_ids=tuple(parts.own_param_ids[module]),
                param_ids=tuple(ids),
                num_params=sum([numels[param_id] for param_id in ids]) if ids else 0,
                num_trainable_params=sum([trainable[param_id] for param_id in ids]) if ids else 0,
                param_nbytes=sum([nbytes[param_id] for param_id in ids]) if ids else 0,
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
