"""What the name of an op says: whether it holds the weight of a net, only looks at a tensor differently, or resizes."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

HEAVY = re.compile(
    r"(matmul|mm|bmm|addmm|addbmm|baddbmm|addmv|mv|einsum|tensordot|chain_matmul|multi_dot|linear|bilinear"
    r"|_?conv(olution)?|conv\d?d|conv_transpose\d?d|conv_tbc|thnn_conv.*|embedding|embedding_bag"
    r"|lstm|gru|rnn_tanh|rnn_relu|lstm_cell|gru_cell|rnn_tanh_cell|rnn_relu_cell|_thnn_fused_.*_cell"
    r"|.*scaled_dot_product.*attention.*|flex_attention|multi_head_attention_forward|.*multi_head_attention"
    r"|_?grouped_mm|_?scaled_mm|_?transformer_encoder_layer_fwd)"
)
CARRIERS = frozenset((
    "to", "type", "float", "half", "double", "bfloat16", "long", "int", "short", "contiguous", "clone", "detach",
    "alias", "view", "reshape", "flatten", "squeeze", "unsqueeze", "permute", "transpose", "expand", "add", "sub",
    "mul", "div", "true_divide", "pad", "one_hot", "t", "getitem", "select", "slice", "chunk", "split", "unbind",
    "narrow", "movedim", "swapaxes", "unflatten", "_to_copy", "lift_fresh_copy", "remainder", "fmod", "mod",
    "floor_divide", "clamp", "clip", "roll", "flip", "masked_fill", "repeat", "repeat_interleave",
))  # fmt: skip
VIEWS = frozenset((
    "view", "reshape", "flatten", "squeeze", "unsqueeze", "permute", "transpose", "expand", "t", "getitem",
    "select", "slice", "chunk", "split", "unbind", "narrow", "movedim", "swapaxes", "unflatten", "detach",
    "alias", "contiguous", "to", "T", "mT", "view_as", "expand_as",
))  # fmt: skip
RESIZERS = re.compile(r".*pool.*|interpolate|upsample.*|upsampling.*|pixel_(un)?shuffle|flatten|unflatten|grid_sample")
FIRST_LENDS = frozenset((
    "zeros_like", "ones_like", "empty_like", "rand_like", "randn_like", "randint_like", "full_like", "new_zeros",
    "new_ones", "new_empty", "new_full", "new_tensor", "copy", "fill", "zero",
))  # fmt: skip
OTHERS_LEND = frozenset(("view_as", "expand_as", "reshape_as", "type_as", "resize_as"))
GATHERERS = frozenset(("cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "where"))
CHOOSERS = frozenset(("argmax", "argmin", "topk", "multinomial"))
ADDERS = frozenset(("add", "_foreach_add"))


@lru_cache(maxsize=4096)
def op_name(target: str) -> str:
    """Return the bare word of a target: ``torch.Tensor.__iadd__`` and ``aten.add_.Tensor`` are both ``add``.

    Words whose underscores are not only decoration (``_foreach_add``) keep the inner ones.
    """
    parts = target.split(".")
    if parts[0] == "aten" and len(parts) == 3:
        parts = parts[:2]
    name = parts[-1]
    if name.startswith("__") and name.endswith("__"):
        name = name.strip("_")
        if name in ("get", "set") and len(parts) > 1:
            name = parts[-2]
    elif name.endswith("_") and not name.startswith("_"):
        name = name.rstrip("_")
    for prefix in ("i", "r"):
        if name[:1] == prefix and name[1:] in ("add", "sub", "mul", "div", "truediv", "matmul", "pow"):
            name = name[1:]
    if name.startswith(("upsample_", "_upsample_")):
        return "interpolate"
    return "div" if name == "truediv" else name


@lru_cache(maxsize=4096)
def is_resizer(name: str) -> bool:
    """Return whether an op or module of this name changes the shape, where no shapes are known."""
    return RESIZERS.fullmatch(op_name(name).lower()) is not None


def lender(name: str) -> Literal["", "first", "others"]:
    """Return which of the tensors that an op reads only lend it their shape: the first one, or all others."""
    if name in FIRST_LENDS:
        return "first"
    return "others" if name in OTHERS_LEND else ""


@lru_cache(maxsize=4096)
def is_heavy(target: str) -> bool:
    """Return whether an op is one of those that hold the work and the weights of a net."""
    return HEAVY.fullmatch(op_name(target)) is not None


@lru_cache(maxsize=4096)
def is_carrier(target: str) -> bool:
    """Return whether an op hands ids on as ids: casts, views, scaling. Comparisons and sums over positions do not."""
    return op_name(target) in CARRIERS


@lru_cache(maxsize=4096)
def keeps_ids(target: str) -> bool:
    """Return whether what comes out is still worth a look-up: ids handed on, or ids chosen by the signal."""
    return op_name(target) in CARRIERS or op_name(target) in CHOOSERS


@lru_cache(maxsize=4096)
def is_gatherer(target: str) -> bool:
    """Return whether an op puts values side by side or picks between them."""
    return op_name(target) in GATHERERS


@lru_cache(maxsize=4096)
def is_view(target: str) -> bool:
    """Return whether an op only looks at the same values in another shape."""
    return op_name(target) in VIEWS


@lru_cache(maxsize=4096)
def is_adder(target: str) -> bool:
    """Return whether an op adds what it reads."""
    return op_name(target) in ADDERS
