"""Which items belong to which member of a fold, and which item of the representative shows each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from neural_flow.diagram._member_joins import Numbering, place_joins
from neural_flow.diagram._missing_joins import adopt_missing, release_outer
from neural_flow.diagram._sketch import Key, Sketch
from neural_flow.records import Fold


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Items of each member in call order. ``shown_by`` maps them to the representative's; an odd one is missing.

    ``holders`` are the representative's cards that stand for odd ones: what shows the card before it in its member.
    """

    keys: tuple[list[Key], ...]
    representative: int
    number_of: dict[Key, int]
    shown_by: dict[Key, Key]
    holders: dict[Key, Key]


def find_members(sketch: Sketch, fold: Fold) -> Members | None:
    """Return the members of a fold among the items still drawn, None where its representative is not drawn."""
    stages: list[list[Key]] = [
        [("stage", stage_id) for stage_id in member if ("stage", stage_id) in sketch.items] for member in fold.members
    ]
    if not 0 <= fold.representative < len(stages) or not stages[fold.representative]:
        return None
    drawn = fold.representative
    number_of: dict[Key, int] = {key: number for number, keys in enumerate(stages) for key in keys}
    shown_by: dict[Key, Key] = {}
    for keys in stages:
        shown_by.update(_match(sketch, keys, stages[drawn]))
    numbering = Numbering(stages, number_of, shown_by, _homes(sketch, stages))
    places = place_joins(sketch, fold, numbering)
    is_closed = len(stages[drawn]) == 1 or fold.is_dense  # drawn as one card, which would hide totals
    release_outer(sketch, drawn, numbering, places, is_closed=is_closed)
    adopt_missing(sketch, drawn, numbering, places)
    keys = tuple(
        sorted((key for key, number in number_of.items() if number == place), key=lambda key: sketch.items[key].time)
        for place in range(len(stages))
    )
    holders: dict[Key, Key] = {}
    for cards in stages:
        holder = stages[drawn][0]
        for key in cards:
            holder = shown_by.get(key, holder)
            if key not in shown_by:
                holders[key] = holder
    return Members(keys=keys, representative=drawn, number_of=number_of, shown_by=shown_by, holders=holders)


def _match(sketch: Sketch, keys: Sequence[Key], drawn: Sequence[Key]) -> dict[Key, Key]:
    """Match two members: by position where they are alike, else by path within the member, of one class."""
    kinds, drawn_kinds = _classes(sketch, keys), _classes(sketch, drawn)
    if kinds == drawn_kinds:
        return dict(zip(keys, drawn, strict=True))
    places: dict[tuple[str, str], list[Key]] = {}
    for name, kind, key in zip(_inner_paths(sketch, drawn), drawn_kinds, drawn, strict=True):
        places.setdefault((name, kind), []).append(key)
    matched: dict[Key, Key] = {}
    for name, kind, key in zip(_inner_paths(sketch, keys), kinds, keys, strict=True):
        if found := places.get((name, kind)):
            matched[key] = found.pop(0)
    return matched or dict(zip(keys, drawn, strict=False))


def _classes(sketch: Sketch, keys: Sequence[Key]) -> list[str]:
    stages = [sketch.items[key].stage for key in keys]
    return [stage.class_name or stage.name if stage is not None else "" for stage in stages]


def _inner_paths(sketch: Sketch, keys: Sequence[Key]) -> list[str]:
    prefix = _common_path([sketch.items[key].path for key in keys])
    return [sketch.items[key].path[len(prefix) :].lstrip(".") for key in keys]


def _common_path(paths: Sequence[str]) -> str:
    """Return the module path that holds all ``paths``."""
    if not paths:
        return ""
    low, high = min(paths).split("."), max(paths).split(".")
    count = 0
    while count < min(len(low), len(high)) and low[count] == high[count]:
        count += 1
    return ".".join(low[:count])


def _homes(sketch: Sketch, stages: Sequence[Sequence[Key]]) -> dict[str, int]:
    """Return the modules whose code belongs to one member: the outermost around each, or several of a box of blocks.

    None where some member has no module of its own.
    """
    homes: dict[str, int] = {}
    for number, keys in enumerate(stages):
        path = _common_path([sketch.items[key].path for key in keys])
        while (above := path.rpartition(".")[0]) and sketch.num_under[above] == len(keys):
            path = above
        if path:
            homes[path] = number
    if len(homes) < len(stages):  # members of several blocks lie in one list
        homes = {path: number for number, keys in enumerate(stages) for path in _own_paths(sketch, keys)}
    return homes if len(set(homes.values())) == len(stages) else {}


def _own_paths(sketch: Sketch, keys: Sequence[Key]) -> list[str]:
    """Return the outermost modules that hold cards of one member only."""
    num_own: Counter[str] = Counter()
    for key in keys:
        path = sketch.items[key].path
        while path:
            num_own[path] += 1
            path = path.rpartition(".")[0]
    own = {path for path, count in num_own.items() if sketch.num_under[path] == count}
    return [path for path in own if path.rpartition(".")[0] not in own]
