"""Session: run a model without leaving a trace.

Both passes run inside one session each and start from the same state: the random states and buffers that the model
had when the session was entered.
"""

from __future__ import annotations

import contextlib
import functools
import random
import sys
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from neural_flow.capture._clones import Cloner, StateSwap
from neural_flow.capture._snapshots import SavedParams, frozen_gc, save_attributes, save_grads, save_rng, save_switches
from neural_flow.capture._stand_ins import StandIns, stand_in_param
from neural_flow.module_calls import ModuleTree, module_tree
from neural_flow.nested import copy_nest


class Session:
    """Run ``model`` on clones of its inputs, and put everything back that the run may change.

    ::

        with Session(model, (x,)) as session:
            model(*session.args, **session.kwargs)

    A context manager that is entered once; sessions of other models nest. Restored when it is left, also by any
    exception: training flags, buffers and tensor attributes (the very objects, untouched), parameters that were
    announced or saved, ``.grad``, ``requires_grad``, attributes, classes and registries of modules, contents of
    plain lists and dicts that modules own, random states, default dtype and device, grad mode, the attention fast
    path, compilation stance. Not restored: what a model changes in objects of its own, in globals or outside.

    Args:
        model: the module that will be run.
        args: positional arguments. Each tensor object in any nest is cloned once; non-tensors are handed on.
        kwargs: keyword arguments, likewise.
        train: True for training mode (modules keep their own flags if the model is in training mode already), False
            for evaluation mode, None to leave the flags alone.
        seed: seed of torch's, NumPy's and Python's random numbers during the run; None keeps their states.
        grad: whether autograd records; then cloned inputs require a gradient where the originals do.
        device: where the cloned inputs live; None keeps each tensor's own device.
        written_params: parameters that the run is known to write; they are copied at once.
        stand_ins: what takes the place of parameters, buffers and inputs, for a run without data.

    Attributes:
        args: the cloned positional arguments.
        kwargs: the cloned keyword arguments.
        tree: the modules of the model, as they were when the session was entered.
    """

    def __init__(
        self,
        model: nn.Module,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        train: bool | None = False,
        seed: int | None = None,
        grad: bool = False,
        device: torch.device | str | None = None,
        written_params: Iterable[torch.Tensor] = (),
        stand_ins: StandIns | None = None,
    ) -> None:
        self.model = model
        self.args = args
        self.kwargs = dict(kwargs or {})
        self.tree = ModuleTree({}, {}, {})
        self._train = train
        self._seed = seed
        self._grad = grad
        self._device = device
        self._written_params = tuple(written_params)
        self._stand_ins = stand_ins
        self._saved_params = SavedParams()
        self._cloner = Cloner()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        try:
            self._enter()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        self._cloner = Cloner()
        self.args, self.kwargs, self.tree = (), {}, ModuleTree({}, {}, {})

    def save_param(self, param: torch.Tensor) -> None:
        """Copy a parameter that is about to be written, so that it is put back in the end."""
        self._saved_params.save(param)

    def _enter(self) -> None:
        stack = self._stack
        stack.enter_context(frozen_gc())
        tree = self.tree = module_tree(self.model)
        modules = list(tree.held)
        params = {id(param): param for module in modules for param in module._parameters.values() if param is not None}
        stack.callback(save_switches())
        stack.callback(save_rng(tree.held_values()))
        if torch.is_inference_mode_enabled():  # clones made in it could not be told whether they were written
            stack.enter_context(torch.inference_mode(False))
        torch.set_grad_enabled(self._grad)
        if "torch._dynamo" in sys.modules:  # else nothing can have been compiled, and entering it costs a second
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        torch.backends.mha.set_fastpath_enabled(False)
        stack.callback(save_attributes(modules))
        stack.callback(save_grads(params.values()))
        stack.callback(self._saved_params.restore)
        self._set_flags(modules)
        for param in self._written_params:
            self._saved_params.save(param)
        self._swap_state(tree)
        self._clone_inputs()
        if self._seed is not None:
            _seed_all(self._seed)
        if self._stand_ins is not None:
            stack.enter_context(self._stand_ins.mode())

    def _set_flags(self, modules: list[nn.Module]) -> None:
        is_kept = self._train is None or (self._train and self.model.training)
        if not is_kept and any(getattr(module, "training", None) is not self._train for module in modules):
            with contextlib.suppress(NotImplementedError):  # exported programs have no such flag
                self.model.train(bool(self._train))

    def _swap_state(self, tree: ModuleTree) -> None:
        stand_ins = self._stand_ins
        if stand_ins is not None:
            self._cloner = Cloner(stand_ins.tensor)
            swap = StateSwap(self._cloner, functools.partial(stand_in_param, stand_ins))
            self._stack.callback(swap.restore)
            swap.apply(tree.held)
            return
        self._cloner = Cloner()
        self._cloner.share_storages(
            {
                id(buffer): buffer for module in tree.held for buffer in module._buffers.values() if buffer is not None
            }.values()
        )
        swap = StateSwap(self._cloner)
        self._stack.callback(swap.restore)
        swap.apply(tree.held)

    def _clone_inputs(self) -> None:
        self.args = tuple(copy_nest(arg, self._cloned_input) for arg in self.args)
        self.kwargs = {name: copy_nest(value, self._cloned_input) for name, value in self.kwargs.items()}

    def _cloned_input(self, tensor: torch.Tensor) -> torch.Tensor:
        clone = self._cloner.clone(tensor)
        if self._device is not None and clone.device != torch.device(self._device):
            clone = clone.to(self._device)
        if self._grad and tensor.requires_grad and not clone.requires_grad:
            clone.requires_grad_()
        return clone


def _seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
