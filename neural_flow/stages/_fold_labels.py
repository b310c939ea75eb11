"""What a fold is called: its list where it is all of it, else its first and last member."""

from __future__ import annotations

from neural_flow.stages._elements import Element, FoldItem, items_of
from neural_flow.stages._scope import Item, Scope
from neural_flow.stages.labels import label_ladder, short_label


def fold_ladder(scope: Scope, fold: FoldItem) -> list[str]:
    """Return labels for a fold, shortest first."""
    if fold.kind == "loop":
        shown = [item for element in fold.shown for item in items_of(element) if not item.is_light]
        shown = shown or [item for element in fold.shown for item in items_of(element)]
        short = dict.fromkeys(short_label(item.path, _class_name(scope, item)) for item in shown)
        full = dict.fromkeys(item.path for item in shown)
        return [", ".join(short), ", ".join(full)]
    items = [item for member in fold.members for element in member for item in items_of(element)]
    first, last = items[0], items[-1]
    ladder: list[str] = []
    prefix = _whole_list(scope, items)
    if prefix is not None:
        ladder += label_ladder(prefix, _class_name(scope, first))
    ladder += [_range(scope, first, last, is_full=False), _range(scope, first, last, is_full=True)]
    return list(dict.fromkeys(label for label in ladder if label))


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


def interval_ladder(scope: Scope, run: list[Element], count: int) -> list[str]:
    """Return labels for an interval, shortest first: first and last member, and how many."""
    items = [item for element in run for item in items_of(element)]
    return [f"{_range(scope, items[0], items[-1], is_full=is_full)} ({count})" for is_full in (False, True)]


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
