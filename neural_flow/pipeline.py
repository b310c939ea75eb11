"""The architecture in one screen: two passes over the model, then topology, diagram, layout, scene, file.

``render`` draws, ``trace`` stops at the topology, ``activations`` returns whole tensors.
"""

from __future__ import annotations

import dataclasses
import inspect
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import nn

from neural_flow import records
from neural_flow.capture.activations import capture_activations, run_capture_pass
from neural_flow.capture.measure._base import MEASUREMENTS, MeasureOptions
from neural_flow.capture.metadata import run_metadata_pass
from neural_flow.capture.precision import autocast_as_asked
from neural_flow.capture.session import Session
from neural_flow.checks import check_kwargs, check_look, check_model, read_options, shortened, warn_of_unused
from neural_flow.diagram.build import build_diagram
from neural_flow.drawing import Picture
from neural_flow.errors import CaptureSkippedWarning, ForwardError, SelectionError, causes_of
from neural_flow.models._base import describe_error
from neural_flow.models.untrained import is_untrained
from neural_flow.nested import tensor_leaves
from neural_flow.options import Options, as_arguments, make_request
from neural_flow.records import Capture, Measurements, Trace
from neural_flow.results import Drawing, Topology, make_scene
from neural_flow.scene.strip import strip_stage_ids
from neural_flow.stages.select import select_stages
from neural_flow.topology.resolve import resolve_topology


def render(model: nn.Module, args: Any = (), kwargs: Mapping[str, Any] | None = None, **options: Any) -> Drawing:
    """Draw ``model`` as it runs on these inputs.

    Args:
        model: any module; it is left bit for bit as it was.
        args: a tuple of positional arguments; anything else is the one argument. Inputs are cloned.
        kwargs: keyword arguments of forward.
        options: fields of ``Options``.

    Raises:
        ForwardError: the model raised; ``error.drawing`` is the partial figure.
        SelectionError: nothing to draw, or ``strict`` refused a fallback or a missing picture.
        UsageError: an option is malformed.
    """
    run = _Run(model, args, kwargs, options)
    found, topology = run.trace()
    captured = run.capture(found, topology)
    if captured.failure is not None and topology.failure is None:
        topology = dataclasses.replace(topology, failure=captured.failure)
    measurements = () if topology.failure is not None else tuple(run.measure(found, topology))
    drawing = draw(topology, captured, measurements, run.asked)
    run.raise_failure(topology.failure, drawing=drawing)
    return drawing


def trace(model: nn.Module, args: Any = (), kwargs: Mapping[str, Any] | None = None, **options: Any) -> Topology:
    """Find stages and edges without capturing anything: the metadata pass alone.

    Args and errors are those of ``render``; ``ForwardError.topology`` is the partial graph.
    """
    _, topology = observe(model, args, kwargs, **options)
    return Topology(topology)


def observe(
    model: nn.Module, args: Any = (), kwargs: Mapping[str, Any] | None = None, **options: Any
) -> tuple[Trace, records.Topology]:
    """Return the records of ``trace``: every op and call that ran, and the topology. Args and errors are the same."""
    run = _Run(model, args, kwargs, options)
    found, topology = run.trace()
    run.raise_failure(topology.failure, topology=Topology(topology))
    return found, topology


def observe_values(
    model: nn.Module, args: Any = (), kwargs: Mapping[str, Any] | None = None, **options: Any
) -> tuple[records.Topology, Capture]:
    """Return the topology and what was captured, without drawing. Args and errors are those of ``render``."""
    run = _Run(model, args, kwargs, options)
    found, topology = run.trace()
    captured = run.capture(found, topology)
    run.raise_failure(topology.failure or captured.failure, topology=Topology(topology))
    return topology, captured


def activations(
    model: nn.Module, args: Any = (), kwargs: Mapping[str, Any] | None = None, **options: Any
) -> dict[tuple[str, int], torch.Tensor]:
    """Return the whole output tensor of each selected stage by (module path, call index), detached.

    Args and errors are those of ``render``; ``select`` names the modules.
    """
    run = _Run(model, args, kwargs, options)
    found, topology = run.trace()
    run.raise_failure(topology.failure, topology=Topology(topology))
    asked = run.asked
    with run.autocast():
        return capture_activations(
            model, run.args, run.kwargs, topology, trace=found, train=asked.train, seed=asked.seed
        )


def draw(
    topology: records.Topology,
    capture: Capture | None = None,
    measurements: tuple[Measurements, ...] = (),
    options: Options | None = None,
) -> Drawing:
    """Draw a topology that was found earlier, or read from a graph file: no model is needed."""
    asked = options or Options()
    check_look(asked)
    if topology.failure is None:
        warn_of_unused(asked, topology, capture)
    captured = capture or Capture()
    scene = make_scene(topology, captured, measurements, asked)
    picture = Picture(topology=topology, capture=captured, measurements=measurements, scenes=(scene,))
    return Drawing(picture, asked)


class _Run:
    """One model, its inputs and what was asked; each method is one pass."""

    def __init__(
        self, model: nn.Module, args: Any, kwargs: Mapping[str, Any] | None, options: Mapping[str, Any]
    ) -> None:
        self.model = model
        check_model(model)
        check_kwargs(kwargs)
        self.args = as_arguments(args)
        self.kwargs = dict(kwargs or {})
        self.asked = read_options(options)
        self._raised: Exception | None = None

    def autocast(self) -> AbstractContextManager[object]:
        """Return what a pass runs in."""
        tensors = [tensor for _, tensor in tensor_leaves((self.args, self.kwargs))]
        return autocast_as_asked(self.model, tensors, is_on=self.asked.autocast)

    def trace(self) -> tuple[Trace, records.Topology]:
        """Run the metadata pass and find stages and edges."""
        asked = self.asked
        request = make_request(asked)
        asked.tell("metadata pass")
        with self.autocast():
            found = run_metadata_pass(
                self.model,
                self.args,
                self.kwargs,
                train=asked.train,
                seed=asked.seed,
                tracer="function" if asked.tracer == "auto" else asked.tracer,
                fake=asked.fake,
                model_name=asked.model_name,
                on_raise=self._keep,
            )
        asked.tell("topology")
        selection = select_stages(found, request)
        if asked.log is not None:
            for decision in selection.log:
                asked.log(decision)
        topology = resolve_topology(
            found,
            selection,
            request,
            self.model,
            self.args,
            self.kwargs,
            lambda: Session(self.model, self.args, self.kwargs, train=asked.train, seed=asked.seed),
        )
        wanted = "dataflow" if request.topology == "auto" else request.topology
        if asked.strict and topology.source != wanted:
            raise SelectionError(
                f"--strict refused the fallback to topology {topology.source!r}",
                hint="leave --strict out, or name the source: --topology " + topology.source,
            )
        return found, topology

    def capture(self, found: Trace, topology: records.Topology) -> Capture:
        """Run the capture pass, unless only structure is asked for."""
        asked = self.asked
        if not asked.capture or asked.fake:
            return Capture()
        asked.tell("capture pass")
        with self.autocast():
            captured = run_capture_pass(
                self.model,
                self.args,
                self.kwargs,
                topology,
                trace=found,
                train=asked.train,
                seed=asked.seed,
                capture_device=asked.capture_device,
                has_stats=asked.stats,
                has_attention=asked.attention,
                heads=asked.heads,
                batch_dim=asked.batch_dim,
                sample=asked.sample,
                norm=asked.norm,
                labels=None if asked.class_labels is None else tuple(asked.class_labels),
                tokens=None if asked.tokens is None else tuple(asked.tokens),
                image_norm=asked.image_norm,
                picture_ids=None if asked.opened else drawn_stage_ids(topology),
                on_raise=self._keep,
            )
        missing: dict[str, list[str]] = {}
        for stage_id, reason in captured.skipped.items():
            missing.setdefault(reason, []).append(topology.stages[stage_id].name)
        for reason, names in missing.items():
            self._miss("a missing picture: ", "no picture of ", shortened(names), reason)
        if is_untrained(self.model):
            captured = dataclasses.replace(captured, notes=(*captured.notes, "untrained"))
        return captured

    def measure(self, found: Trace, topology: records.Topology) -> Iterable[Measurements]:
        """Run the passes that measure what was asked for; one that fails is left out, and said."""
        asked = self.asked
        wanted = [asked.color_by] if asked.color_by and asked.color_by != "params" else []
        wanted += ["gradient"] * asked.gradients + ["saved"] * asked.saved
        options = MeasureOptions(trace=found, train=asked.train or None, seed=asked.seed, loss=asked.loss)
        for name in dict.fromkeys(wanted):
            measure = MEASUREMENTS.get(name)
            asked.tell(f"measuring {name}")
            try:
                with self.autocast():
                    found_numbers = measure(self.model, self.args, self.kwargs, topology, options)
                yield found_numbers
            except Exception as error:  # a figure without this number is worth having
                self._miss("a missing measurement: ", "cannot measure ", name, describe_error(error))

    def _miss(self, refused: str, words: str, what: str, reason: str) -> None:
        if self.asked.strict:
            raise SelectionError(f"--strict refused {refused}{what}: {reason}", hint="leave --strict out")
        warnings.warn(f"{words}{what}: {reason}", CaptureSkippedWarning, stacklevel=4)

    def _keep(self, error: Exception) -> None:
        self._raised = self._raised or error

    def raise_failure(
        self, failure: records.Failure | None, *, topology: Topology | None = None, drawing: Drawing | None = None
    ) -> None:
        """Raise what the model raised as a ForwardError, from the model's own exception, if it failed."""
        if failure is None:
            return
        cause = self._raised or RuntimeError(f"{failure.type}: {failure.message}")
        shapes = tuple(f"{meta.dtype} {list(meta.shape)}" for meta in failure.inputs)
        error = ForwardError(
            f"the model raised while running {failure.module or 'the root module'} (call {failure.call})\n"
            + (describe_error(cause) if self._raised else str(cause)),
            hint=self._misfit() or f"inputs were {', '.join(shapes) or 'none'}; try inputs of other shapes",
            module=failure.module,
            call=failure.call,
            input_shapes=shapes,
        )
        error.drawing = drawing
        error.topology = drawing.topology if drawing is not None else topology
        _forget_locals(cause)
        self._raised = None
        raise error from cause

    def _misfit(self) -> str:
        """Return what to give where the arguments do not fit forward, or are nothing that a layer takes; else empty."""
        try:
            signature = inspect.signature(self.model.forward)
        except (TypeError, ValueError):  # a forward without a signature
            return ""
        try:
            signature.bind(*self.args, **self.kwargs)
        except TypeError:
            bare = [part.replace(annotation=part.empty) for part in signature.parameters.values()]
            return f"forward takes {inspect.Signature(bare)}; args is a tuple of arguments, kwargs a dict"
        odd = [type(value).__name__ for value in self.args if isinstance(value, list | dict | np.ndarray)]
        return (
            f"forward was given a {odd[0]} as one argument; several are a tuple, and a layer takes tensors"
            if odd
            else ""
        )


def drawn_stage_ids(topology: records.Topology) -> frozenset[int]:
    """Return the stages whose picture is drawn: those with a card of their own, and the repeats on a film strip."""
    nodes = build_diagram(topology).nodes
    repeats = {stage_id for node in nodes for stage_id in strip_stage_ids(node, topology)}
    return frozenset({node.stage_id for node in nodes if node.stage_id is not None} | repeats)


def _forget_locals(error: BaseException) -> None:
    """Let go of the variables in the tracebacks of ``error``: clones and activations must not outlive the call."""
    for cause in causes_of(error):
        traceback.clear_frames(cause.__traceback__)


def _with_options(function: Callable[..., Any]) -> None:
    """Give ``function`` the signature that its options really are, for help() and editors."""
    own = [found for found in inspect.signature(function).parameters.values() if found.name != "options"]
    more = [
        found.replace(kind=inspect.Parameter.KEYWORD_ONLY) for found in inspect.signature(Options).parameters.values()
    ]
    vars(function)["__signature__"] = inspect.Signature([*own, *more])


for _function in (render, trace, activations):
    _with_options(_function)
