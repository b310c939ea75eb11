"""A module that is traced with symbols, left as it was."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from neural_flow.topology._base import Isolated, TopologyQuery

MAX_PARAM_NBYTES = 64 * 2**20
"""Parameters are copied for the trace up to this many bytes in all; no trace writes to larger ones unseen by torch."""


@contextmanager
def isolated(query: TopologyQuery) -> Generator[Isolated]:
    """Give inputs to run the model of ``query`` with; what the run changes is put back on leaving."""
    if query.isolate is None:
        with undisturbed(query.model):
            yield query
    else:
        with query.isolate() as run:
            yield run


@contextmanager
def undisturbed(model: Any) -> Generator[None]:
    """Give ``model`` copies of its tensors, and on leaving all its attributes back as they were.

    A trace runs the model's own code: it may leave symbols in attributes, count up a buffer or clamp a weight. Restores
    the attributes of every module (shallowly), its buffers, its parameters up to ``MAX_PARAM_NBYTES`` and its children.
    Does not nest with itself.
    """
    modules = list(model.modules())
    saved = [(module, dict(vars(module))) for module in modules]
    tables = [
        (table, dict(table))
        for module in modules
        for name in ("_buffers", "_parameters", "_modules")
        if isinstance(table := vars(module).get(name), dict)
    ]
    num_bytes = sum(param.nbytes for param in model.parameters())
    copies: dict[int, Any] = {}
    try:
        for module in modules:
            _copy_tensors(vars(module).get("_buffers"), copies, is_param=False)
            if num_bytes <= MAX_PARAM_NBYTES:
                _copy_tensors(vars(module).get("_parameters"), copies, is_param=True)
        yield
    finally:
        for module, attributes in saved:
            vars(module).clear()
            vars(module).update(attributes)
        for table, content in tables:
            table.clear()
            table.update(content)


def _copy_tensors(table: Any, copies: dict[int, Any], *, is_param: bool) -> None:
    """Replace the tensors of a module's table by copies; a tensor in two places stays one."""
    if not isinstance(table, dict):
        return
    for name, tensor in table.items():
        if tensor is None or not hasattr(tensor, "detach"):
            continue
        if id(tensor) not in copies:
            copy = tensor.detach().clone()
            copies[id(tensor)] = type(tensor)(copy, requires_grad=tensor.requires_grad) if is_param else copy
        table[name] = copies[id(tensor)]
