"""A tagger: a bidirectional LSTM reads sentences of different lengths, packed, and names the role of every word."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

SENTENCES = (
    "the old cat watches two small birds from the window",
    "we sail home before the storm",
    "rain falls",
)
VOCABULARY = {word: index + 1 for index, word in enumerate(sorted(set(" ".join(SENTENCES).split())))}  # 0 is padding


class Tagger(nn.Module):
    """Embed, read both ways, score the tags."""

    def __init__(self, vocab_size: int = 1 + len(VOCABULARY), width: int = 48, num_tags: int = 5) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, width, padding_idx=0)
        self.lstm = nn.LSTM(width, width, num_layers=2, bidirectional=True, batch_first=True)
        self.tag = nn.Linear(2 * width, num_tags)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        x = self.embed(words)  # [B, L, width]
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        read, _ = self.lstm(packed)
        x, _ = pad_packed_sequence(read, batch_first=True)  # [B, L, 2 width]
        return self.tag(x)  # [B, L, num_tags]


neural_flow_labels = ["noun", "verb", "adjective", "determiner", "other"]


def neural_flow_model() -> Tagger:
    return Tagger()


def neural_flow_inputs() -> tuple[Tensor, Tensor]:
    """Return the padded word ids ``[3, 10]`` and the lengths ``[3]``, longest first."""
    rows = [torch.tensor([VOCABULARY[word] for word in sentence.split()]) for sentence in SENTENCES]
    return pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])


def neural_flow_tokens() -> list[str]:
    return list(SENTENCES[0].split())
