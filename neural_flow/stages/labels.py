"""Labels that speak: the shortest part of a path that says which stage is meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

MUTE_WORDS = frozenset({
    "model", "net", "network", "module", "modules", "submodule", "submodules", "layer", "layers", "block", "main",
})  # fmt: skip


@dataclass(slots=True, frozen=True)
class Named:
    """What a label is made of.

    ``path`` is that of a call; of an op that of the parameter which it reads, or without one (``has_param``) that of
    the module which ran it. Its first ``num_known`` parts are said elsewhere (by the title of a box). ``ladder``
    overrides what is derived from them. ``scope`` is the titled box it stands in: labels in different boxes may be
    equal.
    """

    path: str
    class_name: str
    call_index: int = 0
    is_op: bool = False
    has_param: bool = True
    num_known: int = 0
    ladder: tuple[str, ...] = ()
    scope: str = ""


def make_labels(named: Sequence[Named]) -> list[str]:
    """Return one label each, unique where the paths allow it.

    The last path component that speaks is shown; a number or a container word never stands alone. Where two would
    be equal, both grow by their parents; where the same name stands at each level of a nest, the level is said. A
    later call of a module that is shown twice says which call it is.
    """
    ladders = [entry.ladder or tuple(_ladder(entry)) for entry in named]
    owners = [id(entry) if entry.ladder else entry.path for entry in named]
    step = [0] * len(named)
    levels: dict[int, str] = {}
    for _ in range(max((len(ladder) for ladder in ladders), default=0)):
        clashes: dict[str, list[int]] = {}
        for k, ladder in enumerate(ladders):
            clashes.setdefault(levels.get(k, ladder[step[k]]), []).append(k)
        grown = False
        for label, members in clashes.items():
            if len({owners[k] for k in members}) < 2:
                continue
            nest = _nest_levels(label, [named[k].path for k in members]) if step[members[0]] == 0 else []
            if nest:
                levels.update(zip(members, nest, strict=True))
                grown = True
                continue
            rivals: dict[str, set[object]] = {}
            for k in members:
                rivals.setdefault(named[k].scope, set()).add(owners[k])
            for k in members:
                if len(rivals[named[k].scope]) > 1 and k not in levels and step[k] + 1 < len(ladders[k]):
                    step[k] += 1
                    grown = True
        if not grown:
            break
    labels = [levels.get(k, ladder[step[k]]) for k, ladder in enumerate(ladders)]
    return _number_equal_ops(_say_calls(labels, named), named)


def label_ladder(path: str, class_name: str, num_known: int = 0) -> list[str]:
    """Return the labels to try for a path, shortest first; its first ``num_known`` parts are said elsewhere."""
    return _ladder(Named(path, class_name, num_known=num_known))


def short_label(path: str, class_name: str) -> str:
    """Return the label of a path that stands alone."""
    return _ladder(Named(path, class_name))[0]


def has_speaking_part(path: str) -> bool:
    """Return whether some component of a path is more than a number or a container word."""
    return any(_speaks(part) for part in path.split("."))


def _speaks(part: str) -> bool:
    return not part.isdigit() and part.lower() not in MUTE_WORDS


def ordinal(number: int) -> str:
    """Return ``1st``, ``2nd``, ``3rd``, ``4th`` ..."""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _ladder(entry: Named) -> list[str]:
    if entry.is_op:
        owner = (entry.path.rpartition(".")[0] if entry.has_param else "") or entry.path
        names = _ladder(Named(owner, "", num_known=entry.num_known)) if owner else []
        words = [f"{entry.class_name} {name}" for name in (*names, entry.path) if name]
        # whose weights an op applies is said at once; which module ran it, where there are several of its kind
        is_owned = entry.has_param and "." in entry.path
        return list(dict.fromkeys(words if is_owned else [entry.class_name, *words]))
    if not entry.path:
        return [entry.class_name]
    parts = entry.path.split(".")
    speaking = [k for k, part in enumerate(parts) if _speaks(part)]
    known = [k for k in speaking if k >= entry.num_known]
    ladder: list[str] = []
    if known:
        last = known[-1]
        # behind the last word that speaks stand numbers and container words; only the numbers tell stages apart
        tail = [part for part in parts[last + 1 :] if part.isdigit()]
        end = last + 1 if not tail else len(parts)
        ladder.append(".".join([parts[last], *tail]))
        ladder.extend(".".join(parts[k:end]) for k in reversed(speaking))
    else:
        ladder.append(entry.class_name)
        if parts[-1].isdigit():
            ladder.append(f"{entry.class_name} {parts[-1]}".strip())
    ladder.append(entry.path)
    return list(dict.fromkeys(ladder))


def _nest_levels(label: str, paths: list[str]) -> list[str]:
    """Return ``label (level k)`` for modules of one name, each inside the parent of the last; empty where not so."""
    by_length = sorted(set(paths), key=len)
    if len(by_length) < 3:
        return []
    for outer, inner in pairwise(by_length):
        parent = outer.rpartition(".")[0]
        if parent and not inner.startswith(parent + "."):
            return []
        if inner.count(".") <= outer.count("."):
            return []
    return [f"{label} (level {by_length.index(path) + 1})" for path in paths]


def _say_calls(labels: list[str], named: Sequence[Named]) -> list[str]:
    calls_of_path: dict[str, set[int]] = {}
    for entry in named:
        if not entry.is_op and not entry.ladder:
            calls_of_path.setdefault(entry.path, set()).add(entry.call_index)
    for k, entry in enumerate(named):
        calls = calls_of_path.get(entry.path, set())
        if not entry.is_op and len(calls) > 1 and entry.call_index > min(calls):
            labels[k] = f"{labels[k]} ({ordinal(entry.call_index + 1)} call)"
    return labels


def _number_equal_ops(labels: list[str], named: Sequence[Named]) -> list[str]:
    places = [(entry.scope, label) for entry, label in zip(named, labels, strict=True)]
    totals, seen = Counter(places), Counter[tuple[str, str]]()
    for k, place in enumerate(places):
        if named[k].is_op and totals[place] > 1:
            seen[place] += 1
            if seen[place] > 1:
                labels[k] = f"{place[1]} ({ordinal(seen[place])})"
    return labels
