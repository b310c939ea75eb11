"""The norm of the gradient that reaches each stage's output."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any

import torch
from torch import nn

from neural_flow.capture.measure._base import (
    DEFAULTS,
    MEASUREMENTS,
    Loss,
    MeasureOptions,
    Meter,
    measuring_session,
    metered,
    result,
)
from neural_flow.hooks.gate import gate_outputs
from neural_flow.nested import tensor_leaves
from neural_flow.records import Measurements, Stage, Topology


@MEASUREMENTS.register("gradient")
def measure_gradient(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    topology: Topology,
    options: MeasureOptions = DEFAULTS,
) -> Measurements:
    """Return the 2-norm of the gradient of the loss at each stage's output; stages that it does not reach have none.

    No ``.grad`` is read or written.

    Raises:
        ValueError: nothing in the output depends on a parameter or an input that requires a gradient.
    """
    with measuring_session(model, args, kwargs, options, grad=True) as session:
        meter = _GradientMeter()
        with metered(model, topology, options.trace, meter):
            output = model(*session.args, **session.kwargs)
        inputs = [leaf for _, leaf in tensor_leaves((session.args, session.kwargs))]
        loss = loss_of(output, session.args, options.loss)
        leaves = [leaf for leaf in (*model.parameters(), *inputs) if leaf.requires_grad]
        if not loss.requires_grad or not leaves:
            raise ValueError("gradients were asked for, but the output depends on nothing that requires one")
        torch.autograd.grad(loss, leaves, allow_unused=True)
        by_stage = {stage_id: sqrt(float(square)) for stage_id, square in meter.squares.items()}
        detail = f"of {loss_words(output, options.loss)}"
    return result("gradient", "", by_stage, caption="gradient norm", detail=detail)


def loss_of(output: Any, args: tuple[Any, ...], loss: Loss | None) -> torch.Tensor:
    """Return the scalar behind gradients: of ``loss``, else a scalar ``.loss``, else the mean of squares.

    Args:
        output: what the model returned.
        args: its positional arguments.
        loss: called with (output, *args).
    """
    if loss is not None:
        return loss(output, *args)
    own = getattr(output, "loss", None)
    if isinstance(own, torch.Tensor) and own.numel() == 1:
        return own.reshape(())
    squares = [
        part.abs().square().reshape(-1)
        for _, leaf in tensor_leaves(output)
        if leaf.is_floating_point() or leaf.is_complex()
        for part in (leaf.unbind() if leaf.is_nested else (leaf,))
    ]
    if not squares:
        raise ValueError("gradients were asked for, but the output holds no floating-point tensor")
    return torch.cat([square.double() for square in squares]).mean()


def loss_words(output: Any, loss: Loss | None) -> str:
    """Return which scalar ``loss_of`` takes, in words."""
    if loss is not None:
        return getattr(loss, "__name__", type(loss).__name__)
    own = getattr(output, "loss", None)
    if isinstance(own, torch.Tensor) and own.numel() == 1:
        return "the model's own loss"
    return "the mean square of all outputs"


class _GradientMeter(Meter):
    def __init__(self) -> None:
        super().__init__()
        self.squares: dict[int, torch.Tensor] = {}
        self._num_ends: dict[int, int] = {}

    def end(self, stage: Stage, output: Any, inputs: Any, module: nn.Module | None) -> Any:
        """Put a gate behind the output of a module; of an op the tensors are watched as they are."""
        leaves = [leaf for _, leaf in tensor_leaves(output) if leaf.requires_grad]
        if not leaves or not torch.is_grad_enabled():
            return None
        number = self._num_ends[stage.stage_id] = self._num_ends.get(stage.stage_id, 0) + 1

        def note(gradients: Any) -> Any:
            if number == self._num_ends[stage.stage_id]:  # a card shows the last of its joined calls
                self._add_square(stage, gradients)
            return gradients

        if module is None:
            for leaf in leaves:
                leaf.register_hook(note)
            return None
        return gate_outputs(output, note, inputs=inputs, module=module)

    def _add_square(self, stage: Stage, gradients: Any) -> None:
        for _, gradient in tensor_leaves(gradients):
            square = torch.linalg.vector_norm(gradient.detach().abs().double()).square()
            self.squares[stage.stage_id] = self.squares.get(stage.stage_id, torch.zeros_like(square)) + square
