"""A picture of everything that a call may have changed, and models that change all they can reach."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import sys
import tempfile
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules import module as module_globals
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack

NAMESPACES = (
    torch, torch.Tensor, torch._C._nn, torch.autograd, torch.fft, torch.linalg,
    torch.special, torch.utils.checkpoint, F, nn.Module, nn.Linear, nn.MultiheadAttention, nn.Sequential, nn.Parameter,
    torch.overrides, torch.jit, np, random,
)  # fmt: skip

# What a run that the user starts may change: the attributes that the model below sets.
OWN_STATE = ("counter", "history", "kept", "generator")


def bits_of(tensor: torch.Tensor) -> Any:
    """Every bit of a tensor of any kind, without touching its version."""
    with torch.no_grad(), torch._C.DisableTorchFunction(), _disable_current_modes():
        plain = tensor.detach()
        if nn.parameter.is_lazy(tensor):
            return "lazy"
        if plain.is_nested:
            return [bits_of(part) for part in plain.unbind()]
        if plain.layout is not torch.strided:
            plain = plain.to_dense()
        if plain.is_quantized:
            plain = plain.int_repr()
        return plain.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def picture_of_tensor(tensor: torch.Tensor, *, has_bits: bool = True) -> tuple[Any, ...]:
    """What makes a tensor the same as before: identity, bits, version, place, flags, attributes, gradient, hooks."""
    grad = tensor.grad if tensor.is_leaf else None
    is_plain = not nn.parameter.is_lazy(tensor) and tensor.layout is torch.strided and not tensor.is_nested
    return (
        id(tensor),
        type(tensor),
        bits_of(tensor) if has_bits else None,
        tensor._version if has_bits and not tensor.is_inference() else None,
        (tensor.data_ptr(), tuple(tensor.shape), tensor.stride()) if is_plain else None,
        tensor.dtype,
        tensor.requires_grad,
        id(tensor.grad_fn),
        [(name, id(value)) for name, value in vars(tensor).items()],
        None if grad is None else (id(grad), bits_of(grad), grad._version),
        list(tensor._backward_hooks or ()),
    )


def picture_of_container(value: Any, depth: int = 0, *, has_bits: bool = True) -> Any:
    """The items of a container by identity, and inside them."""
    if isinstance(value, torch.Tensor):
        return picture_of_tensor(value, has_bits=has_bits)
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list | tuple | deque):
        items = list(enumerate(value))
    elif isinstance(value, set):
        items = [(id(item), None) for item in value]
    elif isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    else:
        return None
    return [
        (key, id(item), picture_of_container(item, depth + 1, has_bits=has_bits) if depth < 4 else None)
        for key, item in items
    ]


def picture_of_model(model: nn.Module, *, has_bits: bool = True) -> dict[str, Any]:
    """Every module: class, attributes and their contents, parameters, buffers, flags and registries."""
    seen: dict[str, Any] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        seen[f"{path}: class"] = type(module)
        seen[f"{path}: training"] = module.training
        for name, value in vars(module).items():
            if has_bits or name not in OWN_STATE:
                seen[f"{path}.{name}"] = id(value)
                seen[f"{path}.{name}: content"] = picture_of_container(value, has_bits=has_bits)
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                seen[f"{path}.{name}: tensor"] = picture_of_tensor(tensor, has_bits=has_bits)
    return seen


def picture_of_process(*, has_random: bool = True) -> dict[str, Any]:
    """The switches of torch, Python, NumPy and matplotlib, and the identity of every public function of torch."""
    seen: dict[str, Any] = {
        f"global hooks: {name}": list(value.items())
        for name, value in vars(module_globals).items()
        if name.startswith("_global") and isinstance(value, dict)
    }
    seen["hooks with kwargs"] = list(module_globals._global_forward_hooks_with_kwargs)
    if has_random:
        seen["random"] = (random.getstate(), repr(np.random.get_state()), torch.get_rng_state().numpy().tobytes())
    seen["defaults"] = (torch.get_default_dtype(), torch.get_default_device())
    seen["device mode"] = id(getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None))
    seen["autograd"] = (
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled(),
        torch._C._autograd._saved_tensors_hooks_is_enabled(), torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled(), torch._C._current_graph_task_id(),
    )  # fmt: skip
    seen["modes"] = (
        [id(mode) for mode in _get_current_function_mode_stack()],
        [id(mode) for mode in _get_current_dispatch_mode_stack()],
    )
    stance = getattr(sys.modules.get("torch._dynamo.eval_frame"), "_stance", None)
    seen["compile stance"] = getattr(stance, "stance", "default")
    seen["backends"] = (
        torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.cuda.math_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled(),
        torch.backends.mkldnn.enabled, torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic,
        torch.are_deterministic_algorithms_enabled(), torch.get_num_threads(), torch.get_float32_matmul_precision(),
    )  # fmt: skip
    for space in NAMESPACES:
        name = getattr(space, "__name__", str(space))
        # lazily imported submodules appear; functions must not change
        seen[f"namespace {name}"] = {key: id(value) for key, value in vars(space).items() if callable(value)}
    seen["interpreter"] = (sys.gettrace(), sys.getprofile(), sys.getrecursionlimit(), sys.stdout, sys.stderr)
    seen["excepthooks"] = (sys.excepthook, threading.excepthook)
    seen["collector"] = (gc.isenabled(), gc.get_freeze_count() > 0, gc.get_threshold())
    seen["paths"] = (list(sys.path), list(sys.argv), dict(os.environ), Path.cwd())
    seen["warnings"] = (list(warnings.filters), warnings.showwarning)
    seen["threads"] = sorted(thread.name for thread in threading.enumerate())
    seen["matplotlib"] = (
        {key: repr(dict.__getitem__(matplotlib.rcParams, key)) for key in matplotlib.rcParams},
        getattr(getattr(sys.modules.get("matplotlib.pyplot"), "_backend_mod", None), "__name__", None),
        list(sys.modules.get("matplotlib._pylab_helpers").Gcf.figs)
        if "matplotlib._pylab_helpers" in sys.modules
        else [],
    )  # fmt: skip
    folders = (Path.cwd(), Path(tempfile.gettempdir()))
    seen["files"] = [
        (str(path), path.stat().st_mtime_ns, path.stat().st_size)
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if "__pycache__" not in path.parts
    ]
    return seen


def live_tensors() -> dict[int, torch.Tensor]:
    gc.collect()
    tensors = (one for one in gc.get_objects() if issubclass(type(one), torch.Tensor))
    # torch's compiler remembers the shapes of its last export, in tensors that have no data
    return {id(one): one for one in tensors if not issubclass(type(one), FakeTensor) and one.numel()}


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [key for key in {**before, **after} if before.get(key, "absent") != after.get(key, "absent")]


Untouched = Callable[..., contextlib.AbstractContextManager[None]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, with the temp folder inside it."""
    work, temporary = tmp_path / "work", tmp_path / "temporary"
    work.mkdir()
    temporary.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return work


@pytest.fixture
def untouched(folder: Path) -> Untouched:
    """Return a context manager that fails where anything is not as it was when it was entered.

    ``has_bits=False`` leaves out what the model itself may change in a run that the user starts. ``keeps`` are names
    of process state that may differ.
    """

    @contextlib.contextmanager
    def watch(
        model: nn.Module | None = None, given: Any = (), *, has_bits: bool = True, keeps: tuple[str, ...] = ()
    ) -> Iterator[None]:
        def look() -> dict[str, Any]:
            seen = picture_of_process(has_random=has_bits)
            if model is not None:
                seen |= {f"model {key}": value for key, value in picture_of_model(model, has_bits=has_bits).items()}
            seen["given"] = picture_of_container(given)
            return seen

        known = live_tensors()
        before = look()
        yield
        changed = [key for key in differences(before, look()) if key not in keeps]
        assert not changed, changed
        if has_bits:
            more = [one for key, one in live_tensors().items() if key not in known]
            assert not more, [(tuple(one.shape), type(one)) for one in more]

    return watch


class Restless(nn.Module):
    """A small net of many kinds that changes everything it can reach: its state, its inputs, process switches."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.frozen = nn.BatchNorm2d(4).eval()
        self.block = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.wide = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
        self.old = torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
        self.head = nn.Linear(4, 2)
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("cache", torch.zeros(4))
        self.register_buffer("view", self.cache[1:3])
        self.history: list[Any] = [torch.zeros(1)]
        self.generator = torch.Generator().manual_seed(5)
        self.kept: Any = None
        self.counter = 0
        self.ending: type[BaseException] | None = None

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> dict[str, Any]:
        self.counter += 1
        self.history.append(x)
        self.history[0].add_(1)
        random.random()
        np.random.rand()
        x.mul_(2)
        torch.rand(1, generator=self.generator)
        with torch.no_grad():
            self.scale.mul_(0.5)
            self.cache[:2] += 1
        y = self.frozen(self.drop(self.norm(self.stem(x))))
        self.kept = y
        rows = self.block(y.flatten(2).transpose(1, 2), src_key_padding_mask=mask)
        if self.ending is not None:
            raise self.ending("stopped on purpose")
        pooled = self.wide(rows.mean(1) * self.scale) + self.cache
        return {"logits": self.head(self.old(pooled).relu_()), "rows": rows}


@pytest.fixture
def restless() -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """The net with gradients, hooks and marks of its user, and inputs that have gradients and attributes."""
    torch.manual_seed(0)
    model = Restless()
    for number, param in enumerate(model.parameters()):
        if number % 2:
            param.grad = torch.full_like(param, float(number))
    model.head.bias.requires_grad_(False)
    model.stem.register_forward_pre_hook(lambda module, args: None)
    model.stem.register_forward_hook(lambda module, args, output: output * 1.5)
    model.head.register_forward_hook(lambda module, args, kwargs, output: None, with_kwargs=True)
    model.norm.register_full_backward_hook(lambda module, grad_input, grad_output: None)
    model.head.weight.register_hook(lambda grad: grad * 2)
    model.head.weight.note = "mine"
    x = torch.rand(2, 3, 4, 4)
    x.note = ["mine"]
    x.grad = torch.ones_like(x)
    mask = torch.zeros(2, 16, dtype=torch.bool)
    mask[0, 3:] = True
    return model, (x,), {"mask": mask}
