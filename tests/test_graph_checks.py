"""A graph file that is not as it should be is refused; every one that is read can be drawn."""

from __future__ import annotations

import copy
import functools
import json
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from neural_flow.errors import ModelLoadError
from neural_flow.pipeline import Topology, draw, render


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 8)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)) for _ in range(3))
        self.head = nn.Linear(16, 2)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        x = first = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return {"logits": self.head(torch.cat([x, first * y], 1)), "hidden": x}


@functools.cache
def graph() -> dict[str, Any]:
    drawing = render(Net(), (torch.randn(3, 4), torch.randn(3, 8)), seed=0)
    return json.loads(drawing.to_bytes(".json"))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def at(data: Any, path: tuple[Any, ...]) -> Any:
    return functools.reduce(lambda found, key: found[key], path, data)


def read_and_draw(data: Any) -> bytes | None:
    try:
        topology = Topology.from_json(data)
    except ModelLoadError:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return draw(topology.record).to_bytes(".svg")


SCALARS = st.none() | st.booleans() | st.integers(-3, 30) | st.floats(allow_nan=False) | st.text(max_size=3)
IDS = st.sampled_from(["n0", "n1", "n4", "n99", "j0", "j1", "j99", "n", "", "n-1", "input", "output", "loop"])
ANYTHING = st.recursive(
    SCALARS | IDS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(IDS, inner, max_size=2), max_leaves=4
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_a_damaged_graph_is_refused_or_drawn(data: st.DataObject) -> None:
    damaged = copy.deepcopy(graph())
    for _ in range(data.draw(st.integers(1, 2))):
        *above, key = data.draw(st.sampled_from([*places(damaged)]))
        holder = at(damaged, tuple(above))
        others = st.sampled_from([at(damaged, path) for path in places(damaged) if path[-1] == key])
        if data.draw(st.booleans()):
            holder[key] = copy.deepcopy(data.draw(ANYTHING | others))
        else:
            del holder[key]
    read_and_draw(damaged)


def test_the_graph_itself_is_drawn() -> None:
    assert read_and_draw(graph())


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("edges", 0, "target"), "n99", "n99 has both ends"),
        (("edges", 1, "target"), "n0", "edges lead onward"),
        (("flows", 0, "source"), "j99", "has both ends"),
        (("joins", 0, "sources"), ["n77"], "has all of its sources"),
        (("nodes", 2, "kind"), "banana", r"stages\[2\].kind is 'banana'"),
        (("nodes", 2, "id"), "n3", "numbered in their order"),
        (("nodes", 2, "outputs", 0, "shape"), ["b", 8], r"outputs\[0\].shape\[0\] is 'b'"),
        (("nodes", 2, "outputs", 0, "shape"), [-1, 8], "no size is negative"),
        (("nodes", 2, "num_params"), True, "num_params is True"),
        (("folds", 0, "members"), [], "has all of its members"),
        (("folds", 0, "parent"), 0, "has all of its members"),
        (("residual"), ["n99"], "residual stages"),
        (("model", "name"), None, "model.name is None"),
        (("nodes", 0), 3, "TypeError|AttributeError"),
    ],
)
def test_what_is_wrong_is_said(path: Any, value: Any, said: str) -> None:
    damaged = copy.deepcopy(graph())
    *above, key = path if isinstance(path, tuple) else (path,)
    at(damaged, tuple(above))[key] = value
    with pytest.raises(ModelLoadError, match=said):
        Topology.from_json(damaged)
