"""What a fold is called: its list where it is all of it, else its first and last member."""

from __future__ import annotations

from dataclasses import dataclass

from neural_flow.stages._elements import Element, FoldItem, items_of
from neural_flow.stages._scope import Item, Scope
from neural_flow.stages.labels import label_ladder, short_label

MOST_NAMES = 3


@dataclass(slots=True, frozen=True)
class FoldName:
    """What a fold may be called: the path of the list that it is all of, if any; other labels, shortest first."""

    list_path: str = ""
    class_name: str = ""
    others: tuple[str, ...] = ("",)

    def ladder(self, num_known: int) -> tuple[str, ...]:
        """Return labels to try; the first ``num_known`` parts of the path are said by the title of a box."""
        listed = label_ladder(self.list_path, self.class_name, num_known) if self.list_path else []
        return tuple(dict.fromkeys([*listed, *self.others]))


def fold_name(scope: Scope, fold: FoldItem) -> FoldName:
    """Return what a fold may be called."""
    if fold.kind == "loop":
        shown = [item for element in fold.shown for item in items_of(element) if not item.is_light]
        shown = shown or [item for element in fold.shown for item in items_of(element)]
        short = dict.fromkeys(short_label(item.path, _class_name(scope, item)) for item in shown)
        full = dict.fromkeys(item.path for item in shown)
        return FoldName(others=(_listing(list(short)), ", ".join(full)))
    items = [item for member in fold.members for element in member for item in items_of(element)]
    ranges = tuple(_range(scope, items[0], items[-1], is_full=is_full) for is_full in (False, True))
    return FoldName(_whole_list(scope, items) or "", _class_name(scope, items[0]), ranges)


def _listing(names: list[str]) -> str:
    """Return names in a row, first and last where there are many: the cards inside say the rest."""
    return ", ".join(names) if len(names) <= MOST_NAMES else f"{names[0]} … {names[-1]}"


def _whole_list(scope: Scope, items: list[Item]) -> str | None:
    """Return the path of the list that some items are all of; None where there is no such list."""
    own_path = scope.net.calls[scope.call_id].path
    prefix = items[0].path
    while prefix.rpartition(".")[2].isdigit() and prefix != own_path:
        prefix = prefix.rpartition(".")[0]
        if all(_is_under(item.path, prefix) for item in items):
            num_under = sum(item.is_call and _is_under(item.path, prefix) for item in scope.items)
            return prefix if num_under == len(items) else None
    return None


def _is_under(path: str, prefix: str) -> bool:
    return path.startswith(f"{prefix}.") if prefix else bool(path)


def interval_name(scope: Scope, run: list[Element], count: int) -> FoldName:
    """Return what an interval may be called: its first and last member, and how many."""
    items = [item for element in run for item in items_of(element)]
    ranges = (_range(scope, items[0], items[-1], is_full=is_full) for is_full in (False, True))
    return FoldName(others=tuple(f"{text} ({count})" for text in ranges))


def _range(scope: Scope, first: Item, last: Item, *, is_full: bool) -> str:
    start, end = (_name(scope, item, is_full) for item in (first, last))
    if start == end:
        return start
    prefix, number = _split_list(last.path)
    # features.2 … 4, not features.2 … features.4
    is_one_list = last.is_call and _split_list(first.path)[0] == prefix and number.isdigit()
    if is_one_list and start.endswith("." + first.path.rpartition(".")[2]):
        return f"{start} … {number}"
    return f"{start} … {end}"


def _name(scope: Scope, item: Item, is_full: bool) -> str:
    if not item.is_call:
        return scope.net.signals.name(item.op_id)
    parts = item.path.split(".")
    if is_full or (len(parts) == 1 and parts[0].isdigit()):
        return item.path
    return short_label(item.path, _class_name(scope, item))


def _class_name(scope: Scope, item: Item) -> str:
    return scope.net.calls[item.call_id].class_name if item.is_call else scope.net.signals.name(item.op_id)


def _split_list(path: str) -> tuple[str, str]:
    """Split a path into the prefix of its list and the numbers behind it."""
    parts = path.split(".")
    end = len(parts)
    while end and parts[end - 1].isdigit():
        end -= 1
    return ".".join(parts[:end]), ".".join(parts[end:])
