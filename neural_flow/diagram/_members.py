"""Which items belong to which member of a fold, and which item of the representative shows each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from neural_flow.diagram._sketch import Key, Sketch
from neural_flow.records import Fold


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Items of each member in call order. ``shown_by`` maps them to the representative's; an odd one is missing."""

    keys: tuple[list[Key], ...]
    representative: int
    number_of: dict[Key, int]
    shown_by: dict[Key, Key]


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
    joins = _joins(sketch, fold, stages, number_of)
    _match_joins(sketch, joins, drawn, number_of, shown_by, fold)
    keys = tuple(
        sorted((key for key, number in number_of.items() if number == place), key=lambda key: sketch.items[key].time)
        for place in range(len(stages))
    )
    return Members(keys=keys, representative=drawn, number_of=number_of, shown_by=shown_by)


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


def _joins(
    sketch: Sketch, fold: Fold, stages: Sequence[Sequence[Key]], number_of: dict[Key, int]
) -> dict[Key, tuple[int, bool]]:
    """Return (member, whether the module that ran it says so) of each join that may belong to a member.

    A join belongs where its code ran; glue of the parent belongs to the member of its newest source. Sums over
    parallel twins belong to none of them.
    """
    prefixes = [_common_path([sketch.items[key].path for key in keys]) for keys in stages]
    homes = {prefix: number for number, prefix in enumerate(prefixes) if prefix}
    if len(homes) < len(prefixes):
        homes = {}
    newest: dict[Key, int | None] = {}
    found: dict[Key, tuple[int, bool]] = {}
    for key in sketch.keys_by_time("join"):
        source = max(sketch.into[key], key=lambda source: sketch.items[source].time)
        number = newest[source] if source[0] == "join" else number_of.get(source)
        newest[key] = number
        home = _home(sketch.items[key].path, homes)
        if home is not None:
            found[key] = (home, True)
        elif number is not None and fold.kind != "parallel":
            found[key] = (number, False)
    return found


def _home(path: str, homes: dict[str, int]) -> int | None:
    while path:
        if path in homes:
            return homes[path]
        path = path.rpartition(".")[0]
    return None


def _match_joins(
    sketch: Sketch,
    joins: dict[Key, tuple[int, bool]],
    drawn: int,
    number_of: dict[Key, int],
    shown_by: dict[Key, Key],
    fold: Fold,
) -> None:
    """Give joins to members and match them with the representative's, by what they join of their own member.

    Glue of the parent counts only if most members have it: the sum after the last member is not part of a repeat.
    """
    inner: dict[Key, frozenset[Key]] = {}
    signatures: dict[Key, tuple[str, frozenset[Key], int]] = {}
    seen: Counter[tuple[int, str, frozenset[Key]]] = Counter()
    for key, (number, _) in joins.items():
        own: set[Key] = set()
        for source in sketch.into[key]:
            if number_of.get(source) == number and source in shown_by:
                own.add(shown_by[source])
            elif joins.get(source, (None,))[0] == number:
                own |= inner[source]
        inner[key] = frozenset(own)
        symbol = sketch.items[key].symbol
        signatures[key] = (symbol, inner[key], seen[number, symbol, inner[key]])
        seen[number, symbol, inner[key]] += 1
    commonness = Counter(signatures.values())
    needed = max(2, (len(fold.members) + 1) // 2) if fold.kind != "interval" else 1
    shown = {signatures[key]: key for key, (number, _) in joins.items() if number == drawn}
    for key, (number, is_sure) in joins.items():
        if not is_sure and commonness[signatures[key]] < needed:
            continue
        number_of[key] = number
        if signatures[key] in shown:
            shown_by[key] = shown[signatures[key]]
