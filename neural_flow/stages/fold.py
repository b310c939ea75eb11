"""Which siblings repeat: loops, parallel twins and serial repeats become one item with one representative."""

from __future__ import annotations

from neural_flow.stages._elements import Element, FoldItem, commonest, first_index, items_of
from neural_flow.stages._net import Net
from neural_flow.stages._scope import Item, Scope
from neural_flow.stages._serial import SerialFolder

MIN_LOOP_TURNS = 3
MANY_LOOP_TURNS = 4
MIN_TWINS = 3
NO_SOURCE = -(10**9)


def fold_scope(scope: Scope) -> list[Element]:
    """Fold the children of one call: loops, then parallel twins, then serial repeats of what is left."""
    elements: list[Element] = [*scope.items]
    elements = _replace(elements, _loops(scope))
    elements = _replace(elements, _twin_folds(scope, elements))
    return SerialFolder(scope).fold(elements)


def twin_groups(scope: Scope, elements: list[Element]) -> list[list[Item]]:
    """Return groups of two or more parallel twins: same key and family, same sources and sinks, and equal in size."""
    candidates: dict[tuple[int, str, int], list[Item]] = {}
    for element in elements:
        if isinstance(element, Item) and not element.is_light:
            # equal source sets have an equal newest source: cheap to ask first; look-ups read ids and have none
            newest = max(element.sources, default=NO_SOURCE)
            candidates.setdefault((element.key, element.family, newest), []).append(element)
    candidates = {place: group for place, group in candidates.items() if len(group) > 1}
    if not candidates:
        return []
    sources, sinks = scope.full_sources(), scope.full_sinks()
    found: list[list[Item]] = []
    for group in candidates.values():
        same: dict[tuple[int, int], list[Item]] = {}
        for item in group:
            same.setdefault((sources[item.index], sinks[item.index]), []).append(item)
        for twins in same.values():
            is_equal = len({t.shapes for t in twins}) == 1 or len({t.num_params for t in twins}) == 1
            if len(twins) > 1 and is_equal:
                found.append(twins)
    return found


def _replace(elements: list[Element], folds: list[FoldItem]) -> list[Element]:
    taken = {item.index for fold in folds for item in items_of(fold)}
    kept: list[Element] = [e for e in elements if first_index(e) not in taken]
    return sorted([*kept, *folds], key=first_index)


def _twin_folds(scope: Scope, elements: list[Element]) -> list[FoldItem]:
    folds: list[FoldItem] = []
    for twins in twin_groups(scope, elements):
        if len(twins) >= MIN_TWINS:
            members: list[list[Element]] = [[twin] for twin in twins]
            folds.append(FoldItem("parallel", members, commonest(scope.net, members)))
    return folds


def _loops(scope: Scope) -> list[FoldItem]:
    by_path: dict[str, list[Item]] = {}
    for item in scope.items:
        if item.is_call:
            by_path.setdefault(item.path, []).append(item)
    towers: set[int] = set()
    loops: list[list[Item]] = []
    for turns in by_path.values():
        if len(turns) < MIN_LOOP_TURNS:
            continue
        if _is_loop(scope, turns, towers):
            loops.append(turns)
        else:
            towers.update(turn.index for turn in turns)
    return [_loop_fold(scope.net, group) for group in _interleaved(loops)]


def _is_loop(scope: Scope, turns: list[Item], towers: set[int]) -> bool:
    """Tell a loop (each turn needs the last, or one thing done to many values) from the towers of a Siamese net."""
    if len(turns) > MANY_LOOP_TURNS or _depends(scope, turns[-1].index, turns[0].index):
        return True
    if turns[0].sources and all(turn.sources == turns[0].sources for turn in turns):
        return True
    return all(any(source >= 0 and source not in towers for source in turn.sources) for turn in turns)


def _depends(scope: Scope, late: int, early: int) -> bool:
    # what meets an item's output at a join is in its rings: its readers depend on that, not the item itself
    pending = [source for source in scope.items[late].sources if source >= early]
    seen = set(pending)
    while pending:
        number = pending.pop()
        if number == early:
            return True
        item = scope.items[number]
        for source in (*item.sources, *item.rings):
            if source >= early and source not in seen:
                seen.add(source)
                pending.append(source)
    return False


def _interleaved(loops: list[list[Item]]) -> list[list[list[Item]]]:
    """Group loops of equal count whose calls interleave turn by turn."""
    groups: list[list[list[Item]]] = []
    for turns in sorted(loops, key=lambda t: t[0].index):
        for group in groups:
            together = [*group, turns]
            if len(group[0]) == len(turns) and all(
                max(t[k].index for t in together) < min(t[k + 1].index for t in together) for k in range(len(turns) - 1)
            ):
                group.append(turns)
                break
        else:
            groups.append([turns])
    return groups


def _loop_fold(net: Net, group: list[list[Item]]) -> FoldItem:
    members: list[list[Element]] = []
    for k in range(len(group[0])):
        turn = sorted((turns[k] for turns in group), key=lambda item: item.index)
        members.append([*turn])
    return FoldItem("loop", members, commonest(net, members))
