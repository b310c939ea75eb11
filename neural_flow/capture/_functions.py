"""What the name of a torch function tells: its qualified name, what it writes, and which arguments it only looks at."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

_NAMES: dict[Any, str] = {}

# The public home of functions whose __module__ is an internal one.
_HOMES = {
    "torch._C._nn": ("torch.nn.functional", ""),
    "torch._C._fft": ("torch.fft", "fft_"),
    "torch._C._linalg": ("torch.linalg", "linalg_"),
    "torch._C._special": ("torch.special", "special_"),
    "torch._C._sparse": ("torch.sparse", "sparse_"),
    "torch._C._nested": ("torch.nested", "nested_"),
    "torch.functional": ("torch", ""),
    "torch._tensor": ("torch.Tensor", ""),
    "torch._VF": ("torch", ""),
}

OVERWRITES = frozenset(
    {
        "copy_", "fill_", "zero_", "set_", "__setitem__", "normal_", "uniform_", "random_", "bernoulli_", "cauchy_",
        "exponential_", "geometric_", "log_normal_", "fill_diagonal_", "constant_", "ones_", "zeros_", "eye_",
        "kaiming_uniform_", "kaiming_normal_", "xavier_uniform_", "xavier_normal_", "trunc_normal_", "orthogonal_",
        "__set__", "_foreach_copy_", "_foreach_zero_",
    }
)  # fmt: skip
"""Functions that write their first argument without reading it."""

UPDATES_ASIDE = frozenset(
    {
        "batch_norm", "instance_norm", "_native_batch_norm_legit", "native_batch_norm", "cudnn_batch_norm",
        "miopen_batch_norm", "_batch_norm_with_update",
    }
)  # fmt: skip
"""Functions that update running statistics beside their result, which does not depend on them then."""

ARRAY_ESCAPES = frozenset({"numpy", "__array__", "__dlpack__", "untyped_storage", "data_ptr"})
"""Functions that hand a tensor's data to code that no tracer sees into."""

ARRAY_READERS = frozenset({"tensor", "as_tensor", "asarray"})
"""Functions that make a tensor of an array."""

FROM_LITERALS = frozenset({"lift_fresh", "lift_fresh_copy", "lift"})
"""Functions whose argument is a tensor just made of Python numbers."""

JOINERS = frozenset({"cat", "concat", "concatenate", "stack", "hstack", "vstack", "row_stack"})
"""Functions that lay tensors side by side."""

_LENDS_FIRST = frozenset(
    {
        "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like",
        "new_zeros", "new_ones", "new_empty", "new_full", "new_tensor", "new_empty_strided", "new",
    }
)  # fmt: skip
_LENDS_SECOND = frozenset({"type_as", "expand_as", "view_as", "reshape_as", "to", "resize_as_"})


def short_name(func: Callable[..., Any]) -> str:
    """Return the bare name of a torch function, ``add.Tensor`` as ``add``."""
    name = getattr(func, "__name__", None)
    if not isinstance(name, str):
        return type(func).__name__
    return name.partition(".")[0] if not name.startswith(".") else name


class Traits(NamedTuple):
    """What the tracer wants to know of a function each time it is called.

    ``is_plain``: no rule below is about it, as long as it writes nothing. ``is_writing``: it writes its first argument.
    ``is_update``: so, and no other rule below is about it.
    """

    name: str
    is_plain: bool
    is_writing: bool
    is_update: bool


_SPECIAL = (ARRAY_ESCAPES, ARRAY_READERS, FROM_LITERALS, JOINERS)
_TRAITS: dict[Any, Traits] = {}


def traits_of(func: Callable[..., Any]) -> Traits:
    """Return the traits of a torch function."""
    try:
        return _TRAITS[func]
    except (KeyError, TypeError):
        name = short_name(func)
    is_writing = is_in_place(name)
    is_special = (
        name in ("__get__", "__set__", "backward")
        or name.startswith("_foreach_")
        or num_lenders(name) != (0, 0)
        or any(name in names for names in _SPECIAL)
    )
    is_update = is_writing and not is_special and name not in OVERWRITES
    traits = Traits(name, not is_special and not is_writing, is_writing, is_update)
    with contextlib.suppress(TypeError):  # not hashable
        _TRAITS[func] = traits
    return traits


def target_name(func: Callable[..., Any]) -> str:
    """Return the qualified name of a torch function: ``torch.cat``, ``torch.Tensor.add``, ``torch.nn.functional.relu``.

    Operators are named by what they do (``getitem``, ``rsub``, ``add_`` for ``+=``), properties by their own name.
    """
    if getattr(func, "__name__", "") in ("__get__", "__set__"):  # a new object each time: no use caching it
        owner = getattr(func, "__self__", None)
        suffix = "_" if func.__name__ == "__set__" else ""
        return f"torch.Tensor.{getattr(owner, '__name__', 'attribute')}{suffix}"
    try:
        return _NAMES[func]
    except (KeyError, TypeError):
        name = _qualified_name(func)
    with contextlib.suppress(TypeError):  # not hashable
        _NAMES[func] = name
    return name


def _qualified_name(func: Callable[..., Any]) -> str:
    name = short_name(func)
    if name.startswith("__") and name.endswith("__") and len(name) > 4:
        name = name[2:-2]
        if name[0] == "i" and name[1:] in _IN_PLACE_OPERATORS:
            name = f"{name[1:]}_"
        elif name in _REFLECTED:
            name = name[1:]
    if hasattr(func, "__objclass__"):
        return f"torch.Tensor.{name}"
    module = getattr(func, "__module__", None) or "torch"
    home, prefix = _HOMES.get(module, (module, ""))
    if home.startswith("torch._ops."):
        home = f"torch.ops.{home.removeprefix('torch._ops.')}"
    elif home.startswith("torch._C") or home == "torch._ops":
        home = "torch"
    return f"{home}.{name.removeprefix(prefix)}"


_IN_PLACE_OPERATORS = frozenset(
    {"add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"}
)
_REFLECTED = frozenset({"radd", "rmul", "rand", "ror", "rxor"})


def is_in_place(name: str) -> bool:
    """Return whether a function of this bare name writes its first argument."""
    if name.endswith("__"):
        return name in ("__setitem__", "__set__") or (name.startswith("__i") and name[3:-2] in _IN_PLACE_OPERATORS)
    return name.endswith("_")


def is_writing_by(kwargs: dict[str, Any]) -> bool:
    """Return whether these keywords make a function write an argument; with ``max_norm`` it scales rows of a weight."""
    return kwargs.get("inplace") is True or kwargs.get("out") is not None or kwargs.get("max_norm") is not None


def num_lenders(name: str) -> tuple[int, int]:
    """Return the half-open range of positional arguments that lend only shape, dtype or device: (0, 0) for none."""
    if name in _LENDS_FIRST:
        return 0, 1
    if name in _LENDS_SECOND:
        return 1, 2
    return 0, 0
