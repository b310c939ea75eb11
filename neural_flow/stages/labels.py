"""Labels that speak: the shortest part of a path that says which stage is meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

MUTE_WORDS = frozenset({
    "model", "models", "net", "network", "module", "modules", "submodule", "submodules", "layer", "layers", "block",
    "blocks", "main", "seq", "stack", "list",
})  # fmt: skip


@dataclass(slots=True, frozen=True)
class Named:
    """What a label is made of: the path of a call (or of a parameter that an op reads), and its class or target."""

    path: str
    class_name: str
    call_index: int = 0
    is_op: bool = False


def make_labels(named: Sequence[Named]) -> list[str]:
    """Return one label each, unique where the paths allow it.

    The last path component that speaks is shown; a number or a container word never stands alone. Where two would
    be equal, both grow by their parents. A later call of a module that is shown twice says which call it is.
    """
    ladders = [_ladder(entry) for entry in named]
    calls_of_path: dict[str, set[int]] = {}
    for entry in named:
        if not entry.is_op:
            calls_of_path.setdefault(entry.path, set()).add(entry.call_index)
    step = [0] * len(named)
    for _ in range(max((len(ladder) for ladder in ladders), default=0)):
        owners: dict[str, set[str]] = {}
        for ladder, level, entry in zip(ladders, step, named, strict=True):
            owners.setdefault(ladder[level], set()).add(entry.path)
        crowded = [
            k for k, ladder in enumerate(ladders) if len(owners[ladder[step[k]]]) > 1 and step[k] + 1 < len(ladder)
        ]
        if not crowded:
            break
        for k in crowded:
            step[k] += 1
    labels = [ladder[level] for ladder, level in zip(ladders, step, strict=True)]
    for k, entry in enumerate(named):
        calls = calls_of_path.get(entry.path, set())
        if not entry.is_op and len(calls) > 1 and entry.call_index > min(calls):
            labels[k] = f"{labels[k]} ({ordinal(entry.call_index + 1)} call)"
    return _number_equal_ops(labels, named)


def short_label(path: str, class_name: str) -> str:
    """Return the label of a path that stands alone."""
    return _ladder(Named(path, class_name))[0]


def ordinal(number: int) -> str:
    """Return ``1st``, ``2nd``, ``3rd``, ``4th`` ..."""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _ladder(entry: Named) -> list[str]:
    """Return the labels to try, shortest first."""
    if entry.is_op:
        owner = entry.path.rpartition(".")[0] if entry.path else ""
        ladder = [entry.class_name]
        if entry.path:
            ladder.append(f"{entry.class_name} {_ladder(Named(owner or entry.path, entry.path))[0]}")
            ladder.append(f"{entry.class_name} {entry.path}")
        return ladder
    if not entry.path:
        return [entry.class_name]
    parts = entry.path.split(".")
    speaking = [k for k, part in enumerate(parts) if not part.isdigit() and part.lower() not in MUTE_WORDS]
    ladder: list[str] = []
    if speaking:
        last = speaking[-1]
        # behind the last word that speaks stand numbers and container words; only the numbers tell stages apart
        tail = [part for part in parts[last + 1 :] if part.isdigit()]
        ladder.append(".".join([parts[last], *tail]))
        ladder.extend(".".join(parts[k:]) for k in reversed(speaking))
    else:
        ladder.append(entry.class_name)
        if parts[-1].isdigit() and len(parts) == 1:
            ladder.append(f"{entry.class_name} {parts[-1]}")
    ladder.append(entry.path)
    return list(dict.fromkeys(ladder))


def _number_equal_ops(labels: list[str], named: Sequence[Named]) -> list[str]:
    totals, seen = Counter(labels), Counter[str]()
    for k, label in enumerate(labels):
        if named[k].is_op and totals[label] > 1:
            seen[label] += 1
            if seen[label] > 1:
                labels[k] = f"{label} ({ordinal(seen[label])})"
    return labels
