"""What kind of work a card does, read from the ops that ran in it: names of classes promise, ops prove."""

from __future__ import annotations

from collections.abc import Iterable

from neural_flow.stages._net import Net
from neural_flow.stages._signals import BANK_NAMES

_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu", "mkldnn_rnn")
_ATTENTION = ("scaled_dot_product", "multi_head_attention", "flex_attention")
_LINEAR = BANK_NAMES | {"linear", "addmm", "mm", "bilinear"}
_NORMS = ("layer_norm", "batch_norm", "group_norm", "instance_norm", "rms_norm", "local_response_norm")
# A block is known by the first of these that it does: an attention block has linear layers too.
_PRECEDENCE = ("attention", "recurrent", "convolution", "linear", "embedding", "normalisation")


def family_of(net: Net, op_ids: Iterable[int]) -> str:
    """Return the family of what these ops compute together, ``""`` where none of them is heavy or a norm."""
    found = {_family_of_op(net, op_id) for op_id in op_ids}
    return next((family for family in _PRECEDENCE if family in found), "")


def _family_of_op(net: Net, op_id: int) -> str:
    signals = net.signals
    name = signals.name(op_id)
    if not signals.is_signal[op_id]:
        return ""
    if not signals.is_heavy[op_id]:
        return "normalisation" if name.startswith(_NORMS) else ""
    if name.startswith(_ATTENTION) or _mixes_by_softmax(net, op_id):
        return "attention"
    if name.startswith(_RECURRENT):
        return "recurrent"
    if "conv" in name:
        return "convolution"
    if name.startswith("embedding"):
        return "embedding"
    return "linear" if signals.is_weighted[op_id] and name in _LINEAR else ""


def _mixes_by_softmax(net: Net, op_id: int) -> bool:
    """Return whether an op multiplies values with weights that a softmax made: attention that is written out."""
    signals = net.signals
    if signals.is_weighted[op_id] or signals.name(op_id) not in BANK_NAMES:
        return False
    pending = list(signals.parents[op_id])
    while pending:
        parent = pending.pop()
        name = signals.name(parent)
        if name == "softmax":
            return True
        # between the softmax and the product stand dropouts, casts and views, each with one source
        if not signals.is_heavy[parent] and len(signals.parents[parent]) == 1:
            pending.extend(signals.parents[parent])
    return False
