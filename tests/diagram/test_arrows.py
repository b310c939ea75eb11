from __future__ import annotations

import pytest

from neural_flow.diagram._arrows import arrow_text
from neural_flow.records import EdgeMark, Flow, TensorMeta


def flow(before: tuple[int, ...], after: tuple[int, ...], *through: str, mark: str = "") -> Flow:
    return Flow(
        source=("stage", 0),
        target=("stage", 1),
        tensors=(TensorMeta(shape=before, dtype="float32"),),
        arrived=(TensorMeta(shape=after, dtype="float32"),),
        through=through,
        marks=(EdgeMark(call_id=1, path="up", text=mark),) if mark else (),
    )


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (flow((1, 4, 64, 64), (1, 4, 32, 32), "max_pool2d"), "pool ÷2"),
        (flow((1, 4, 7, 7), (1, 4, 3, 3), "avg_pool2d"), "pool ÷2"),
        (flow((1, 4, 7, 7), (1, 4, 4, 4), "max_pool2d"), "pool ÷2"),
        (flow((1, 4, 64, 32), (1, 4, 32, 32), "max_pool2d"), "pool"),
        (flow((1, 4, 10, 10), (1, 4, 4, 4), "adaptive_avg_pool2d"), "pool"),
        (flow((4, 64, 64), (4, 32, 32), "max_pool2d"), "pool ÷2"),
        (flow((1, 4, 64), (1, 4, 16), "max_pool1d"), "pool ÷4"),
        (flow((1, 4, 8, 8, 8), (1, 4, 4, 4, 4), "max_pool3d"), "pool ÷2"),
        (flow((1, 4, 7, 7), (1, 4, 1, 1), "adaptive_avg_pool2d"), "global pool"),
        (flow((1, 4, 7, 7), (1, 4), "adaptive_avg_pool2d", "flatten"), "global pool"),
        (flow((1, 4, 8, 8), (1, 64), "max_pool2d", "flatten"), "pool"),
        (flow((1, 4, 8, 8), (1, 4, 16, 16), "interpolate"), "up ×2"),
        (flow((1, 4, 8, 8), (1, 4, 4, 4), "interpolate"), "down ÷2"),
        (flow((1, 4, 8, 8), (1, 4, 8, 8), "interpolate"), ""),
        (flow((1, 4, 8, 8), (1, 4, 13, 13), "interpolate"), "up"),
        (flow((1, 4, 8, 8), (1, 4, 8, 16), "interpolate"), "up"),
        (flow((1, 16, 8, 8), (1, 4, 16, 16), "pixel_shuffle"), "up ×2"),
        (flow((1, 4, 8, 8), (1, 4, 16, 16), "conv_transpose2d"), "up-conv ×2"),
        (flow((1, 4, 8, 8), (1, 256), "flatten"), ""),
        (flow((1, 4, 8, 8), (1, 4, 16, 16), mark="up-conv"), "up-conv ×2"),
        (flow((1, 4, 8, 8), (1, 4, 16, 16), mark="×2 up-conv"), "×2 up-conv"),
        (flow((1, 4, 8, 8), (1, 4, 11, 11), mark="up-conv"), "up-conv"),
        (Flow(source=("stage", 0), target=("stage", 1), through=("max_pool2d",)), "pool"),
        (Flow(source=("stage", 0), target=("stage", 1), through=("interpolate",)), ""),
    ],
)
def test_the_text_says_what_the_sizes_say(line: Flow, text: str):
    assert arrow_text(line) == text
