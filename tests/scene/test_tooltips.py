"""Words of the header and of tooltips."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from neural_flow.drawing import Text
from neural_flow.records import TensorMeta


def header(case):
    return next(mark.text for mark in case.scene().marks if isinstance(mark, Text) and "parameters" in mark.text)


def with_input(unet, name, reader_class):
    """Return the figure with whole numbers as input, read by a stage of some class."""
    meta = TensorMeta(shape=(1, 10), dtype="int64")
    stages = list(unet.topology.stages)
    stages[0] = replace(stages[0], name=name, outputs=(meta,))
    stages[1] = replace(stages[1], class_name=reader_class)
    summaries = {key: found for key, found in unet.capture.summaries.items() if key}
    capture = replace(unet.capture, summaries=MappingProxyType(summaries))
    return replace(unet, topology=replace(unet.topology, stages=tuple(stages)), capture=capture)


@pytest.mark.parametrize(
    ("name", "reader_class", "text"),
    [
        ("x", "Embedding", "input 10 tokens"),
        ("input_ids", "Encoder", "input 10 tokens"),
        ("lengths", "LSTM", "input 10"),
        ("positions", "Embedding", "input 10"),
        ("token_type_ids", "Embedding", "input 10"),
    ],
)
def test_whole_numbers_are_tokens_where_they_are_looked_up(unet, name, reader_class, text):
    assert header(with_input(unet, name, reader_class)).endswith(text)


def test_words_that_a_picture_cuts_are_whole_in_the_tooltip(unet):
    known = unet.capture.summaries[8]
    long = "a name that no card has room for " * 3
    shown = replace(known, facts={**known.facts, "details": (long,)})
    case = replace(
        unet, capture=replace(unet.capture, summaries=MappingProxyType({**unet.capture.summaries, 8: shown}))
    )
    title = next(group.title for group in case.scene().groups if group.group_id == "stage-8")
    assert long in title.splitlines()
