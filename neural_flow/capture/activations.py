"""The capture pass: run the model once more and keep a small picture of what each drawn stage put out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from traceback import walk_tb
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from neural_flow.capture._attention_watch import attention_watch, has_attention_calls, parse_heads
from neural_flow.capture._names import input_leaves, output_leaves
from neural_flow.capture._op_watch import OpWatch
from neural_flow.capture._origins import output_origins
from neural_flow.capture._pictures import Pictures
from neural_flow.capture._plan import CallKey, Plan, choose_leaf, find_batch, make_plan, written_params
from neural_flow.capture.session import Session
from neural_flow.errors import UsageError
from neural_flow.module_calls import CallFrame, ModuleCallStack, module_paths
from neural_flow.nested import tensor_leaves
from neural_flow.probe import Probe, observe_every_emit
from neural_flow.records import Capture, Failure, Stage, Topology, Trace
from neural_flow.summaries._base import Norm, SummaryContext

ImageNorm = tuple[Sequence[float], Sequence[float]]
OnOutput = Callable[[CallKey, nn.Module, Any], None]
_MAX_SIDE = 160


def run_capture_pass(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    topology: Topology,
    *,
    trace: Trace | None = None,
    train: bool | None = False,
    seed: int | None = None,
    grad: bool = False,
    device: str | torch.device | None = None,
    capture_device: str | torch.device = "cpu",
    has_stats: bool = True,
    has_attention: bool = True,
    heads: str | Mapping[str, Sequence[int]] | None = None,
    batch_dim: str | int | None = "auto",
    sample: int = 0,
    norm: Norm = "channel",
    labels: Sequence[str] | None = None,
    tokens: Sequence[str] | None = None,
    max_side: int = _MAX_SIDE,
    max_channels: int = 0,
    image_norm: ImageNorm | Mapping[str, ImageNorm] | None = None,
    picture_ids: Collection[int] | None = None,
    on_raise: Callable[[Exception], None] | None = None,
) -> Capture:
    """Run ``model`` and summarise the output of every stage of ``topology`` where it is made.

    A tensor is reduced inside the hook that sees it, so nothing large outlives its own moment, and a later in-place
    op does not change the picture. A stage whose picture fails is in ``Capture.skipped`` with the reason. Where the
    model raises, the result holds what was captured until then, and ``failure``.

    Args:
        model: left as it was, as ``Session`` promises.
        args: positional arguments; cloned.
        kwargs: keyword arguments; cloned.
        topology: what is drawn.
        trace: the metadata pass, from which joined calls, ops and sequence-first modules are known.
        train: as in Session.
        seed: as in Session.
        grad: as in Session.
        device: as in Session.
        capture_device: where reduced tensors are kept until the pass ends.
        has_stats: also compute statistics over each whole tensor.
        has_attention: also record attention weights.
        heads: heads to show, as ``h.5:0-3`` or by glob of module path.
        batch_dim: ``auto``, the dimension of the batch, or ``none``.
        sample: which element of the batch is shown.
        norm: what shares a colour scale: a channel, a stage, or the figure (``global``).
        labels: class names.
        tokens: labels of the token axis.
        max_side: longest side of a stored map, in pixels.
        max_channels: channels to keep of a feature map, if more than are drawn.
        image_norm: mean and std by channel that normalised the images; undone in their pictures. A mapping by input
            name says it of each input alone.
        picture_ids: ids of the stages that get a picture, None for all. Members of a fold that only its representative
            stands for cost more than half of the pass in deep models.
        on_raise: told the exception that the model raised, where it did; ``failure`` holds its text only.

    Returns:
        Summaries and statistics by stage id, all read-only numpy arrays.

    Raises:
        UsageError: the batch has no such dimension, or no such example.
    """
    plan, asked_heads = make_plan(topology, trace), parse_heads(heads)
    by_name = image_norm if isinstance(image_norm, Mapping) else {}
    of_all = None if isinstance(image_norm, Mapping) else image_norm
    context = SummaryContext(
        sample=sample,
        labels=tuple(labels or ()),
        tokens=tuple(tokens or ()),
        max_side=max_side,
        max_channels=max_channels,
        norm=norm,
        image_mean=tuple(of_all[0]) if of_all else (),
        image_std=tuple(of_all[1]) if of_all else (),
    )
    failure: Failure | None = None
    notes: list[str] = []
    written = written_params(model, trace)
    with Session(
        model, args, kwargs, train=train, seed=seed, grad=grad, device=device, written_params=written
    ) as session:
        leaves = [leaf for _, leaf in input_leaves(model, session.args, session.kwargs)]
        batch = find_batch(model, leaves, batch_dim, trace)
        if 0 < batch.size <= sample:
            raise UsageError(f"there is no example {sample}: the batch has {batch.size}", hint="--sample counts from 0")
        pictures = Pictures(
            context=context,
            batch=batch,
            capture_device=torch.device(capture_device),
            has_stats=has_stats,
            wanted=None if picture_ids is None else frozenset(picture_ids),
            origins=output_origins(trace),
            image_norms=by_name,
        )
        for stage in plan.inputs:
            if stage.index < len(leaves):
                pictures.take(stage, leaves[stage.index])
        with ExitStack() as stack:
            paths = session.tree.paths
            stack.enter_context(watched_calls(model, plan.calls, _call_watcher(plan, pictures), paths))
            _watch_emits(plan, pictures, stack)
            op_watch = _op_watch(ModuleCallStack(model, paths=paths), plan, pictures, stack)
            if has_attention and has_attention_calls(model, trace):
                # below the watch of ops in the stack of modes, so that it knows which op is running
                attention = stack.enter_context(attention_watch(model, paths, plan, pictures, asked_heads, op_watch))
                notes = attention.skipped
            if op_watch is not None:
                stack.enter_context(op_watch)
            try:
                output = model(*session.args, **session.kwargs)
            except Exception as error:  # the partial picture is worth having; the caller raises
                failure, output = failure_of(model, error, trace), None
                if on_raise is not None:
                    on_raise(error)
        outputs = [leaf for _, leaf in output_leaves(output)]
        for stage in plan.outputs:
            if stage.index < len(outputs):
                pictures.take(stage, outputs[stage.index])
        return pictures.finish(failure, tuple(f"no attention weights of {note}" for note in notes))


def capture_activations(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    topology: Topology,
    *,
    trace: Trace | None = None,
    train: bool | None = False,
    seed: int | None = None,
    grad: bool = False,
    device: str | torch.device | None = None,
    capture_device: str | torch.device = "cpu",
) -> dict[CallKey, torch.Tensor]:
    """Run ``model`` and return the whole output tensor of each drawn call by (module path, call index).

    Each tensor is a detached copy on ``capture_device``. Of several output leaves it is the one that a card shows.
    Arguments are those of ``run_capture_pass``.

    Raises:
        Exception: what the model raised, unchanged.
    """
    plan = make_plan(topology, trace)
    found: dict[CallKey, torch.Tensor] = {}

    def keep(key: CallKey, module: nn.Module, output: Any) -> None:
        leaf = choose_leaf([leaf for _, leaf in tensor_leaves(output)], plan.leaves.get(plan.owners[key].stage_id))
        if leaf is not None:
            found[key] = leaf.detach().to(capture_device, copy=True)

    written = written_params(model, trace)
    with (
        Session(
            model, args, kwargs, train=train, seed=seed, grad=grad, device=device, written_params=written
        ) as session,
        watched_calls(model, plan.owners, keep, session.tree.paths),
    ):
        model(*session.args, **session.kwargs)
    return found


def _call_watcher(plan: Plan, pictures: Pictures) -> OnOutput:
    def take(key: CallKey, module: nn.Module, output: Any) -> None:
        if isinstance(output, torch.Tensor):  # by far the most
            for stage in plan.calls[key]:
                pictures.take(stage, output, module)
            return
        leaves = [leaf for _, leaf in tensor_leaves(output)]
        for stage in plan.calls[key]:
            leaf = choose_leaf(leaves, plan.leaves.get(stage.stage_id))
            if leaf is None:
                pictures.skipped[stage.stage_id] = "its output holds no tensor"
            else:
                pictures.take(stage, leaf, module, _packing_of(leaf, output))

    return take


def _packing_of(leaf: torch.Tensor, output: Any) -> PackedSequence | None:
    """Return the packed sequence in ``output`` whose data is ``leaf``: its rows are steps of all sequences mixed."""
    parts = output if isinstance(output, tuple | list) and not isinstance(output, PackedSequence) else (output,)
    return next((part for part in parts if isinstance(part, PackedSequence) and part.data is leaf), None)


def _watch_emits(plan: Plan, pictures: Pictures, stack: ExitStack) -> None:
    """Show each emitted tensor in the stage that has its place among all that the model emits."""
    if not plan.probes:
        return
    stages = {stage.index: stage for stage in plan.probes}
    num_seen = 0

    def take(probe: Probe, value: Any) -> None:
        nonlocal num_seen
        for _, leaf in tensor_leaves(value):
            stage = stages.get(num_seen)
            num_seen += 1
            if stage is not None:
                pictures.take(stage, leaf)

    stack.callback(observe_every_emit(take).remove)


def _op_watch(calls: ModuleCallStack, plan: Plan, pictures: Pictures, stack: ExitStack) -> OpWatch | None:
    if not plan.ops:
        return None

    def take(stage: Stage, tensors: Sequence[torch.Tensor]) -> None:
        leaf = choose_leaf(tensors, plan.leaves.get(stage.stage_id))
        if leaf is not None:
            pictures.take(stage, leaf)

    return OpWatch(stack.enter_context(calls), plan.ops, take)


@contextmanager
def watched_calls(
    model: nn.Module, keys: Iterable[CallKey], on_output: OnOutput, paths: Mapping[nn.Module, str]
) -> Generator[None]:
    """Call ``on_output(key, module, output)`` after each call in ``keys``, by hooks on the modules that run them.

    Calls are counted when they are entered. Scripted modules take no hooks of their own: for them there are global
    ones. Leaving removes every hook.

    Args:
        model: what will run.
        keys: the calls.
        on_output: told of each.
        paths: the paths of the model's modules.
    """
    wanted = set(keys)
    wanted_paths = {path for path, _ in wanted}
    modules = {module: path for module, path in paths.items() if path in wanted_paths}
    scripted: dict[nn.Module, str] = {
        module: path for module, path in modules.items() if isinstance(module, torch.jit.ScriptModule)
    }
    with ExitStack() as stack:
        for module, path in modules.items():
            if module not in scripted:
                _hook(module, path, wanted, on_output, stack)
        if scripted:

            def leave(frame: CallFrame, args: Any, kwargs: Any, output: Any) -> None:
                if (key := (frame.path, frame.call_index)) in wanted:
                    on_output(key, frame.module, output)

            stack.enter_context(ModuleCallStack(model, paths=scripted, on_exit=leave))
        yield


def _hook(module: nn.Module, path: str, wanted: set[CallKey], on_output: OnOutput, stack: ExitStack) -> None:
    num_calls = 0
    running: list[int] = []  # more than one where a module calls itself

    def enter(module: nn.Module, args: tuple[Any, ...]) -> None:
        nonlocal num_calls
        running.append(num_calls)
        num_calls += 1

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        if not running:  # another pre-hook raised before ours ran
            return
        key = (path, running.pop())
        if key in wanted and output is not None:
            on_output(key, module, output)

    stack.callback(module.register_forward_pre_hook(enter).remove)
    # always_call: a call that raised, and was caught by its caller, must not stay on the stack
    stack.callback(module.register_forward_hook(leave, always_call=True).remove)


def failure_of(model: nn.Module, error: Exception, trace: Trace | None) -> Failure:
    """Return where the model raised: as the metadata pass saw it, if that failed alike, else from the traceback."""
    known = trace.failure if trace is not None else None
    if known is not None and known.type == type(error).__name__:
        return known
    paths = module_paths(model)
    path = ""
    for frame, _ in walk_tb(error.__traceback__):
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and owner in paths:
            path = paths[owner]
    return Failure(module=path, call=0, call_id=None, type=type(error).__name__, message=str(error))
