"""The words about a model that raised: where, on what, and why, in a few lines under the title."""

from __future__ import annotations

from neural_flow.records import Failure
from neural_flow.scene.look import Look

MAX_LINES = 4
_MAX_SHAPES = 4


def failure_lines(look: Look, room: float) -> list[str]:
    """Return the lines, none wider than ``room``; what the message says last is cut, should it be longer still."""
    failure = look.topology.failure
    if failure is None:
        return []
    size = look.theme.facts_size
    lines: list[str] = []
    for word in _failure_text(failure, _last_stage(look)).split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and look.width_of(longer, size) <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    if len(lines) > MAX_LINES:
        lines[MAX_LINES - 1 :] = [f"{lines[MAX_LINES - 1]} …"]
    return [look.fitted(line, size, "regular", room) for line in lines]


def _last_stage(look: Look) -> str:
    """Return the last stage that ran, where no card stands for the code that raised."""
    ran = [stage for stage in look.topology.stages if stage.kind not in ("input", "output")]
    return (ran[-1].path or ran[-1].name) if ran and look.failed is None else ""


def _failure_text(failure: Failure, last: str) -> str:
    shapes = ", ".join(f"{meta.dtype} [{', '.join(map(str, meta.shape))}]" for meta in failure.inputs[:_MAX_SHAPES])
    parts = [failure.module or "the root module", f"on {shapes}" if shapes else "", f"after {last}" if last else ""]
    place = " ".join(filter(None, parts))
    message = failure.message.strip().partition("\n")[0]
    return f"stopped in {place}: {failure.type}{f': {message}' if message else ''}"
