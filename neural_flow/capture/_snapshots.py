"""What a run of a model can change, saved and put back: the process' switches, and the model's own state."""

from __future__ import annotations

import contextlib
import gc
import operator
import random
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from neural_flow.torch_private import default_device_mode, failure_of, set_version

Restore = Callable[[], None]

# Dictionaries that torch's own methods of a module change in place.
_REGISTRIES = (
    "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_forward_hooks", "_forward_pre_hooks",
    "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs",
    "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip


_MIN_GC_THRESHOLD = 10_000


@contextlib.contextmanager
def frozen_gc() -> Generator[None]:
    """Let the garbage collector look only at what is made from now on, and only after some thousands of objects.

    A pass makes thousands of small records, which would set off collections that the model alone does not, and each
    full one would walk all of torch.
    """
    first, *others = gc.get_threshold()
    if first:  # else the user keeps it from running
        gc.set_threshold(max(first, _MIN_GC_THRESHOLD), *others)
    is_frozen = gc.get_freeze_count() > 0  # the user's own, or an outer session's
    try:
        if not is_frozen:
            gc.freeze()
        yield
    finally:
        if not is_frozen:
            gc.unfreeze()
        gc.set_threshold(first, *others)


def save_switches() -> Restore:
    """Save the process-wide switches that a model can turn, and return what puts them back."""
    dtype = torch.get_default_dtype()
    device_mode = default_device_mode()
    fastpath = torch.backends.mha.get_fastpath_enabled()
    grad = torch.is_grad_enabled()

    def restore() -> None:
        torch.set_grad_enabled(grad)
        torch.backends.mha.set_fastpath_enabled(fastpath)
        if torch.get_default_dtype() is not dtype:
            torch.set_default_dtype(dtype)
        if default_device_mode() is not device_mode:
            torch.set_default_device(None if device_mode is None else device_mode.device)

    return restore


def save_rng(held: Iterable[Any]) -> Restore:
    """Save every random state that a model can draw from (Python's, NumPy's, torch's on each device, its own).

    Args:
        held: what the model's modules hold in attributes.
    """
    python_state, numpy_state, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda_states = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    mps_state = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
    generators = {id(value): (value, value.get_state()) for value in held if type(value) is torch.Generator}

    def restore() -> None:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        torch.set_rng_state(torch_state)
        if cuda_states:
            torch.cuda.set_rng_state_all(cuda_states)
        if mps_state is not None:
            torch.mps.set_rng_state(mps_state)
        for generator, state in generators.values():
            generator.set_state(state)

    return restore


def save_attributes(modules: Iterable[nn.Module]) -> Restore:
    """Save the class, attributes and registries of each module (shallow), and return what puts them back."""
    saved: list[tuple[nn.Module, type[nn.Module], _Items]] = []
    dicts: list[tuple[dict[Any, Any], _Items]] = []
    sets: list[tuple[set[Any], set[Any]]] = []
    empty: list[Any] = []
    scripted_flags: list[tuple[nn.Module, bool]] = []
    for module in modules:
        if isinstance(module, torch.jit.ScriptModule):
            scripted_flags.append((module, bool(getattr(module, "training", False))))
        attributes = vars(module)
        saved.append((module, type(module), _items_of(attributes)))
        for registry in map(attributes.get, _REGISTRIES):
            kind = type(registry)
            if kind is not dict and kind is not OrderedDict and kind is not set:
                continue  # scripted modules have views of their own kind there
            if not registry:
                empty.append(registry)
            elif kind is set:
                sets.append((registry, registry.copy()))
            else:
                dicts.append((registry, _items_of(registry)))

    def restore() -> None:
        for module, kind, items in saved:
            if type(module) is not kind:
                module.__class__ = kind
            _restore_dict(vars(module), items)
        for registry in filter(None, empty):
            registry.clear()
        for registry, items in dicts:
            _restore_dict(registry, items)
        for registry, content in sets:
            if registry != content:
                registry.clear()
                registry.update(content)
        for module, flag in scripted_flags:
            if hasattr(module, "training") and module.training is not flag:
                module.training = flag

    return restore


_Items = tuple[tuple[Any, ...], tuple[Any, ...]]


def _items_of(dictionary: dict[Any, Any]) -> _Items:
    return tuple(dictionary), tuple(dictionary.values())  # several times smaller than a copy


def _restore_dict(current: dict[Any, Any], saved: _Items) -> None:
    """Give a dictionary its items and their order back, by identity; equality could mean anything for a value."""
    keys, values = saved
    if len(current) == len(keys) and all(map(operator.is_, current.values(), values)) and tuple(current) == keys:
        return
    current.clear()
    current.update(zip(keys, values, strict=True))


def save_grads(params: Iterable[torch.Tensor]) -> Restore:
    """Take ``.grad`` and ``requires_grad`` of each parameter aside, and return what puts them back.

    ``.grad`` is None meanwhile: a backward pass inside forward would add to the user's tensor in place.
    """
    saved = [(param, param.grad, param.requires_grad) for param in params]
    for param, grad, _ in saved:
        if grad is not None:
            param.grad = None

    def restore() -> None:
        for param, grad, requires_grad in saved:
            if param.requires_grad is not requires_grad:
                param.requires_grad_(requires_grad)
            if param.grad is not grad:
                param.grad = grad

    return restore


class SavedParams:
    """Copies of the parameters that a run writes, taken just before the first write."""

    def __init__(self) -> None:
        self._saved: dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor, int | None]] = {}

    def save(self, param: torch.Tensor) -> None:
        """Copy ``param``, unless it has been copied already."""
        if id(param) in self._saved or is_lazy(param):
            return
        with torch.no_grad():
            version = None if param.is_inference() else param._version
            self._saved[id(param)] = (param, param.data, param.detach().clone(), version)

    def restore(self) -> None:
        """Put bytes, storages and version counters back."""
        with torch.no_grad():
            for param, alias, copy, version in self._saved.values():
                alias.copy_(copy)
                if param.untyped_storage() is not alias.untyped_storage() or param.shape != alias.shape:
                    param.data = alias
                if version is not None and not failure_of("set_version"):
                    set_version(param, version)
        self._saved.clear()
