from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("kind", "some"),
    [
        ("layouts", "layered"),
        ("exporters", ".svg"),
        ("themes", "dark"),
        ("samples", "unet"),
        ("topologies", "dataflow"),
    ],
)
def test_one_kind_one_name_a_line(run: Run, kind: str, some: str) -> None:
    result = run("list", kind)
    assert result.code == 0
    assert some in result.stdout.splitlines()
    assert result.stderr == ""


def test_all_kinds(run: Run) -> None:
    lines = run("list").stdout.splitlines()
    kinds = {line.partition(":")[0] for line in lines}
    assert {"summaries", "topologies", "layouts", "exporters", "themes", "samples"} <= kinds


def test_an_unknown_kind(run: Run) -> None:
    result = run("list", "layuots")
    assert result.code == 2
    assert "layouts" in result.lines["hint"]
