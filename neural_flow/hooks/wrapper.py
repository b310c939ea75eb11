"""The wrapper: a module that stands in the place of another one and runs hooks around it."""

from __future__ import annotations

import contextlib
import copy
import inspect
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn

from neural_flow.hooks.aliases import held_leaves, shared_leaves
from neural_flow.hooks.gate import attach_gate, gated_leaves
from neural_flow.hooks.registry import (
    HookRegistry,
    HookReturnError,
    Hooks,
    run_forward_hooks,
    run_forward_pre_hooks,
)
from neural_flow.torch_private import is_fx_tracing

# State that the wrapper does not have itself: it is the layer's, under the same names.
_LAYER_STATE = (
    "training",
    "_parameters",
    "_buffers",
    "_modules",
    "_non_persistent_buffers_set",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_version",
    "dump_patches",
)
# What belongs to the call stays with the wrapper: its native hooks run outside of ours, those of the layer inside.
_OWN_STATE = frozenset(vars(nn.Module())) - {*_LAYER_STATE, "_load_state_dict_post_hooks"} | {
    "_nf_layer",
    "_nf_registry",
    "_nf_names",
    "_compiled_call_impl",
    "forward",
    "__dict__",
}
_OWN_METHODS = frozenset(
    {
        "forward",
        "compile",
        "modules",
        "named_modules",
        "register_backward_hook",
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
        "_call_impl",
        "_get_backward_hooks",
        "_get_backward_pre_hooks",
        "_maybe_warn_non_full_backward_hook",
        "_replicate_for_data_parallel",
        "_slow_forward",
        "_wrapped_call_impl",
    }
)
# Operators of a layer's class that act on the class or on the life of the object.
_NO_OPERATORS = frozenset({"__class_getitem__", "__del__", "__post_init__", "__torch_function__"})
_classes: weakref.WeakKeyDictionary[type[nn.Module], type[HookedModule]] = weakref.WeakKeyDictionary()


class HookedModule(nn.Module):
    """A module in the place of another one, which it calls between the hooks. Made by ``with_hooks``.

    The layer is no child of the wrapper, which would add a part to every path; the wrapper shows the state of the layer
    as its own. Each class of layer has its subclass, with the operators of that class (``len``, ``[]``) and the
    signature of its forward.
    """

    _nf_layer: nn.Module
    _nf_registry: HookRegistry
    _nf_names: tuple[str, ...]

    def __init__(self, layer: nn.Module) -> None:
        # Module.__init__ would write state that is the layer's, and turn an evaluating layer to training
        fresh = vars(nn.Module())
        self.__setstate__(
            {
                **{name: value for name, value in fresh.items() if name in _OWN_STATE},
                "_nf_layer": layer,
                "_nf_registry": HookRegistry(),
                "_nf_names": _parameter_names(layer),
            }
        )
        # TransformerEncoderLayer skips its children in evaluation unless one of them has a native hook
        self.register_forward_pre_hook(_keep_off_the_fast_path)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the layer, with the forward pre-hooks before it and the forward hooks after it."""
        if is_fx_tracing():
            _refuse_symbolic_trace(self._nf_layer, args, kwargs)
        if self._nf_registry.is_empty:
            return self._nf_layer(*args, **kwargs)
        return self._nf_run(args, kwargs)

    def _nf_run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        layer, registry = self._nf_layer, self._nf_registry
        key = None if args else next((name for name in self._nf_names if name in kwargs), next(iter(kwargs), None))
        x = args[0] if args else kwargs[key] if key is not None else None
        if registry.pre:
            x = run_forward_pre_hooks(registry.pre, x)
            if args:
                args = (x, *args[1:])
            elif key is not None:
                kwargs = {**kwargs, key: x}
            elif x is not None:
                raise HookReturnError(
                    f"a forward_pre hook returned {type(x).__name__} for a call without any input to replace",
                    hint="the hook of a module that is called without arguments returns None",
                )
        output = layer(*args, **kwargs)
        output = run_forward_hooks(registry.post, x, output)
        if not registry.back or not torch.is_grad_enabled():
            return output
        # first of all, before more variables here refer to the same tensors
        is_held = None if torch.compiler.is_compiling() else held_leaves(output)
        leaves = gated_leaves(output)
        if not leaves:
            return output
        is_shared = shared_leaves(leaves, (args, kwargs), layer)
        if is_held is not None:
            is_shared = [held or shared for held, shared in zip(is_held, is_shared, strict=True)]
        return attach_gate(output, leaves, is_shared, registry)

    def __getattr__(self, name: str) -> Any:
        layer = vars(self).get("_nf_layer")
        if layer is None:  # while it is unpickled
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(layer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__class__":
            raise AttributeError(
                "the class of a wrapper cannot be changed, which parametrizations do after they took the tensor away; "
                "make the layer anew, parametrize it and wrap the result: with_hooks(weight_norm(layer))"
            )
        if name in _OWN_STATE:
            object.__setattr__(self, name, value)
        else:
            setattr(self._nf_layer, name, value)

    def __delattr__(self, name: str) -> None:
        if name in _OWN_STATE:
            object.__delattr__(self, name)
        else:
            delattr(self._nf_layer, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._nf_layer)})

    def __repr__(self) -> str:
        return f"Hooked({self._nf_layer!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_compiled_call_impl"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        object.__setattr__(self, "__class__", _class_for(type(state["_nf_layer"])))

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _blank_wrapper, (), self.__getstate__()

    def __copy__(self) -> HookedModule:
        copied = _blank_wrapper()
        copied.__setstate__({**self.__getstate__(), "_nf_registry": HookRegistry()})
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> HookedModule:
        memo[id(self)] = copied = _blank_wrapper()
        copied.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return copied

    def _replicate_for_data_parallel(self) -> HookedModule:
        replica = _blank_wrapper()
        layer: Any = self._nf_layer
        replica.__setstate__({**vars(self), "_nf_layer": layer._replicate_for_data_parallel()})
        return replica

    def __prepare_scriptable__(self) -> HookedModule:
        raise RuntimeError(
            f"torch.jit.script cannot compile the hooks around {_kind(self._nf_layer)}; script the layer and wrap the "
            "result, with_hooks(torch.jit.script(layer)), or use torch.jit.trace, torch.export or torch.compile, which "
            "follow the hooks"
        )


def with_hooks(layer: nn.Module) -> tuple[HookedModule, Hooks]:
    """Return a wrapper, used in place of ``layer``, and the object that registers hooks on it.

    The layer is not changed. Names, parameters, buffers, state dict and module paths of the wrapper are those of the
    layer, and so is every attribute, property and method; methods other than the call run without the hooks. A copy or
    a pickle of the wrapper starts without hooks; ``hooks_of`` returns what registers them.

    Raises:
        TypeError: ``layer`` is no module.
    """
    if not isinstance(layer, nn.Module):
        raise TypeError(f"with_hooks wraps an nn.Module, not {layer!r}")
    wrapper = HookedModule(layer)
    return wrapper, hooks_of(wrapper)


def hooks_of(wrapper: nn.Module) -> Hooks:
    """Return what registers hooks on ``wrapper``, also for a copy or one that was loaded.

    Raises:
        TypeError: ``wrapper`` was not made by ``with_hooks``.
    """
    return Hooks(_state_of(wrapper)["_nf_registry"])


def layer_of(wrapper: nn.Module) -> nn.Module:
    """Return the layer in whose place ``wrapper`` stands.

    Raises:
        TypeError: ``wrapper`` was not made by ``with_hooks``.
    """
    return _state_of(wrapper)["_nf_layer"]


def _state_of(wrapper: nn.Module) -> dict[str, Any]:
    if not isinstance(wrapper, HookedModule):
        raise TypeError(f"{_kind(wrapper)} has no hooks: it is no wrapper made by with_hooks, nor a copy of one")
    return vars(wrapper)


def _blank_wrapper() -> HookedModule:
    return HookedModule.__new__(HookedModule)


def _kind(value: object) -> str:
    return type(value).__name__


def _keep_off_the_fast_path(module: nn.Module, args: tuple[Any, ...]) -> None:
    """Do nothing."""


def _parameter_names(layer: nn.Module) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(layer.forward).parameters)
    except (AttributeError, TypeError, ValueError):  # scripted modules tell no signature
        return ()


def _refuse_symbolic_trace(layer: nn.Module, args: Any, kwargs: Any) -> None:
    """Refuse proxies of a tracer that does not know the layer; one that says where it is may trace into it."""
    # at the root of a trace, *args and **kwargs are one proxy each
    for value in (args, kwargs) if isinstance(args, torch.fx.Proxy) else (*args, *kwargs.values()):
        if isinstance(value, torch.fx.Proxy):
            try:
                cast(Any, value.tracer).path_of_module(layer)
            except NameError as error:
                raise RuntimeError(
                    f"torch.fx.symbolic_trace cannot follow the hooks around {_kind(layer)}; use torch.export or "
                    "torch.compile, which do, or a Tracer whose is_leaf_module is true for HookedModule"
                ) from error


def _class_for(layer_type: type[nn.Module]) -> type[HookedModule]:
    """Return the subclass of the wrapper for layers of this class: operators are looked up on classes alone."""
    if layer_type not in _classes:
        operators = [
            name
            for name in dir(layer_type)
            if name.startswith("__")
            and not hasattr(HookedModule, name)
            and name not in _NO_OPERATORS
            and callable(getattr(layer_type, name, None))
        ]
        _classes[layer_type] = type(
            layer_type.__name__,  # what tools that list a model's modules print
            (HookedModule,),
            {
                "__module__": __name__,
                "__qualname__": f"HookedModule[{layer_type.__qualname__}]",
                "__doc__": HookedModule.__doc__,
                "forward": _forward_like(layer_type),
                **{name: _layer_method(name) for name in operators},
            },
        )
    return _classes[layer_type]


def _forward_like(layer_type: type[nn.Module]) -> Callable[..., Any]:
    """Return the wrapper's forward under the signature of the layer's."""
    source = cast(types.FunctionType, HookedModule.forward)
    forward = types.FunctionType(source.__code__, source.__globals__, "forward")
    with contextlib.suppress(AttributeError, TypeError, ValueError):  # scripted modules tell no signature
        vars(forward)["__signature__"] = inspect.signature(layer_type.forward)
    return forward


def _layer_method(name: str) -> Callable[..., Any]:
    def method(self: HookedModule, *args: Any, **kwargs: Any) -> Any:
        layer = self._nf_layer
        result = getattr(layer, name)(*args, **kwargs)
        return self if result is layer else result  # to(), eval() and += return the module in whose place we stand

    method.__name__ = name
    method.__doc__ = getattr(getattr(nn.Module, name, None), "__doc__", None)
    return method


def _layer_property(name: str) -> property:
    def read(self: HookedModule) -> Any:
        return getattr(self._nf_layer, name)

    return property(read)


def _post_hooks_with_layer(self: HookedModule) -> OrderedDict[int, Callable[..., Any]]:
    """Return the hooks that run after a state dict is loaded, bound to the layer: the loader gives them the wrapper."""
    layer: Any = self._nf_layer

    def bind(hook: Callable[..., Any]) -> Callable[..., Any]:
        return lambda wrapper, keys: hook(layer, keys)

    return OrderedDict((hook_id, bind(hook)) for hook_id, hook in layer._load_state_dict_post_hooks.items())


setattr(HookedModule, "_load_state_dict_post_hooks", property(_post_hooks_with_layer))  # noqa: B010  torch types a dict
for _name in _LAYER_STATE:
    setattr(HookedModule, _name, _layer_property(_name))
for _name, _value in vars(nn.Module).items():
    if isinstance(_value, types.FunctionType) and not _name.startswith("__") and _name not in _OWN_METHODS:
        setattr(HookedModule, _name, _layer_method(_name))
