"""What a module is called whose path says nothing: its class, and of a plain container what it does."""

from __future__ import annotations

from neural_flow.records import ModuleCall
from neural_flow.stages._net import Net

PLAIN = "torch.nn.modules.container."
_MIN_MAP_RANK = 4


def is_plain(net: Net, call_id: int) -> bool:
    """Return whether a call ran one of torch's own containers, whose class says nothing."""
    return net.class_of(call_id).startswith(PLAIN)


def spoken_class(net: Net, call_id: int) -> str:
    """Return a word for the module of a call: ``up`` for a plain container that enlarges maps, else its main part."""
    if not is_plain(net, call_id):
        return net.calls[call_id].class_name
    if _enlarges(net.calls[call_id]):
        return "up"
    current = call_id
    while is_plain(net, current) and (children := net.visible_children(current)):
        current = max(children, key=lambda child: (net.mass[child], -child))
    return net.calls[current].class_name


def _enlarges(call: ModuleCall) -> bool:
    """Return whether a call makes larger maps of a map, batch and channels first."""
    if not call.inputs or not call.outputs:
        return False
    before, after = call.inputs[0].shape, call.outputs[0].shape
    if len(before) < _MIN_MAP_RANK or len(before) != len(after):
        return False
    return before[2:] != after[2:] and all(small <= large for small, large in zip(before[2:], after[2:], strict=True))
