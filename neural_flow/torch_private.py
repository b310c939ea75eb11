"""Every private PyTorch API that neural-flow touches, each with a self-test.

Where this torch lacks one, only the instrument that needs it refuses; ``render`` never does.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import weakref
from collections.abc import Callable, Generator
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle


class _MissingType(type):
    def __call__(cls, *_: Any, **__: Any) -> Any:
        raise RuntimeError(f"torch {torch.__version__} lacks a private part that is needed here")

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls()


class _Missing(metaclass=_MissingType):
    """Stands for a part that this torch lacks: nothing is an instance of it, and whoever uses it is told."""


def _part(path: str) -> Any:
    """Return a private part of torch by its dotted name; where this torch lacks it, a stand-in that refuses."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return _Missing


_autograd = _part("torch._C._autograd")
_profiler = _part("torch._C._profiler")
_eval_frame = _part("torch._C._dynamo.eval_frame")
_functorch = _part("torch._C._functorch")
_coerce_cinterpreter = _part("torch._functorch.pyfunctorch.coerce_cinterpreter")
_HigherOrderOperator = _part("torch._ops.HigherOrderOperator")
FakeTensor = _part("torch._subclasses.fake_tensor.FakeTensor")
FakeTensorMode = _part("torch._subclasses.fake_tensor.FakeTensorMode")
_fx_tracing = _part("torch.fx._symbolic_trace")

_Function = TypeVar("_Function", bound=FunctionType)
_SELF_TESTS: dict[str, Callable[[], bool]] = {}
_RESULTS: dict[str, str] = {}


def self_test(name: str) -> Callable[[Callable[[], bool]], Callable[[], bool]]:
    """Return a decorator that registers a self-test: a function that returns True where the API works as we use it."""

    def add(test: Callable[[], bool]) -> Callable[[], bool]:
        _SELF_TESTS[name] = test
        return test

    return add


def failure_of(name: str) -> str:
    """Return why the private API ``name`` cannot be used here; empty where it works. Tested once a process."""
    if name not in _RESULTS:
        try:
            _RESULTS[name] = "" if _SELF_TESTS[name]() else "it answers differently"
        except Exception as error:  # any failure of a private API means the same: not usable here
            _RESULTS[name] = f"{type(error).__name__}: {error}"
    return _RESULTS[name]


def require(name: str, instrument: str) -> None:
    """Refuse ``instrument`` where the private API ``name`` does not work.

    Raises:
        RuntimeError: this torch lacks the API, or it behaves differently.
    """
    if reason := failure_of(name):
        raise RuntimeError(
            f"{instrument} cannot work on torch {torch.__version__}: its private API {name!r} fails ({reason}); "
            "use the torch version that the neural-flow README names"
        )


def self_test_names() -> tuple[str, ...]:
    """Return the names of all registered self-tests, sorted."""
    return tuple(sorted(_SELF_TESTS))


def forget_global_forward_hook(handle: RemovableHandle) -> None:
    """Remove a global forward hook, also from the list of hooks with kwargs, where ``remove`` forgets it."""
    handle.remove()
    getattr(nn.modules.module, "_global_forward_hooks_with_kwargs", {}).pop(handle.id, None)


@self_test("global_forward_hooks")
def _forgets_global_forward_hook() -> bool:
    dictionaries = (nn.modules.module._global_forward_hooks, nn.modules.module._global_forward_hooks_with_kwargs)
    before = [len(hooks) for hooks in dictionaries]
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None, with_kwargs=True, always_call=True)
    forget_global_forward_hook(handle)
    return before == [len(hooks) for hooks in dictionaries]


def hooked_call_kwargs(depth: int) -> dict[str, Any] | None:
    """Return the keyword arguments of the module call whose hooks are running; None where they cannot be found.

    A global forward pre-hook is given positional arguments only, and what a call's keyword arguments hold can be
    overwritten before its forward hook runs.

    Args:
        depth: number of frames between the caller and the function that runs the hooks (1: the caller is the hook).
    """
    frame = sys._getframe(depth + 1)
    if frame.f_code.co_name not in ("inner", "_call_impl"):
        return None
    kwargs = frame.f_locals.get("kwargs")
    return kwargs if isinstance(kwargs, dict) else None


@self_test("hooked_call_kwargs")
def _finds_hooked_call_kwargs() -> bool:
    found: list[dict[str, Any] | None] = []

    def look(_module: nn.Module, _args: Any) -> None:
        found.append(hooked_call_kwargs(1))

    handle = nn.modules.module.register_module_forward_pre_hook(look)
    try:
        nn.Identity()(torch.empty(0))
        nn.Identity()(input=7)
    finally:
        handle.remove()
    return found == [{}, {"input": 7}]


def wrapped_tensors(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return what ``tensor`` is made of: under a function transform the tensor it wraps, in a subclass its parts."""
    if type(tensor) is torch.Tensor:
        return [_functorch.get_unwrapped(tensor)] if _functorch.is_functorch_wrapped_tensor(tensor) else []
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        return []
    parts = [getattr(tensor, name) for name in flatten()[0]]
    return [part for part in parts if isinstance(part, torch.Tensor)]


@self_test("wrapped_tensors")
def _unwraps_tensors() -> bool:
    outer = torch.ones(2, 3)
    seen: list[bool] = []

    def look(row: torch.Tensor) -> torch.Tensor:
        seen.append([part is outer for part in wrapped_tensors(row)] == [True])
        return row

    torch.func.vmap(look)(outer)
    return seen == [True] and wrapped_tensors(outer) == []


# -- modes and versions --------------------------------------------------------------------------------------------

no_subclass_function = torch._C.DisableTorchFunctionSubclass
"""Context in which tensor subclasses intercept nothing, but function modes do."""

no_torch_function = torch._C.DisableTorchFunction
"""Context in which neither function modes nor tensor subclasses intercept anything."""


@self_test("no_torch_function")
def _disables_modes() -> bool:
    seen: list[Any] = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Watch(), no_torch_function():
        torch.ones(1).add(1)
    return not seen


def set_version(tensor: torch.Tensor, version: int) -> None:
    """Set the version counter of a tensor back, after its bytes were set back too."""
    _autograd._unsafe_set_version_counter((tensor,), (version,))


@self_test("set_version")
def _sets_version() -> bool:
    tensor = torch.zeros(2)
    tensor.add_(1)
    set_version(tensor, 0)
    return tensor._version == 0


def is_fx_tracing() -> bool:
    """Return whether a ``torch.fx`` tracer is running, that of ``make_fx`` included."""
    return _fx_tracing._is_fx_tracing_flag


@self_test("fx tracing flag")
def _fx_tracing_flag_works() -> bool:
    seen: list[bool] = []

    def traced(x: torch.Tensor) -> torch.Tensor:
        seen.append(is_fx_tracing())
        return x

    torch.fx.symbolic_trace(traced)
    return seen == [True] and not is_fx_tracing()


def storage_id(tensor: torch.Tensor) -> int | None:
    """Return a number that tensors over the same memory share while one of them lives; None where it cannot be told."""
    if tensor.layout is torch.sparse_coo:
        tensor = tensor._values()
    elif tensor.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        tensor = tensor.values()
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):  # batched by vmap, opaque, without a storage of its own
        return None


@self_test("storage id")
def _storage_id_works() -> bool:
    one, other = torch.zeros(2), torch.zeros(2)
    sparse = one.to_sparse()
    return storage_id(one) == storage_id(one[:1].detach()) != storage_id(other) and storage_id(sparse) == storage_id(
        sparse.detach()
    ) != storage_id(one.to_sparse())


def keep_from_dynamo(function: _Function) -> _Function:
    """Return ``function``, which Dynamo then never compiles on its own where it runs outside of a graph.

    ``torch.compiler.disable`` does the same, but imports Dynamo, which takes a second.
    """
    strategy = _eval_frame._FrameExecStrategy(_eval_frame._FrameAction.SKIP, _eval_frame._FrameAction.SKIP)
    _eval_frame.set_code_exec_strategy(function.__code__, strategy)
    return function


@self_test("keep from Dynamo")
def _keep_from_dynamo_works() -> bool:
    @keep_from_dynamo
    def plain() -> int:
        return 3

    return plain() == 3


# -- function transforms -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TransformLevel:
    """One open ``torch.func`` transform: its kind (``vmap``, ``grad``, ``jvp``, ...), level and number of lanes."""

    kind: str
    level: int
    batch_size: int


def transform_levels() -> tuple[TransformLevel, ...]:
    """Return the open function transforms, outermost first; cheap where there is none."""
    stack = _functorch.get_interpreter_stack()
    if not stack:
        return ()
    levels: list[TransformLevel] = []
    for item in stack:
        interpreter = _coerce_cinterpreter(item)
        kind = str(interpreter.key()).rpartition(".")[2].lower()
        size = interpreter.batch_size() if kind == "vmap" else 0  # pyright: ignore[reportAttributeAccessIssue]
        levels.append(TransformLevel(kind, interpreter.level(), int(size)))
    return tuple(levels)


def unwrap_transforms(tensor: torch.Tensor) -> tuple[torch.Tensor, list[int | None]]:
    """Return the innermost tensor and, for each of its axes, the vmap level that it belongs to or None."""
    axes: list[int | None] = [None] * tensor.dim() if _functorch.is_functorch_wrapped_tensor(tensor) else []
    while _functorch.is_functorch_wrapped_tensor(tensor):
        if _functorch.is_batchedtensor(tensor):
            axes.insert(_functorch.maybe_get_bdim(tensor), _functorch.maybe_get_level(tensor))
        tensor = _functorch.get_unwrapped(tensor)
    return tensor, axes


outside_transforms = _part("torch._functorch.pyfunctorch.temporarily_clear_interpreter_stack")
"""Context in which no function transform sees an operation."""

without_modes = _part("torch.utils._python_dispatch._disable_current_modes")
"""Context in which no function or dispatch mode sees an operation."""


def graph_task_id() -> int:
    """Return the id of the backward pass that this thread runs, -1 outside."""
    return torch._C._current_graph_task_id()


@self_test("function_transforms")
def _unwraps_lanes() -> bool:
    seen: list[tuple[Any, ...]] = []
    value = torch.arange(6.0).reshape(2, 3)

    def look(row: torch.Tensor) -> torch.Tensor:
        plain, axes = unwrap_transforms(row)
        with outside_transforms(), without_modes():
            seen.append((plain.sum().item(), axes, [level.kind for level in transform_levels()]))
        return row.sum()

    torch.func.vmap(torch.func.grad(look), in_dims=1)(value)
    return graph_task_id() == -1 and seen == [(15.0, [None, 1], [])] and transform_levels() == ()


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` stands for a value without having one (fake, functional or proxy tensors of a tracer)."""
    return isinstance(tensor, FakeTensor) or torch._is_functional_tensor(tensor) or tensor.is_meta


@contextlib.contextmanager
def force_eager() -> Generator[None]:
    """Context in which compiled functions and higher-order operators run as plain Python; imports the compiler."""
    with torch.compiler.set_stance("force_eager"):
        yield


def is_higher_order(function: Any) -> bool:
    """Whether ``function`` is an operator that takes functions: cond, scan, while_loop, map."""
    return isinstance(function, _HigherOrderOperator)


@self_test("force_eager")
def _forces_eager() -> bool:
    with force_eager():
        return torch.compile(lambda x: x + 1)(torch.zeros(1)).item() == 1.0


def define_effect(name: str, function: Callable[..., None]) -> None:
    """Define the operator ``name`` from an annotated function that returns nothing and has an effect.

    Compilers keep it in their graphs, in order, and run it each time the graph runs.
    """
    operator = torch.library.custom_op(
        name, function, mutates_args=(), schema="(Tensor[] leaves, int token, str spec) -> ()"
    )
    operator.register_fake(lambda leaves, token, spec: None)
    namespace, _, short = name.partition("::")
    effects = importlib.import_module("torch._higher_order_ops.effects")
    effects._register_effectful_op(getattr(getattr(torch.ops, namespace), short).default, effects._EffectType.ORDERED)


def default_device_mode() -> Any:
    """Return the mode that ``torch.set_default_device`` has put on, or None; an explicit ``cpu`` has one too."""
    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)


@self_test("default_device_mode")
def _finds_default_device_mode() -> bool:
    before = default_device_mode()
    if before is not None:
        return hasattr(before, "device")
    torch.set_default_device("cpu")
    mode = default_device_mode()
    torch.set_default_device(None)
    return mode.device == torch.device("cpu") and default_device_mode() is None


# -- saved tensors and allocations ---------------------------------------------------------------------------------


@self_test("saved tensor data")
def _saved_tensor_data_works() -> bool:
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    saved = y.grad_fn._raw_saved_result  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    packed: list[object] = []

    def pack(tensor: torch.Tensor) -> object:
        packed.append(object())
        return packed[0]

    is_plain = saved.data.data_ptr() == y.data_ptr() and saved.unpack_hook is None
    saved.register_hooks(pack, lambda _: y.detach())
    return is_plain and saved.data is packed[0] and saved.unpack_hook is not None


@self_test("storage objects")
def _storage_objects_work() -> bool:
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    node, storage = y.grad_fn, weakref.ref(y.untyped_storage())
    del y
    is_alive = storage() is not None  # the graph holds the memory, and so the object
    del node
    return is_alive and storage() is None


def neg_view(tensor: torch.Tensor) -> torch.Tensor:
    """Return an alias whose negative bit is the other way round."""
    return torch._neg_view(tensor)


@self_test("negative views")
def _negative_views_work() -> bool:
    return bool((neg_view(torch.ones(2)) == -1).all()) and not neg_view(neg_view(torch.ones(2))).is_neg()


class AllocationLog:
    """Read what the CPU allocator of this thread hands out and takes back, in order. A context manager.

    The events are those that ``torch.profiler`` shows too; it takes seconds to start and prints.

    Attributes:
        nbytes: one number an event: bytes handed out, negative where they were taken back. Filled on leaving.
    """

    def __init__(self) -> None:
        self.nbytes: tuple[int, ...] = ()

    def __enter__(self) -> AllocationLog:
        config = _profiler.ProfilerConfig(
            _profiler.ProfilerState.CPU, False, True, False, False, False, _profiler._ExperimentalConfig()
        )
        _autograd._enable_profiler_legacy(config)
        return self

    def __exit__(self, *_: object) -> None:
        threads = _autograd._disable_profiler_legacy()
        self.nbytes = tuple(
            event.cpu_memory_usage() for events in threads for event in events if event.kind() == "memory_alloc"
        )


@self_test("allocation log")
def _allocation_log_works() -> bool:
    with AllocationLog() as log:
        tensor = torch.empty(1000)
        del tensor
    return log.nbytes == (4000, -4000)
