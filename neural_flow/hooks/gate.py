"""The gate: one autograd node behind the output of a module, where backward hooks see and replace the gradient.

A gate hands its tensors on in one of two ways. A tensor that nothing else can reach is handed on as a new tensor over
the same memory, so that in-place operations behind the gate work and count. A tensor that shares memory with an input,
a parameter, a buffer or another output is handed on as a view, on which PyTorch refuses in-place operations: behind
such a gate they would give wrong gradients without a word.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import torch

from neural_flow import nested
from neural_flow.hooks.aliases import shared_leaves
from neural_flow.hooks.registry import (
    BackwardHook,
    HookKind,
    HookRegistry,
    hook_name,
    none_returned,
    registry_of,
)
from neural_flow.hooks.structure import GradientMeta, Gradients, OutputStructure, checked_gradient


class BackwardHookGate(torch.autograd.Function):
    """The autograd node that applies backward hooks, with the tensors of the module output as its only parents.

    ``BackwardHookGate.apply(call, *leaves)`` returns the leaves behind the gate as a tuple. ``backward`` applies the
    hooks of ``call`` to the gradient, in registration order, and its result flows into the module output.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(call: GateCall, *leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Hand the leaves on, as views where ``call`` says that their memory is shared."""
        return tuple(
            leaf if is_shared else leaf.detach() for leaf, is_shared in zip(leaves, call.is_shared, strict=True)
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        """Keep the call; no tensor is saved."""
        ctx.call = inputs[0]
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients that the hooks make of ``grads``, behind a None for the call."""
        return (None, *ctx.call.run_hooks(grads))


class BackwardHookGateDual(BackwardHookGate):
    """The same node, through which forward-mode tangents pass too. Dynamo refuses functions that have a ``jvp``."""

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """Return the tangents, behind one for the call, unchanged; that of a view has to be a view."""
        return tuple(
            tangent.view_as(tangent) if is_shared and tangent is not None else tangent
            for tangent, is_shared in zip(tangents[1:], ctx.call.is_shared, strict=True)
        )


class GateCall:
    """What one gate needs in backward. It holds no tensor that passes the gate, which would keep its memory alive.

    Args:
        registry: tells in backward which hooks are still registered.
        hooks: the hooks registered when the forward ran.
        is_shared: of each gated leaf, whether something else reaches its memory.
        structure: how the gradients of several leaves are given to the hooks; None where the output is one tensor.
    """

    def __init__(
        self,
        registry: HookRegistry,
        hooks: Mapping[int, BackwardHook],
        is_shared: Sequence[bool],
        structure: OutputStructure | None,
    ) -> None:
        self.registry = registry
        self.hooks = hooks
        self.is_shared = is_shared
        self.structure = structure

    def run_hooks(self, grads: Gradients) -> Gradients:
        """Return what the hooks that are still registered make of ``grads``, one gradient a gated leaf.

        Raises:
            HookReturnError: a hook returned None, or what cannot be the gradient.
            RuntimeError: a hook changed a gradient in place.
        """
        arrived = [grad for grad in grads if grad is not None]
        if not arrived:
            return grads
        if self.structure is None and torch.compiler.is_compiling():
            return [_run_opaquely(arrived[0], self.registry.registry_id, list(self.hooks))]
        current = self.registry.back
        hooks = [hook for hook_id, hook in self.hooks.items() if hook_id in current]
        if self.structure is None:
            return [run_on_tensor(hooks, arrived[0])]
        for hook in hooks:
            if torch.compiler.is_compiling():  # a traced gradient has no version
                grads = self.structure.run(hook, grads)
            else:
                with _left_unchanged(hook, [grad for grad in grads if grad is not None]):
                    grads = self.structure.run(hook, grads)
        return grads


def run_on_tensor(hooks: Sequence[BackwardHook], grad: torch.Tensor) -> torch.Tensor:
    """Return what ``hooks`` make of the gradient of one tensor, each fed with the result of the previous one.

    Raises:
        HookReturnError: a hook returned None, or what cannot be the gradient.
        RuntimeError: a hook changed the gradient in place.
    """
    for hook in hooks:
        with _left_unchanged(hook, [grad]):
            result = hook(grad)
        if result is None:
            raise none_returned(HookKind.backward, hook)
        grad = checked_gradient(hook, result, GradientMeta.of(grad))
    return grad


# In a compiled graph the hooks stand as one opaque operator: PyTorch refuses side effects in a traced backward, and a
# hook that only measures consists of them. What is registered is looked up when the operator runs.
@torch.library.custom_op("neural_flow::run_backward_hooks", mutates_args=())
def _run_backward_hooks(grad: torch.Tensor, registry_id: int, hook_ids: list[int]) -> torch.Tensor:
    registry = registry_of(registry_id)
    if registry is None:
        raise RuntimeError("backward of a compiled module reached a gate whose wrapper and hooks are gone; keep them")
    current = registry.back
    result = run_on_tensor([current[hook_id] for hook_id in hook_ids if hook_id in current], grad)
    # an operator must not return its input, and the graph was promised these strides
    return torch.empty_like(grad).copy_(result)


@_run_backward_hooks.register_fake
def _(grad: torch.Tensor, registry_id: int, hook_ids: list[int]) -> torch.Tensor:
    return torch.empty_like(grad)


def _run_opaquely(grad: torch.Tensor, registry_id: int, hook_ids: list[int]) -> torch.Tensor:
    return torch.ops.neural_flow.run_backward_hooks(grad, registry_id, hook_ids)


@contextlib.contextmanager
def _left_unchanged(hook: BackwardHook, grads: Sequence[torch.Tensor]) -> Generator[None]:
    """Refuse a hook that changes ``grads`` in place: the engine may have handed the same tensors to other nodes."""
    before = [_version(grad) for grad in grads]
    yield
    if before != [_version(grad) for grad in grads]:
        raise RuntimeError(
            f"backward hook {hook_name(hook)} changed the gradient in place, which changes it for other parts of the "
            "graph too; compute a new tensor and return it"
        )


def _version(tensor: torch.Tensor) -> int:
    try:
        return tensor._version
    except RuntimeError:  # inference tensors have none, nor does a gradient ever become one
        return -1


def gate_outputs(
    output: Any,
    hook: BackwardHook,
    *,
    inputs: Any = None,
    module: torch.nn.Module | None = None,
    gate_shared: bool = True,
) -> Any:
    """Return ``output`` behind a gate: in backward, ``hook(g) -> g`` receives its gradient and may replace it.

    The very object is returned where grad mode is off or no tensor in ``output`` requires a gradient. In-place
    operations on what is returned raise for each tensor that shares memory with ``inputs``, with a parameter or buffer
    of ``module`` or with another tensor of ``output``; without ``inputs`` they raise for every tensor. Code behind the
    gate has to use what is returned in place of ``output``.

    Args:
        output: what a module returned: a tensor or any nest of them. It is not changed.
        hook: as for ``Hooks.add_backward_hook``.
        inputs: what the module was called with, in any nest.
        module: the module that returned ``output``.
        gate_shared: False leaves tensors that share memory as they are: in-place operations keep working, and the hook
            gets None for them, or is not called for an ``output`` of one tensor.

    Raises:
        TypeError: ``hook`` cannot be called with one argument, or ``output`` cannot be rebuilt behind a gate.
        RuntimeError: PyTorch has no way to put a node behind a tensor of this layout.
    """
    registry = HookRegistry()
    registry.add(HookKind.backward, hook)
    leaves = gated_leaves(output)
    is_shared = [True] * len(leaves) if inputs is None else shared_leaves(leaves, inputs, module)
    if not gate_shared:
        leaves = [leaf for leaf, shared in zip(leaves, is_shared, strict=True) if not shared]
        is_shared = [False] * len(leaves)
    return attach_gate(output, leaves, is_shared, registry) if leaves else output


def gated_leaves(output: Any) -> list[torch.Tensor]:
    """Return the tensors of ``output`` that a gate is for: those that require a gradient, while grad mode is on."""
    if not torch.is_grad_enabled():
        return []
    if isinstance(output, torch.Tensor):
        return [output] if output.requires_grad else []
    return [leaf for _, leaf in nested.tensor_leaves(output) if leaf.requires_grad]


def attach_gate(output: Any, leaves: Sequence[torch.Tensor], is_shared: Sequence[bool], registry: HookRegistry) -> Any:
    """Return ``output`` with ``leaves`` behind one gate.

    Args:
        output: a tensor or any nest of them. It is not changed.
        leaves: tensors of ``output``, in order, that require a gradient; at least one.
        is_shared: of each of ``leaves``, whether something else reaches its memory.
        registry: its backward hooks run.
    """
    for leaf, is_alias in zip(leaves, is_shared, strict=True):
        _refuse_ungateable(leaf, is_alias)
    structure = None if isinstance(output, torch.Tensor) else OutputStructure(output, _found_in(output, leaves))
    call = GateCall(registry, registry.back, is_shared, structure)
    gate = BackwardHookGate if torch.compiler.is_compiling() else BackwardHookGateDual
    gated: tuple[torch.Tensor, ...] = gate.apply(call, *leaves)  # pyright: ignore[reportAssignmentType]  # typed Any
    if not torch.compiler.is_compiling():
        for before, behind in zip(leaves, gated, strict=True):
            _copy_attributes(before, behind)
    return gated[0] if structure is None else structure.replace_gated(output, gated)


def _found_in(output: Any, leaves: Sequence[torch.Tensor]) -> list[bool]:
    """Return of each tensor leaf of ``output`` whether it is one of ``leaves``, which stand in the same order."""
    rest = list(leaves)
    found: list[bool] = []
    for _, leaf in nested.tensor_leaves(output):
        is_next = bool(rest) and leaf is rest[0]
        found.append(is_next)
        if is_next:
            rest.pop(0)
    return found


def _refuse_ungateable(leaf: torch.Tensor, is_shared: bool) -> None:
    """Refuse what PyTorch gives no way to put a node behind."""
    if torch.compiler.is_exporting():
        raise RuntimeError(
            "torch.export keeps no backward hooks, and would cut the gradient where they are; remove them first, or "
            "export under torch.no_grad()"
        )
    if leaf.layout is torch.strided and leaf.is_nested:
        raise RuntimeError(
            "backward hooks cannot follow a nested tensor of layout torch.strided, which no autograd.Function takes; "
            "use layout=torch.jagged"
        )
    if is_shared and leaf.layout not in (torch.strided, torch.jagged):
        raise RuntimeError(
            f"backward hooks cannot follow a {leaf.layout} tensor that shares memory with an input, a parameter or "
            "another output, since it has no views; return a copy from the module"
        )


def _copy_attributes(before: torch.Tensor, behind: torch.Tensor) -> None:
    """Give the tensor behind the gate what the module wrote on its output; what a subclass needs it has already."""
    own = vars(behind)
    for name, value in vars(before).items():
        if name != "_is_param":  # marks a subclass as a parameter, which a computed tensor is not
            own.setdefault(name, value)
