"""The pictures and statistics that the capture pass collects: reduced in the hook, made numpy once at the end."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import sqrt
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from neural_flow.capture._inputs import InputPictures
from neural_flow.capture._metas import finished_meta, raw_meta
from neural_flow.capture._origins import Origin
from neural_flow.capture._plan import Batch, batch_dim_of
from neural_flow.capture._statistics import num_not_finite, tensor_stats
from neural_flow.records import Array, Capture, Failure, Stage, Summary, TensorMeta, TensorStats
from neural_flow.summaries._base import SUMMARIES, NoPicture, Role, SummaryContext, read_only
from neural_flow.summaries._pixels import MAX_INDEX
from neural_flow.summaries._summarise import describe, summarise, take_sample
from neural_flow.summaries.attention import describe as describe_attention
from neural_flow.torch_private import no_torch_function

_ROLES: dict[str, Role] = {"input": "input", "module": "module", "op": "op", "probe": "probe", "output": "output"}

_MAX_SIGNAL_DIM = 3  # a signal C×T in a batch


@dataclass(slots=True)
class _Raw:
    kind: str
    tensor: TensorMeta
    arrays: dict[str, torch.Tensor]
    facts: dict[str, Any]


@dataclass(slots=True)
class Pictures:
    """Collects one picture a stage; a stage whose picture fails is remembered with the reason."""

    context: SummaryContext
    batch: Batch
    capture_device: torch.device
    has_stats: bool = True
    wanted: frozenset[int] | None = None
    """Ids of the stages that get a picture; None is all. Of the others, kind and statistics are noted."""
    origins: tuple[Origin, ...] = ()
    """Where each output leaf comes from."""
    image_norms: Mapping[str, tuple[Sequence[float], Sequence[float]]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Mean and std by channel of the inputs that were normalised otherwise than ``context`` says, by name."""
    summaries: dict[int, _Raw] = field(default_factory=dict[int, "_Raw"])
    stats: dict[int, TensorStats] = field(default_factory=dict[int, TensorStats])
    attention: dict[int, list[_Raw]] = field(default_factory=dict[int, "list[_Raw]"])
    skipped: dict[int, str] = field(default_factory=dict[int, str])
    _inputs: InputPictures = field(default_factory=InputPictures)
    _has_volumes: bool = False

    def take(
        self, stage: Stage, leaf: torch.Tensor, module: nn.Module | None = None, packing: PackedSequence | None = None
    ) -> None:
        """Reduce ``leaf`` to the picture and the statistics of ``stage``, at once: it may change or die afterwards.

        Args:
            stage: what the leaf is shown in.
            leaf: the tensor.
            module: the module that put it out.
            packing: the packed sequence whose data it is.
        """
        try:
            with torch.no_grad(), no_torch_function(), _quiet():
                self._take(stage, leaf.detach(), module, packing)
        except NoPicture as reason:
            self.skipped[stage.stage_id] = str(reason)
        except Exception as error:  # drawing never stops for a picture
            self.skipped[stage.stage_id] = f"{type(error).__name__}: {error}"

    def _take(self, stage: Stage, leaf: torch.Tensor, module: nn.Module | None, packing: PackedSequence | None) -> None:
        stats = tensor_stats(leaf) if self.has_stats else None
        if stats is not None:
            self.stats[stage.stage_id] = stats
        context = self._context_of(stage, leaf, module)
        shown = leaf
        if packing is not None:
            shown, context = _unpacked(packing, context.sample), replace(context, batch_dim=None)
        if not self.is_wanted(stage):
            kind, facts = describe(shown, context)
            self.summaries[stage.stage_id] = _Raw(kind, finished_meta(raw_meta(leaf)), {}, facts)
            return
        kind, arrays, facts = summarise(shown, context)
        if packing is not None:
            facts["caption"] = f"one of {int(packing.batch_sizes[0])} packed sequences, {shown.shape[0]} steps"
        num_nan, num_inf = (stats.num_nan, stats.num_inf) if stats is not None else num_not_finite(leaf)
        facts |= {"num_nan": num_nan, "num_inf": num_inf}
        self.summaries[stage.stage_id] = self._raw(kind, finished_meta(raw_meta(leaf)), arrays, facts)
        if stage.kind == "input":
            self.context = self._inputs.note(take_sample(leaf, context), kind, arrays, facts, self.context)

    def is_wanted(self, stage: Stage) -> bool:
        """Return whether ``stage`` gets a picture. Inputs always do: others are painted over them."""
        return self.wanted is None or stage.kind == "input" or stage.stage_id in self.wanted

    def take_attention(
        self, stage: Stage, weights: torch.Tensor, facts: Mapping[str, Any], heads: tuple[int, ...] = ()
    ) -> None:
        """Reduce the weights ``[H, L, S]`` of one attention call inside ``stage``; show only ``heads``, if any."""
        try:
            context = replace(self.context, role="attention", heads=heads)
            kind = SUMMARIES.get("attention")
            with torch.no_grad(), no_torch_function(), _quiet():
                arrays, found = kind.reduce(weights, context)
            raw = self._raw("attention", finished_meta(raw_meta(weights)), arrays, {**found, **facts})
            self.attention.setdefault(stage.stage_id, []).append(raw)
        except Exception as error:  # the card keeps its own picture
            self.skipped.setdefault(stage.stage_id, f"attention: {type(error).__name__}: {error}")

    def note_attention(
        self, stage: Stage, num_heads: int, facts: Mapping[str, Any], heads: tuple[int, ...] = ()
    ) -> None:
        """Note one attention call inside a ``stage`` that gets no picture."""
        length = tuple(facts["length"])
        meta = TensorMeta(shape=(num_heads, *length), dtype="float32")
        raw = _Raw("attention", meta, {}, {**describe_attention(num_heads, heads), **facts})
        self.attention.setdefault(stage.stage_id, []).append(raw)

    def _raw(self, kind: str, meta: TensorMeta, arrays: dict[str, torch.Tensor], facts: dict[str, Any]) -> _Raw:
        return _Raw(kind, meta, {name: array.to(self.capture_device) for name, array in arrays.items()}, facts)

    def _context_of(self, stage: Stage, leaf: torch.Tensor, module: nn.Module | None) -> SummaryContext:
        self._has_volumes |= bool(self._inputs.slices) or _is_volumetric(stage, module)
        context = replace(
            self.context,
            has_volumes=self._has_volumes,
            role=_ROLES[stage.kind],
            class_name=stage.class_name,
            batch_dim=batch_dim_of(leaf, self.batch, module),
            batch_size=self.batch.size,
            has_conv1d=_may_be_signal(leaf) and module is not None and _has_conv1d(module, leaf.shape[-2]),
        )
        if stage.kind == "input" and (own := self.image_norms.get(stage.name)) is not None:
            return replace(context, image_mean=tuple(own[0]), image_std=tuple(own[1]))
        if stage.kind != "output":
            return context
        origin = self.origins[stage.index] if stage.index < len(self.origins) else Origin()
        context = replace(context, name=stage.name, makers=origin.makers, ops=origin.ops)
        return self._inputs.context_of_output(leaf, context)

    def finish(self, failure: Failure | None, notes: tuple[str, ...] = ()) -> Capture:
        """Return everything as read-only numpy arrays."""
        _share_reference(self.summaries.values())
        summaries = {stage_id: _finished(stage_id, raw) for stage_id, raw in self.summaries.items()}
        if self.context.norm == "global":
            summaries = share_range(summaries)
        attention = {
            stage_id: tuple(_finished(stage_id, raw) for raw in raws) for stage_id, raws in self.attention.items()
        }
        return Capture(
            summaries=MappingProxyType(dict(sorted(summaries.items()))),
            stats=MappingProxyType(dict(sorted(self.stats.items()))),
            attention=MappingProxyType(dict(sorted(attention.items()))),
            skipped=MappingProxyType(dict(sorted(self.skipped.items()))),
            notes=notes,
            failure=failure,
        )


def _finished(stage_id: int, raw: _Raw) -> Summary:
    caption = str(raw.facts.pop("caption", ""))
    return Summary(
        stage_id=stage_id,
        kind=raw.kind,
        tensor=raw.tensor,
        arrays=MappingProxyType(read_only(raw.arrays)),
        facts=MappingProxyType(raw.facts),
        caption=caption,
    )


@contextmanager
def _quiet() -> Generator[None]:
    """Keep warnings about what a reduction does (beta layouts, casts) from the user, who did not ask for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _may_be_signal(leaf: torch.Tensor) -> bool:
    return 1 < leaf.dim() <= _MAX_SIGNAL_DIM and not leaf.is_nested


def _unpacked(packing: PackedSequence, sample: int) -> torch.Tensor:
    """Return the steps of one sequence of a packed batch."""
    padded, lengths = pad_packed_sequence(packing, batch_first=True)
    index = min(sample, padded.shape[0] - 1)
    return padded[index, : int(lengths[index])]


def _is_volumetric(stage: Stage, module: nn.Module | None) -> bool:
    """Return whether a stage works on volumes: an operation over three dimensions, or a module that holds one."""
    if module is None:
        return stage.name.endswith("3d")
    return any(type(part).__name__.endswith("3d") for part in module.modules())


def _has_conv1d(module: nn.Module, num_channels: int) -> bool:
    """Return whether a convolution over one dimension inside a module makes so many channels.

    A block over tokens ``[T, D]`` may mix neighbours by such a convolution and still hand on tokens.
    """
    return any(
        isinstance(part, nn.Conv1d | nn.ConvTranspose1d) and part.out_channels == num_channels
        for part in module.modules()
    )


def _share_reference(raws: Any) -> None:
    """Let the largest map be drawn at full size where the model has no image input, as in a generator."""
    maps = [
        raw for raw in raws if "map_hw" in raw.facts and raw.kind == "feature_maps" and "input_side" not in raw.facts
    ]
    side = max((sqrt(raw.facts["map_hw"][0] * raw.facts["map_hw"][1]) for raw in maps), default=0.0)
    for raw in maps:
        raw.facts["input_side"] = side


def share_range(summaries: Mapping[int, Summary]) -> dict[int, Summary]:
    """Return ``summaries`` with the values of all maps on one scale: zero to the largest, or ± the largest."""
    mapped = {key: found for key, found in summaries.items() if "is_signed" in found.facts}
    top = max(
        (abs(end) for found in mapped.values() for end in (*found.facts["low"], *found.facts["high"])), default=0.0
    )
    if top == 0:
        return dict(summaries)
    return {key: _rescaled(found, top) if key in mapped else found for key, found in summaries.items()}


def _rescaled(summary: Summary, top: float) -> Summary:
    low = -top if summary.facts["is_signed"] else min(0.0, *summary.facts["low"])
    steps = np.arange(MAX_INDEX + 1)
    arrays: dict[str, Array] = {}
    for name, indices in summary.arrays.items():
        planes = indices if indices.ndim == 3 else indices[None]
        shown = np.empty_like(planes)
        for plane, own_low, own_high, out in zip(
            planes, summary.facts["low"], summary.facts["high"], shown, strict=True
        ):
            values = own_low + steps / MAX_INDEX * (own_high - own_low)
            table = np.arange(256, dtype=np.uint8)
            table[: MAX_INDEX + 1] = np.rint(np.clip((values - low) / (top - low), 0, 1) * MAX_INDEX)
            out[...] = table[plane]
        arrays[name] = shown.reshape(indices.shape)
        arrays[name].flags.writeable = False
    count = len(summary.facts["low"])
    facts = {**summary.facts, "low": (low,) * count, "high": (top,) * count}
    return replace(summary, arrays=MappingProxyType(arrays), facts=MappingProxyType(facts))
