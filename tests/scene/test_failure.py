from __future__ import annotations

from dataclasses import replace

import pytest

from neural_flow.drawing import Text
from neural_flow.records import Failure, TensorMeta
from neural_flow.scene.failure import MAX_LINES
from neural_flow.text_metrics import text_width
from neural_flow.theme import get_theme

THEME = get_theme("light")
LONG = "Sizes of tensors must match except in dimension 1. Expected size 32 but got size 16 for tensor number 1."


def red_lines(unet, message: str) -> list[Text]:
    failure = Failure(
        module="",
        call=0,
        call_id=None,
        type="RuntimeError",
        message=message,
        inputs=(TensorMeta(shape=(1, 3, 8), dtype="float32"),),
    )
    scene = replace(unet, topology=replace(unet.topology, failure=failure)).scene()
    return [mark for mark in scene.marks if isinstance(mark, Text) and mark.color == THEME.failure and not mark.group]


@pytest.mark.parametrize("message", ["", "sizes differ", LONG, "word " * 500, "x" * 900, "first\nsecond"])
def test_the_message_is_whole_as_far_as_there_is_room(unet, message):
    lines = red_lines(unet, message)
    text = " ".join(line.text for line in lines)
    assert text.startswith("stopped in the root module on float32 [1, 3, 8] after mask: RuntimeError")
    assert 0 < len(lines) <= MAX_LINES
    assert len({line.y for line in lines}) == len(lines)
    if message == LONG:
        assert text.endswith(LONG)
    if not message:
        assert not text.endswith(":")
    assert "second" not in text


def test_lines_stay_on_the_page_and_above_the_figure(unet):
    failure = Failure(module="", call=0, call_id=None, type="RuntimeError", message=LONG * 3)
    scene = replace(unet, topology=replace(unet.topology, failure=failure)).scene()
    lines = [mark for mark in scene.marks if isinstance(mark, Text) and mark.color == THEME.failure and not mark.group]
    assert len(lines) > 1
    assert all(line.x + text_width(line.text, line.size) <= scene.width for line in lines)
    tops = [mark.y - mark.size for mark in scene.marks if isinstance(mark, Text) and mark.group]
    assert max(line.y for line in lines) < min(tops)
