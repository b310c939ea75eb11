"""Tables in a terminal: columns that do not fit are left out, and a pipe gets all of them without colours."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

_GAP = 2
_NARROWEST = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column. ``rank`` tells which go first where there is no room: the highest; rank 0 always stays."""

    head: str
    cells: tuple[str, ...]
    rank: int = 0
    is_number: bool = True

    @property
    def width(self) -> int:
        """Number of terminal cells that the column takes."""
        return max(map(cell_len, (self.head, *self.cells)), default=0)


def print_table(columns: Sequence[Column], *, title: str = "", footer: Sequence[str] = ()) -> None:
    """Write a table to stdout.

    Args:
        columns: all of one length.
        title: a line above.
        footer: lines below.
    """
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=False)
    has_width = console.is_terminal or "COLUMNS" in os.environ
    room = max(console.width, _NARROWEST) if has_width else 1 << 30
    shown = fitting(columns, room)
    width = min(room, max(_total(shown), *map(cell_len, (title, *footer)), _NARROWEST))
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for column in shown:
        table.add_column(column.head, justify="right" if column.is_number else "left", overflow="fold")
    for cells in zip(*(column.cells for column in shown), strict=True):
        table.add_row(*cells)
    if title:
        console.print(title, style="bold")
    console.print(table)
    for line in footer:
        console.print(line)


def fitting(columns: Sequence[Column], room: int) -> list[Column]:
    """Return the columns that fit into ``room`` cells: without those of the highest ranks, as many as it takes."""
    shown = list(columns)
    while _total(shown) > room and (last := max((column.rank for column in shown), default=0)) > 0:
        shown = [column for column in shown if column.rank != last]
    return shown


def can_show(text: str) -> bool:
    """Return whether stdout's encoding has all letters of ``text``."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def tree_names(rows: Sequence[tuple[str, int, str]]) -> tuple[str, ...]:
    """Return the names of a tree with its branches drawn before them.

    Args:
        rows: (name, depth, class) of each node, parents before their children.
    """
    branch, corner, line = ("├─ ", "└─ ", "│  ") if can_show("├─└│") else ("|- ", "`- ", "|  ")
    names: list[str] = []
    for number, (name, depth, class_name) in enumerate(rows):
        prefix = ""
        for level in range(1, depth + 1):
            is_last = _is_last(rows, number, level)
            if level == depth:
                prefix += corner if is_last else branch
            else:
                prefix += "   " if is_last else line
        names.append(prefix + (f"{name} ({class_name})" if name else class_name))
    return tuple(names)


def _is_last(rows: Sequence[tuple[str, int, str]], number: int, level: int) -> bool:
    """Return whether no later row continues the branch at ``level``."""
    for _, depth, _ in rows[number + 1 :]:
        if depth < level:
            return True
        if depth == level:
            return False
    return True


def _total(columns: Sequence[Column]) -> int:
    return sum(column.width + _GAP for column in columns)
