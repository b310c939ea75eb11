"""What a fold is called: its list where it is all of it, else its first and last member."""

from __future__ import annotations

from dataclasses import dataclass

from neural_flow.stages._elements import Element, FoldItem, items_of
from neural_flow.stages._scope import Item, Scope
from neural_flow.stages._spoken import spoken_class
from neural_flow.stages.labels import has_speaking_part, label_ladder, short_label

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
        shown = _main_items([item for element in fold.shown for item in items_of(element)])
        short = dict.fromkeys(short_label(item.path, _class_name(scope, item)) for item in shown)
        full = dict.fromkeys(item.path for item in shown)
        return FoldName(others=(_listing(list(short)), ", ".join(full)))
    items = [item for member in fold.members for element in member for item in items_of(element)]
    main = _main_items(items)
    ranges = tuple(_range(scope, main[0], main[-1], is_full=is_full) for is_full in (False, True))
    return FoldName(_whole_list(scope, items) or "", _class_name(scope, main[0]), ranges)


def _main_items(items: list[Item]) -> list[Item]:
    """Return the items that a name speaks of: a norm joins what it follows."""
    return [item for item in items if not item.is_light] or items


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
    items = _main_items([item for element in run for item in items_of(element)])
    ranges = (_range(scope, items[0], items[-1], is_full=is_full) for is_full in (False, True))
    return FoldName(others=tuple(f"{text} ({count})" for text in ranges))


def _range(scope: Scope, first: Item, last: Item, *, is_full: bool) -> str:
    start, end = (_name(scope, item, is_full) for item in (first, last))
    if start == end:
        return start
    prefix, number = _split_list(last.path)
    # features.2 … 4, not features.2 … features.4
    is_one_list = last.is_call and _split_list(first.path)[0] == prefix and number.isdigit()
    first_number = first.path.rpartition(".")[2]
    head, head_end = start.removesuffix(first_number), end.removesuffix(number)
    if is_one_list and start.endswith(first_number) and head == head_end and head[-1:] in (".", " "):
        return f"{start} … {number}"
    return f"{start} … {end}"


def _name(scope: Scope, item: Item, is_full: bool) -> str:
    if not item.is_call:
        return scope.net.signals.name(item.op_id)
    label = item.path if is_full and not item.path.isdigit() else short_label(item.path, _class_name(scope, item))
    number = item.path.rpartition(".")[2]
    is_numbered = is_full or has_speaking_part(item.path) or not number.isdigit()
    # behind a class the number says which
    return label if is_numbered and not item.path.isdigit() else f"{label} {number}"


def _class_name(scope: Scope, item: Item) -> str:
    return spoken_class(scope.net, item.call_id) if item.is_call else scope.net.signals.name(item.op_id)


def _split_list(path: str) -> tuple[str, str]:
    """Split a path into the prefix of its list and the numbers behind it."""
    parts = path.split(".")
    end = len(parts)
    while end and parts[end - 1].isdigit():
        end -= 1
    return ".".join(parts[:end]), ".".join(parts[end:])
