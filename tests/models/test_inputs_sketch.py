from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from neural_flow.models.inputs_sketch import needs_function, sketch_inputs


class Multimodal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.words, self.head = nn.Conv2d(3, 8, 3), nn.Embedding(50, 8), nn.Linear(16, 2)

    def forward(self, batch: Any) -> dict[str, Any]:
        image, words = self.conv(batch["image"]).mean((2, 3)), self.words(batch["token_ids"]).mean(1)
        return {"y": self.head(torch.cat([image, words], 1)), "id": batch.get("id")}


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, images: list[Tensor]) -> list[Tensor]:
        assert isinstance(images, list)
        assert all(image.ndim == 3 for image in images)
        return [self.conv(image[None]) for image in images]


class Repeated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 5)

    def forward(self, x: Tensor, *, steps: int, names: list[str]) -> Tensor:
        for _ in range(steps):
            x = self.linear(x)
        return x


def _call(code: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    namespace: dict[str, Any] = {}
    with torch.random.fork_rng():
        exec(code, namespace)
        return namespace["make_inputs"]()


@pytest.mark.parametrize("kind", [Multimodal, Pictures, Repeated])
def test_forward_runs_with_what_the_sketch_returns(kind: type[nn.Module]) -> None:
    with torch.random.fork_rng():
        model = kind()
    state = torch.get_rng_state()
    assert needs_function(model) == (kind is not Multimodal)
    sketch = sketch_inputs(model)
    assert sketch.error is None
    assert torch.equal(torch.get_rng_state(), state)
    args, kwargs = _call(sketch.code)
    with torch.no_grad():
        model(*args, **kwargs)


def test_the_keys_of_a_dict_are_those_that_forward_asks_for() -> None:
    with torch.random.fork_rng():
        args, kwargs = _call(sketch_inputs(Multimodal()).code)
    assert list(args[0]) == ["image", "token_ids"]
    assert not args[0]["token_ids"].is_floating_point()
    assert kwargs == {}


class TakesAGraph(nn.Module):
    def forward(self, graph: Any) -> Tensor:
        return graph.nodes


def test_where_nothing_runs_the_lines_are_there_all_the_same() -> None:
    sketch = sketch_inputs(TakesAGraph())
    assert isinstance(sketch.error, AttributeError)
    assert isinstance(_call(sketch.code)[0][0], Tensor)
