"""What a drawing hands back is found by name, or the names are told."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import neural_flow as nf


def test_a_stage_that_is_not_there() -> None:
    drawing = nf.render(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), torch.rand(1, 4))
    assert ("0", 0) in drawing.capture
    for look in (lambda: drawing.capture["zero"], lambda: drawing.capture.stats("zero")):
        with pytest.raises(KeyError, match=r"no stage is called so; there are .*'0', 0"):
            look()


def test_structure_alone_has_no_pictures() -> None:
    drawing = nf.render(nn.Linear(4, 4), torch.rand(1, 4), capture=False)
    with pytest.raises(KeyError, match="has no picture"):
        drawing.capture["input"]
    with pytest.raises(KeyError, match="no statistics"):
        drawing.capture.stats("input")
