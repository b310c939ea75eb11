"""The second page of HTML, on which every repeat is drawn."""

from __future__ import annotations

import re

import torch
from torch import nn

from neural_flow.pipeline import render


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mix(self.norm(x))


def stages_on(page: str) -> int:
    return len(re.findall(r'id="[^"]*stage-\d+"', page))


def pages_of(html: bytes) -> list[str]:
    return html.decode().split('<section class="nf-page"')[1:]


def test_html_has_a_page_with_every_repeat_if_asked() -> None:
    model, x = nn.Sequential(*(Block() for _ in range(5))), torch.randn(1, 4, 6)
    drawing = render(model, x, opened=True)
    folded, opened = pages_of(drawing.to_bytes(".html"))
    assert stages_on(folded) == 2 + 1
    assert stages_on(opened) == 2 + 5
    assert opened.count("<image") >= 5  # each with its own picture
    assert len(drawing.picture.scenes) == 1  # other formats show the folded page alone
    assert len(pages_of(render(model, x).to_bytes(".html"))) == 1


def test_without_repeats_there_is_one_page() -> None:
    drawing = render(nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2)), torch.randn(1, 6), opened=True)
    assert len(pages_of(drawing.to_bytes(".html"))) == 1
