"""Where NaN and Inf first appear."""

from __future__ import annotations

from neural_flow.records import Capture, Stage, TensorStats, Topology


def first_not_finite(topology: Topology, capture: Capture) -> tuple[Stage, TensorStats] | None:
    """Return the first stage, in execution order, whose output holds NaN or Inf, with its statistics; None if none."""
    for stage in topology.stages:
        stats = capture.stats.get(stage.stage_id)
        if stats is not None and (stats.num_nan or stats.num_inf):
            return stage, stats
    return None


def not_finite_text(topology: Topology, capture: Capture) -> str:
    """Return a sentence that names the stage where NaN or Inf first appear; empty where all values are finite."""
    found = first_not_finite(topology, capture)
    if found is None:
        return ""
    stage, stats = found
    num_stages = sum(bool(other.num_nan or other.num_inf) for other in capture.stats.values())
    counts = [f"{count:,} {word}" for count, word in ((stats.num_nan, "NaN"), (stats.num_inf, "Inf")) if count]
    more = f", and in {num_stages - 1} more" if num_stages > 1 else ""
    if stage.kind == "op":
        where = f"{stage.name} in {stage.path or 'the root module'}"
    else:
        where = f"{stage.name} ({stage.class_name})" if stage.class_name else stage.name
    return f"{' and '.join(counts)} first appear in {where}{more}"
