"""Everything that drawing reads, gathered once: the records, the theme, and what follows from both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import hypot

from neural_flow.drawing import Arrow, Diagram, DiagramNode
from neural_flow.records import Capture, Measurements, Stage, Summary, TensorMeta, Topology
from neural_flow.scene.options import Change, SceneOptions
from neural_flow.scene.words import batch_size, main_tensor, matches, resolution, sample_shape, shape_text, value_text
from neural_flow.summaries._base import DrawStyle, SummaryContext, style_of
from neural_flow.text_metrics import Weight, ellipsize, text_width
from neural_flow.theme import Theme


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Look:
    """The records and the theme of one drawing. Lengths are points."""

    topology: Topology
    diagram: Diagram
    capture: Capture
    theme: Theme
    options: SceneOptions
    style: DrawStyle
    context: SummaryContext
    batch: int | None
    input_side: int
    num_skips: int = 0
    failed: int | None = None
    """The stage in which the model raised."""
    measurements: tuple[Measurements, ...] = ()
    measured: Measurements | None = None
    """What cards are coloured by."""
    changes: Mapping[int, Change] = field(default_factory=dict[int, Change])
    arrow_changes: Mapping[int, Change] = field(default_factory=dict[int, Change])
    stages: Mapping[int, Stage] = field(default_factory=dict[int, Stage])
    nodes: Mapping[int, DiagramNode] = field(default_factory=dict[int, DiagramNode])

    def stage_of(self, node: DiagramNode) -> Stage | None:
        """Return the stage whose picture a card shows."""
        return None if node.stage_id is None else self.stages.get(node.stage_id)

    def summary_of(self, stage: Stage) -> Summary | None:
        """Return what was captured of a stage, None where it got no picture."""
        summary = self.capture.summaries.get(stage.stage_id)
        return summary if summary is not None and summary.facts.get("is_drawn", True) else None

    def tensor_of(self, stage: Stage) -> TensorMeta | None:
        """Return the tensor that a card speaks of: the captured one, else the main output."""
        summary = self.summary_of(stage)
        return summary.tensor if summary is not None else main_tensor(stage)

    def shape_of(self, stage: Stage) -> tuple[int, ...]:
        """Return the shape of one sample of a card's tensor."""
        summary = self.summary_of(stage)
        if summary is not None and (known := summary.facts.get("sample_shape")) is not None:
            return tuple(known)
        meta = self.tensor_of(stage)
        return () if meta is None else sample_shape(meta, self.batch)

    def value_of(self, stage_ids: tuple[int, ...]) -> float | None:
        """Return the value that a card is coloured by: over all of the stages that it stands for."""
        if all(self.stages[found].kind in ("input", "output") for found in stage_ids):
            return None
        if self.options.color_by == "params":
            return float(
                sum(self.stages[found].num_params - self.stages[found].num_shared_params for found in stage_ids)
            )
        return None if self.measured is None else total_of(self.measured, stage_ids)

    def is_highlighted(self, node: DiagramNode) -> bool:
        """Return whether one of the stages behind a card fits ``--highlight``."""
        globs = self.options.highlight
        return bool(globs) and any(
            matches(name, globs)
            for found in ids_of(node)
            for name in (self.stages[found].path or self.stages[found].name,)
        )

    def is_failed(self, node: DiagramNode) -> bool:
        """Return whether the model raised inside a stage of this card."""
        return self.failed is not None and self.failed in ids_of(node)

    def change_of(self, node: DiagramNode) -> Change | None:
        """Return what happened to a card's stages between two compared models."""
        return next((self.changes[found] for found in ids_of(node) if found in self.changes), None)

    def width_of(self, text: str, size: float, weight: Weight = "regular") -> float:
        """Return the width of ``text``."""
        return text_width(text, size, weight, self.options.font_file)

    def fitted(self, text: str, size: float, weight: Weight, max_width: float) -> str:
        """Return ``text`` with its middle left out where it is wider than ``max_width``."""
        return ellipsize(text, size, weight, max_width, self.options.font_file)


def ids_of(node: DiagramNode) -> tuple[int, ...]:
    """Return the ids of all stages that a card stands for."""
    own = () if node.stage_id is None or node.stage_id in node.stage_ids else (node.stage_id,)
    return (*own, *node.stage_ids)


def make_look(
    diagram: Diagram,
    topology: Topology,
    capture: Capture,
    theme: Theme,
    options: SceneOptions,
    measurements: tuple[Measurements, ...] = (),
) -> Look:
    """Gather what drawing needs."""
    batch = batch_size(topology)
    metas = [main_tensor(stage) for stage in topology.stages if stage.kind == "input"]
    if not any(meta is not None and resolution(sample_shape(meta, batch)) for meta in metas):
        metas = [main_tensor(stage) for stage in topology.stages]
    sides = [resolution(sample_shape(meta, batch)) for meta in metas if meta is not None]
    input_side = max(sides, default=0)
    return Look(
        topology=topology,
        diagram=diagram,
        capture=capture,
        theme=theme,
        options=options,
        style=style_of(theme, options.cmap),
        context=SummaryContext(input_hw=(input_side, input_side) if input_side else None, norm=options.norm),
        batch=batch,
        input_side=input_side,
        num_skips=sum(arrow.kind == "skip" for arrow in diagram.arrows),
        failed=failed_stage(topology),
        measurements=measurements,
        changes=dict(options.changes),
        arrow_changes=_arrow_changes(diagram, options),
        measured=next((found for found in measurements if found.name == options.color_by), None),
        stages={stage.stage_id: stage for stage in topology.stages},
        nodes={node.node_id: node for node in diagram.nodes},
    )


def _arrow_changes(diagram: Diagram, options: SceneOptions) -> dict[int, Change]:
    """Return what happened to arrows, by arrow id. An arrow into a ring stands for the connections that it carries on.

    A connection that came must leave its source by an arrow of its own; where the ring has other readers, the arrow
    is shared and keeps its kind's colour.
    """
    wanted: dict[tuple[int, int], Change] = {
        (source, target): change for source, target, change in options.edge_changes
    }
    if not wanted:
        return {}
    nodes = {node.node_id: node for node in diagram.nodes}
    outgoing: dict[int, list[Arrow]] = {}
    for arrow in diagram.arrows:
        outgoing.setdefault(arrow.source, []).append(arrow)
    found: dict[int, Change] = {}
    for arrow in diagram.arrows:
        ends = _stages_reached(arrow.target, nodes, outgoing)
        pairs = [(source, target) for source in ids_of(nodes[arrow.source]) for target in ends]
        changes: set[Change | None] = {wanted.get(pair) for pair in pairs}
        if nodes[arrow.target].role != "ring":
            changes.discard(None)
        if len(changes) == 1 and (change := changes.pop()) is not None:
            found[arrow.arrow_id] = change
    return found


def _stages_reached(node_id: int, nodes: Mapping[int, DiagramNode], outgoing: Mapping[int, list[Arrow]]) -> list[int]:
    """Return the stages at the end of an arrow, through rings."""
    waiting, seen, found = [node_id], {node_id}, list[int]()
    while waiting:
        node = nodes[waiting.pop()]
        if node.role != "ring":
            found += ids_of(node)
            continue
        for arrow in outgoing.get(node.node_id, ()):
            if arrow.target not in seen:
                seen.add(arrow.target)
                waiting.append(arrow.target)
    return found


def failed_stage(topology: Topology) -> int | None:
    """Return the id of the stage in which the model raised: the innermost one that holds the failing module."""
    failure = topology.failure
    if failure is None:
        return None
    around = [
        stage
        for stage in topology.stages
        if stage.kind == "module" and (stage.path == failure.module or failure.module.startswith(f"{stage.path}."))
    ]
    exact = [stage for stage in around if stage.path == failure.module and stage.call_index == failure.call]
    found = exact or around
    return max(found, key=lambda stage: (len(stage.path), stage.stage_id)).stage_id if found else None


def label_lines(node: DiagramNode, look: Look) -> tuple[str, ...]:
    """Return the lines of a card's label: name, shape, and statistics where they are asked for."""
    stage = look.stage_of(node)
    if stage is None:
        return ()
    lines = [name_of(node, look)]
    facts: list[str] = []
    if look.options.has_shapes and (shape := look.shape_of(stage)):
        facts.append(shape_text(shape))
    if stage.kind == "probe":
        facts.append("probe")
    if node.is_shared:
        facts.append("shared weights")
    if node.is_dense:
        facts.append("dense")
    if facts:
        lines.append(" · ".join(facts))
    if look.options.color_by and (value := look.value_of(node.stage_ids)) is not None:
        lines += _cost_text(value, look)
    for found in look.measurements:
        if found.name in look.options.numbers and found is not look.measured:
            lines += measured_text(found, node.stage_ids)
    stats = look.capture.stats.get(stage.stage_id)
    if look.options.has_stats and stats is not None and stats.mean is not None and stats.std is not None:
        lines.append(f"{stats.mean:.2g} ± {stats.std:.2g}".replace("-", "−"))
    return tuple(lines)


def total_of(measured: Measurements, stage_ids: tuple[int, ...]) -> float | None:
    """Return what was measured of some stages together: amounts add up, norms as sides of a right angle do."""
    values = [measured.by_stage[found] for found in stage_ids if found in measured.by_stage]
    if not values:
        return None
    return hypot(*values) if measured.unit == "" else sum(values)


def measured_text(found: Measurements, stage_ids: tuple[int, ...]) -> list[str]:
    """Return what was measured of some stages as a line of text, or no line where it says nothing."""
    value = total_of(found, stage_ids)
    if value is None or not is_worth_a_word(value, found.unit):
        return []
    return [f"{found.name} {value_text(value, found.unit)}"]


def _cost_text(value: float, look: Look) -> list[str]:
    """Return the value that a card is coloured by as a line of text; a number without unit says what it counts."""
    unit = unit_of(look)
    if not is_worth_a_word(value, unit):
        return []
    text = value_text(value, unit)
    if unit == "parameters":
        text = f"{text} parameters"
    elif not unit and look.measured is not None:
        text = f"{look.measured.name} {text}"
    return [text]


def is_worth_a_word(value: float, unit: str) -> bool:
    """Return whether a number says something: no FLOP and no parameter are what most norms and activations have.

    Of many operators torch counts nothing although they compute.
    """
    return value != 0 or unit not in ("FLOP", "parameters")


def unit_of(look: Look) -> str:
    """Return the unit of what cards are coloured by."""
    if look.options.color_by == "params":
        return "parameters"
    return look.measured.unit if look.measured is not None else ""


def name_of(node: DiagramNode, look: Look) -> str:
    """Return the name on a card: the user's word for it, else the one that the diagram chose."""
    stage = look.stage_of(node)
    if stage is not None:
        for name, words in look.options.labels:
            if name in (stage.path, stage.name) and name:
                return words
    return node.label or (stage.label if stage is not None else node.symbol)
