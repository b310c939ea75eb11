from __future__ import annotations

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neural_flow.cli.tables import Column, fitting, print_table, tree_names

COLUMNS = (
    Column(head="name", cells=("a", "bb"), is_number=False),
    Column(head="wide", cells=("x" * 30, ""), rank=2),
    Column(head="less", cells=("y" * 10, "1"), rank=1),
)


@given(st.integers(1, 80))
def test_columns_go_by_rank_and_the_first_stays(room: int) -> None:
    shown = fitting(COLUMNS, room)
    assert shown[0] is COLUMNS[0]
    assert [column.rank for column in shown] == [0, 2, 1][: len(shown)] or [column.rank for column in shown] == [0, 1]
    if len(shown) < 3:
        assert sum(column.width + 2 for column in COLUMNS) > room


def test_a_pipe_gets_all_columns_without_wrapping_or_colours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table(COLUMNS, title="all", footer=["z" * 200])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "all"
    assert lines[1].split() == ["name", "wide", "less"]
    assert lines[2].split() == ["a", "x" * 30, "y" * 10]
    assert lines[4] == "z" * 200
    assert len(lines) == 5


def test_a_narrow_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    print_table(COLUMNS)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "less"]
    assert all(len(line) <= 24 for line in lines)


def test_names_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([Column(head="name", cells=("[red]x[/red]", ":smile:"), is_number=False)])
    assert "[red]x[/red]" in (shown := capsys.readouterr().out)
    assert ":smile:" in shown


def test_a_tree() -> None:
    rows = [("", 0, "Net"), ("a", 1, "A"), ("b", 2, "B"), ("c", 2, "C"), ("d", 1, "D"), ("e", 2, "E")]
    assert tree_names(rows) == ("Net", "├─ a (A)", "│  ├─ b (B)", "│  └─ c (C)", "└─ d (D)", "   └─ e (E)")


def test_a_narrow_encoding_has_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert tree_names([("", 0, "Net"), ("a", 1, "A")]) == ("Net", "`- a (A)")
