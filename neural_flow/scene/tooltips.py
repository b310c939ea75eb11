"""Words behind the figure: tooltips of stages, title and description of the whole."""

from __future__ import annotations

import re

from neural_flow.drawing import Arrow, DiagramNode, Frame, MarkGroup
from neural_flow.records import Stage, TensorMeta, TensorStats
from neural_flow.scene.connectors import RING_WORDS, arrow_title, group_of
from neural_flow.scene.faces import attention_of
from neural_flow.scene.look import Look, measured_text, name_of
from neural_flow.scene.words import count_text, family

_MAX_TITLE = 150
_MAX_NAMES = 24
_TOKEN_WORDS = frozenset(("id", "ids", "token", "tokens", "word", "words", "text", "chars", "letters"))
_COUNT_WORDS = frozenset(("length", "lengths", "position", "positions", "step", "steps", "time", "timestep", "type"))
_KIND_WORDS = {"input": "model input", "output": "model output", "probe": "probe", "op": "operation"}


def card_group(node: DiagramNode, look: Look) -> MarkGroup:
    """Return the group of a card, with its tooltip."""
    stage = look.stage_of(node)
    assert stage is not None
    data = [("kind", stage.kind), ("name", name_of(node, look))]
    data += [("module", stage.path)] if stage.path else []
    return MarkGroup(
        group_id=group_of(node), title=card_title(node, stage, look), css_class="nf-stage", data=tuple(data)
    )


def card_title(node: DiagramNode, stage: Stage, look: Look) -> str:
    """Return everything that is known about a card, one fact a line."""
    call = f" (call {stage.call_index + 1})" if stage.call_index else ""
    lines = [
        name_of(node, look),
        stage.class_name or _KIND_WORDS.get(stage.kind, ""),
        f"{stage.path}{call}" if stage.path and stage.path != name_of(node, look) else "",
        _metas("in", stage.inputs),
        _metas("out", stage.outputs),
        _params(stage),
    ]
    if node.count > 1:
        kind = {"loop": "turns of one module", "parallel": "side by side"}.get(node.fold_kind or "", "in a row")
        lines.append(f"×{node.count} {kind}")
    lines += ["shares its weights with another stage"] if node.is_shared else []
    lines += ["adds its input to its result"] if node.has_residual else []
    lines += _captured(stage, look)
    for found in look.measurements:
        lines += measured_text(found, node.stage_ids)
    if (change := look.change_of(node)) is not None:
        lines.append(f"{change} between the two models")
    if look.is_failed(node) and look.topology.failure is not None:
        lines.append(f"raised {look.topology.failure.type}: {look.topology.failure.message}")
    return "\n".join(line for line in lines if line)


def _captured(stage: Stage, look: Look) -> list[str]:
    lines: list[str] = []
    stats = look.capture.stats.get(stage.stage_id)
    if stats is not None:
        lines += _stats(stats)
    summary = look.summary_of(stage)
    if summary is not None:
        lines.append(summary.caption)
        # words in pictures may be cut there
        lines += summary.facts.get("details", ())
        dead = summary.facts.get("num_dead")
        lines += [f"{dead} of {summary.facts['num_channels']} channels are zero everywhere"] if dead else []
    reason = look.capture.skipped.get(stage.stage_id)
    lines += [f"no picture: {reason}"] if reason else []
    if (attention := attention_of(stage, look)) is not None:
        lines.append(attention.caption or "attention")
    return lines


def _stats(stats: TensorStats) -> list[str]:
    lines: list[str] = []
    if stats.mean is not None and stats.std is not None and stats.min is not None and stats.max is not None:
        lines.append(f"mean {stats.mean:.3g}, std {stats.std:.3g}, min {stats.min:.3g}, max {stats.max:.3g}")
    zero = f"{stats.zero_fraction * 100:.3g} % zero"
    bad = [f"{count} {word}" for count, word in ((stats.num_nan, "NaN"), (stats.num_inf, "infinite")) if count]
    return [*lines, ", ".join([zero, *bad])]


def _metas(word: str, metas: tuple[TensorMeta, ...]) -> str:
    shown = ", ".join(f"{meta.dtype} [{', '.join(map(str, meta.shape))}]" for meta in metas[:4])
    more = f", {len(metas) - 4} more" if len(metas) > 4 else ""
    return f"{word} {shown}{more}" if metas else ""


def _params(stage: Stage) -> str:
    if not stage.num_params:
        return ""
    shared = f", {count_text(stage.num_shared_params)} shared" if stage.num_shared_params else ""
    return f"{count_text(stage.num_params)} parameters{shared}"


def ring_group(node: DiagramNode) -> MarkGroup:
    """Return the group of a ring."""
    return MarkGroup(
        group_id=group_of(node), title=RING_WORDS.get(node.symbol, node.symbol or "join"), css_class="nf-ring"
    )


def arrow_group(arrow: Arrow, look: Look) -> MarkGroup:
    """Return the group of an arrow: what it joins, for tooltips and highlighting."""
    ends = tuple(
        (key, group_of(look.nodes[node_id])) for key, node_id in (("src", arrow.source), ("dst", arrow.target))
    )
    return MarkGroup(
        group_id=f"edge-{arrow.arrow_id}",
        title=arrow_title(arrow, look),
        css_class=f"nf-edge nf-{arrow.kind}",
        data=(*ends, ("kind", arrow.kind)),
    )


def frame_group(frame: Frame) -> MarkGroup:
    """Return the group of a frame."""
    title = " ".join(part for part in (frame.badge, frame.title) if part)
    return MarkGroup(group_id=f"frame-{frame.frame_id}", title=title, css_class=f"nf-frame nf-{frame.kind}")


def figure_facts(look: Look) -> list[str]:
    """Return the facts of the header."""
    cards = [node for node in look.diagram.nodes if (stage := look.stage_of(node)) and stage.kind in ("module", "op")]
    total = look.topology.num_candidates
    word = "stage" if len(cards) == 1 and total <= 1 else "stages"
    facts = [f"{len(cards)} of {total} {word}" if total > len(cards) else f"{len(cards)} {word}"]
    facts.append(f"{count_text(look.topology.model.num_params)} parameters")
    inputs = [stage for stage in look.topology.stages if stage.kind == "input" and stage.outputs]
    if len(inputs) == 1:
        facts.append(f"input {_plain_shape(inputs[0], look)}")
    elif 1 < len(inputs) <= 3:
        facts.append("inputs " + ", ".join(f"{stage.name} {_plain_shape(stage, look)}" for stage in inputs))
    elif inputs:
        facts.append(f"{len(inputs)} inputs")
    if any(note == "untrained" or note.startswith("untrained") for note in look.topology.notes + look.capture.notes):
        facts.append("untrained")
    return facts


def _plain_shape(stage: Stage, look: Look) -> str:
    shape = look.shape_of(stage)
    is_whole = stage.outputs[0].dtype.startswith(("int", "uint"))
    if len(shape) == 1 and shape[0] > 1 and is_whole and _are_tokens(stage, look):
        return f"{shape[0]} tokens"
    return "×".join(map(str, shape)) or "scalar"


def _are_tokens(stage: Stage, look: Look) -> bool:
    """Return whether whole numbers are looked up, or called so: lengths and positions are no tokens."""
    words = set(re.findall(r"[a-z]+", stage.name.lower()))
    if words & _COUNT_WORDS:
        return False
    readers = (look.stages[edge.target] for edge in look.topology.edges if edge.source == stage.stage_id)
    return bool(words & _TOKEN_WORDS) or any(family(reader) == "embedding" for reader in readers)


def figure_title(look: Look) -> str:
    """Return the title of the figure for people who cannot see it, at most 150 characters."""
    title = f"{look.options.title or look.topology.model.name}: {', '.join(figure_facts(look)[:2])}"
    return title if len(title) <= _MAX_TITLE else f"{title[: _MAX_TITLE - 1]}…"


def figure_description(look: Look) -> str:
    """Return the figure in words: the trunk, skips, other arrows, joins."""
    names = {node.node_id: _word(node, look) for node in look.diagram.nodes}
    trunk: dict[str, None] = {}
    nodes = look.nodes
    flow = sorted(look.diagram.arrows, key=lambda arrow: (nodes[arrow.source].order, nodes[arrow.target].order))
    for arrow in (arrow for arrow in flow if arrow.kind == "primary"):
        trunk |= {names[arrow.source]: None, names[arrow.target]: None}
    sentences = [f"Trunk: {_listed(list(trunk), ' → ')}."] if trunk else []
    for kind, word in (("skip", "Skips"), ("merge", "Merges"), ("branch", "Branches"), ("return", "Loops")):
        found = [
            f"{names[arrow.source]} to {_beyond(arrow.target, look, names)}"
            for arrow in look.diagram.arrows
            if arrow.kind == kind
        ]
        sentences += [f"{word}: {_listed(found, ', ')}."] if found else []
    folds = [f"{names[node.node_id]} ×{node.count}" for node in look.diagram.nodes if node.count > 1]
    folds += [f"{frame.title} {frame.badge}" for frame in look.diagram.frames if frame.badge]
    sentences += [f"Repeats: {_listed(folds, ', ')}."] if folds else []
    if look.topology.failure is not None:
        sentences.append(f"The model raised in {look.topology.failure.module or 'its root module'}.")
    return " ".join(sentences)


def _word(node: DiagramNode, look: Look) -> str:
    return RING_WORDS.get(node.symbol, node.symbol or "join") if node.role == "ring" else name_of(node, look)


def _beyond(node_id: int, look: Look, names: dict[int, str]) -> str:
    """Return the card that a ring leads to; the card itself for a card."""
    for _ in range(len(look.nodes)):
        if look.nodes[node_id].role == "card":
            break
        onward = [arrow.target for arrow in look.diagram.arrows if arrow.source == node_id]
        if not onward:
            break
        node_id = onward[0]
    return names[node_id]


def _listed(words: list[str], joint: str) -> str:
    more = f"{joint}{len(words) - _MAX_NAMES} more" if len(words) > _MAX_NAMES else ""
    return joint.join(words[:_MAX_NAMES]) + more
